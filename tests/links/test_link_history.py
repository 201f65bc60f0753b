"""A link under chance, and mistakes that are planted in it: each is found by some seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.cluster.image.link_states import ENDED
from pybroker.replication.followed_partition import FollowedPartition
from pybroker.replication.mirrored_partition import MirroredPartition
from tests.links.link_history import LinkHistory

SEEDS = range(12)


def play(path: Path, seed: int) -> None:
    history = LinkHistory(path / str(seed), seed)
    try:
        history.play()
    finally:
        history.linked.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_mirrored_is_the_sources_whatever_happens(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed)


def found(path: Path) -> bool:
    """Whether a seed shows a mistake."""
    for seed in SEEDS:
        try:
            play(path, seed)
        except AssertionError:
            return True
    return False


def test_a_fetch_that_does_not_name_the_last_epoch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = MirroredPartition.question
    monkeypatch.setattr(MirroredPartition, "question", lambda self: ask(self)._replace(last_fetched_epoch=-1))
    assert found(tmp_path)


def test_a_cut_behind_which_records_come_in_the_same_leader_epoch_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MirroredPartition, "_after_cut", lambda self, former_end: self.partition.on_cut())
    assert found(tmp_path)


def test_a_leader_epoch_below_the_sources_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.links.virtual_link.EPOCHS_AHEAD", 0)
    monkeypatch.setattr(MirroredPartition, "may_be_fetched", property(lambda self: self.source_leader != -1))
    assert found(tmp_path)


def test_an_end_that_is_told_too_early_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MirroredPartition, "ends_at", lambda self, source_end: True)
    monkeypatch.setattr(MirroredPartition, "append", lambda *_: 0)
    assert found(tmp_path)


def test_an_end_that_is_told_of_other_records_than_the_sources_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MirroredPartition, "ends_at", lambda self, source_end: source_end <= self.log.log_end_offset)
    monkeypatch.setattr(MirroredPartition, "tell_if_ended", lambda self, *_: self._tell(self, ENDED, "") is None)
    assert found(tmp_path)


def test_what_a_follower_does_with_a_high_watermark_is_found_at_a_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MirroredPartition, "append", FollowedPartition.append)
    assert found(tmp_path)

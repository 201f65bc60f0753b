"""There and back under chance, and mistakes that are planted in it: each is found by some seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pybroker.cluster.image.link_states import PARTED
from pybroker.replication.mirrored_partition import MirroredPartition
from tests.links.way_back_history import WayBackHistory

SEEDS = range(8)


def play(path: Path, seed: int) -> None:
    history = WayBackHistory(path / str(seed), seed)
    try:
        history.play()
    finally:
        history.clusters.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_there_and_back_nothing_is_lost_but_what_was_told(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed)


def found(path: Path) -> bool:
    """Whether a seed shows a mistake."""
    for seed in SEEDS:
        try:
            play(path, seed)
        except AssertionError:
            return True
    return False


def tell(partition: MirroredPartition, what: str) -> None:
    partition._tell(partition, PARTED, what)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        # Nothing is looked at before it is cut.
        ("is_adopted", property(lambda self: False)),
        # It is not told what is lost.
        ("look_for_parting", lambda self, asked, epoch, end_offset: tell(self, "")),
        # All that is here is said to be lost.
        ("look_for_parting", lambda self, asked, epoch, end_offset: tell(self, f"0 {self.log.log_end_offset}")),
    ],
)
def test_a_mistake_in_the_way_back_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mistake: object
) -> None:
    monkeypatch.setattr(MirroredPartition, name, mistake)
    assert found(tmp_path)


def test_a_cut_that_goes_too_far_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: Callable[[MirroredPartition, int], bool] = MirroredPartition._truncate
    monkeypatch.setattr(MirroredPartition, "_truncate", lambda self, offset: cut(self, max(offset - 1, 0)))
    assert found(tmp_path)

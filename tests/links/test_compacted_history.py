"""A link of a compacted topic under chance, and mistakes that are planted in it: each is found by some seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.replication.followed_partition import FollowedPartition
from tests.links.compacted_history import CompactedHistory

SEEDS = range(12)
# Few histories cut where a cleaner has been: these do, or those behind them.
SEEDS_OF_CUTS = (20, *range(24, 60))


def play(path: Path, seed: int) -> CompactedHistory:
    history = CompactedHistory(path / str(seed), seed)
    try:
        history.play()
    finally:
        history.linked.close()
    return history


@pytest.mark.parametrize("seed", [*SEEDS, *SEEDS_OF_CUTS[:1]])
def test_the_last_record_of_each_key_is_the_sources_whatever_happens(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed)


def test_a_cut_that_leaves_what_its_cleaner_has_thinned_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_alone(self: FollowedPartition, offset: int) -> bool:
        self.log.truncate_to(offset)
        return True

    monkeypatch.setattr(FollowedPartition, "_truncate", cut_alone)
    for seed in SEEDS_OF_CUTS:
        try:
            play(tmp_path, seed)
        except AssertionError:
            return
    pytest.fail("no seed has found it")

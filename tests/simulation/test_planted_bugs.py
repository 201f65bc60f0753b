"""The simulation can fail: each of these bugs, put into the broker, is found by some seed, as what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.coordinators.group import classic_rebalance
from pybroker.coordinators.group.classic_group import ClassicGroup
from pybroker.coordinators.group.shard import GroupShard
from pybroker.coordinators.shard import Shard
from pybroker.replication.partition import Partition
from pybroker.storage.log import Log
from pybroker.storage.producer_state import ProducerStateManager
from tests.simulation.faults import FAULTS
from tests.simulation.simulation import Simulation

SEEDS_MAX = 60
Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody answers a producer when the bytes are written."""
    monkeypatch.setattr(Log, "_acknowledge", lambda self, result, on_complete: result)


def show_what_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody moves the high watermark to the end of what is written."""

    def on_appended(self: Partition) -> None:
        if self.log.log_end_offset > self.log.high_watermark:
            self.log.update_high_watermark(self.log.log_end_offset)
            if self.waiting and not self.marked:
                self.replicas.mark(self)
            if self.high_watermark_listener is not None:
                self.high_watermark_listener(self.index, self.log.high_watermark)

    monkeypatch.setattr(Partition, "_on_appended", on_appended)


def take_any_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody forgets to compare sequence numbers."""
    monkeypatch.setattr(ProducerStateManager, "_check_sequence", lambda self, *_: None)


def read_past_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes the high watermark for the last stable offset."""
    monkeypatch.setattr(Log, "last_stable_offset", property(lambda self: self.high_watermark))


def give_everybody_the_same_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody answers SyncGroup with another member's assignment."""
    real = classic_rebalance.sync_response

    def sync_response(group: ClassicGroup, assignment: bytes) -> Any:
        return real(group, next(iter(group.members.values())).assignment)

    monkeypatch.setattr(classic_rebalance, "sync_response", sync_response)


def take_commits_of_any_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody forgets to fence commits."""
    monkeypatch.setattr(ClassicGroup, "check_offset_commit", lambda self, *_, **__: 0)


def give_offsets_while_others_are_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody ignores ``require_stable``."""
    real = GroupShard.fetch_offsets

    def fetch_offsets(self: GroupShard, request: Any, require_stable: bool) -> Any:
        return real(self, request, False)

    monkeypatch.setattr(GroupShard, "fetch_offsets", fetch_offsets)


def forget_who_waits_for_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody loses the coordinator's answers that wait for the high watermark."""
    monkeypatch.setattr(Shard, "on_high_watermark", lambda self, high_watermark: None)


SLOW_DISK = frozenset({"power failure", "slow threads", "slow network"})
PLANTED: list[tuple[Plant, set[str]]] = [
    (acknowledge_before_the_sync, {"acknowledged data is there after recovery"}),
    (
        show_what_is_not_synced,
        {
            "a position that was read is in the log",
            "a consumer reads what was written, committed transactions whole, and nothing else",
            "a group reads every record at least once, and no aborted one",
            "everything comes to rest",
        },
    ),
    (take_any_sequence, {"no duplicate (producer id, epoch, sequence)"}),
    (read_past_open_transactions, {"the last stable offset stays below every open transaction"}),
    (
        give_everybody_the_same_partitions,
        {"members get what their generation's leader decided", "one owner per partition per generation"},
    ),
    (take_commits_of_any_generation, {"no commit of an old generation is taken"}),
    (
        give_offsets_while_others_are_pending,
        {
            "each input is transformed exactly once",
            "committed offsets never go back without being asked",
            "no duplicate (producer id, epoch, sequence)",
        },
    ),
    (forget_who_waits_for_the_commit, {"everything comes to rest"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "invariants"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant, invariants: set[str]) -> None:
    plant(monkeypatch)
    faults = SLOW_DISK if plant is show_what_is_not_synced else frozenset(FAULTS)
    for seed in range(1, SEEDS_MAX):
        violation = Simulation(seed, faults=faults).run().violation
        if violation is not None:
            assert violation.invariant in invariants, str(violation)
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find it")

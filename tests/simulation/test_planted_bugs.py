"""The simulation can fail: each of these bugs, put into the broker, is found by some seed, as what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.coordinators.coordinator_context import CoordinatorContext
from pybroker.coordinators.group.classic import group_responses, rebalance
from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.consumer.partition_owners import PartitionOwners
from pybroker.coordinators.group.group_coordinator_shard import GroupCoordinatorShard
from pybroker.replication.transaction_markers import TransactionMarkers
from pybroker.storage.cleaner.batch_filter import BatchFilter
from pybroker.storage.log.flush_queue import _Plan
from pybroker.storage.log.log import Log
from pybroker.storage.rules.producer_state import ProducerStateManager
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.record_columns import RecordColumns
from pybroker_protocol.records import BatchHeader
from tests.simulation.simulation import Simulation

SEEDS_MAX = 200
Plant = Callable[[pytest.MonkeyPatch], None]


def forget_to_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes for synced what was only written."""
    monkeypatch.setattr(_Plan, "run", lambda self: None)


def take_any_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody forgets to compare sequence numbers."""
    monkeypatch.setattr(ProducerStateManager, "_check_sequence", lambda self, *_: None)


def read_past_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes the high watermark for the last stable offset."""
    monkeypatch.setattr(Log, "last_stable_offset", property(lambda self: self.high_watermark))


def give_everybody_the_same_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody answers SyncGroup with another member's assignment."""

    def sync_response(group: ClassicGroup, assignment: bytes) -> Any:
        return group_responses.sync_response(group, next(iter(group.members.values())).assignment)

    monkeypatch.setattr(rebalance, "sync_response", sync_response)


def take_commits_of_any_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody forgets to fence commits."""
    real = ClassicGroup.check_offset_commit

    def check_offset_commit(self: ClassicGroup, *arguments: Any, **options: Any) -> int:
        code = real(self, *arguments, **options)
        return 0 if code == ErrorCode.ILLEGAL_GENERATION else code

    monkeypatch.setattr(ClassicGroup, "check_offset_commit", check_offset_commit)


def give_partitions_before_they_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody does not ask who has a partition yet."""
    monkeypatch.setattr(PartitionOwners, "of", lambda self, topic_id, partition: None)


def forget_one_partition_of_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes a marker for written that was not."""
    real = TransactionMarkers.write

    def write(self: TransactionMarkers, marker: Any, partitions: Any, done: Any) -> None:
        data = [part for part in partitions if not part[0].startswith("__")]
        if len(data) < 2:
            real(self, marker, partitions, done)
            return
        rest = [part for part in partitions if part != data[-1]]
        real(self, marker, rest, lambda errors: done({**errors, data[-1]: 0}))

    monkeypatch.setattr(TransactionMarkers, "write", write)


def give_offsets_while_others_are_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody ignores ``require_stable``."""
    real = GroupCoordinatorShard.fetch_offsets

    def fetch_offsets(self: GroupCoordinatorShard, request: Any, require_stable: bool) -> Any:
        return real(self, request, False)

    monkeypatch.setattr(GroupCoordinatorShard, "fetch_offsets", fetch_offsets)


def forget_who_waits_for_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody loses the coordinator's answers that wait for the high watermark."""
    monkeypatch.setattr(CoordinatorContext, "on_high_watermark", lambda self, high_watermark: None)


def clean_away_what_nothing_superseded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes a record for superseded by itself."""
    real = BatchFilter._retained

    def retained(self: BatchFilter, header: BatchHeader, columns: RecordColumns) -> list[int]:
        last_offsets = self._map.last_offsets(columns.keys)
        return [
            i for i in real(self, header, columns) if header.base_offset + columns.offset_deltas[i] != last_offsets[i]
        ]

    monkeypatch.setattr(BatchFilter, "_retained", retained)


PLANTED: list[tuple[Plant, set[str]]] = [
    (
        forget_to_sync,
        {"acknowledged data is there after recovery", "a position that was read is in the log"},
    ),
    (take_any_sequence, {"no duplicate (producer id, epoch, sequence)"}),
    (read_past_open_transactions, {"the last stable offset stays below every open transaction"}),
    (
        give_everybody_the_same_partitions,
        {"members get what their generation's leader decided", "one owner per partition per generation"},
    ),
    (
        take_commits_of_any_generation,
        {"no commit of an old generation is taken", "committed offsets never go back without being asked"},
    ),
    (
        give_offsets_while_others_are_pending,
        {
            "each input is transformed exactly once",
            "committed offsets never go back without being asked",
            "no duplicate (producer id, epoch, sequence)",
        },
    ),
    (give_partitions_before_they_are_given_back, {"one owner per partition per epoch"}),
    (
        forget_one_partition_of_a_transaction,
        {"no transaction hangs", "a transaction is visible all or none", "everything comes to rest"},
    ),
    (forget_who_waits_for_the_commit, {"everything comes to rest"}),
    (clean_away_what_nothing_superseded, {"cleaning leaves the last value of every key"}),
]


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("plant", "invariants"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant, invariants: set[str]) -> None:
    plant(monkeypatch)
    for seed in range(1, SEEDS_MAX):
        violation = Simulation(seed).run().violation
        if violation is not None:
            assert violation.invariant in invariants, str(violation)
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find it")

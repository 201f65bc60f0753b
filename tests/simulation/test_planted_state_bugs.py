"""The simulated cluster looks inside: mistakes that show in what clients see only after a second, rarer event."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from pybroker.cluster.decisions import partition_changes
from pybroker.cluster.decisions.operations import InSyncChange
from pybroker.cluster.image.cluster_image import ClusterImage, PartitionImage
from pybroker.coordinators.loader import Loader
from pybroker.replication.coordinator_partitions import CoordinatorPartitions
from pybroker.replication.followers import Followers
from pybroker.storage.log import follower_append, log_loader, producer_snapshot, truncation
from pybroker.storage.results import ReadResult
from pybroker.storage.rules.producer_state import ProducerStateEntry, ProducerStateManager, SequenceError
from pybroker_protocol.record_codec import Record
from pybroker_protocol.records import NO_PRODUCER_ID, BatchHeader
from tests.simulation import cluster_observer as observed
from tests.simulation import coordinator_replay, producer_replay
from tests.simulation.planted import LOST, SEEN, Planted, check_found

SEEDS_MAX = 40

NEWEST = 1 << 31  # later than any epoch


# --- the controller ---------------------------------------------------------------------------------------------------


def alter(monkeypatch: pytest.MonkeyPatch, believe: Any) -> None:
    """AlterPartition is decided by what ``believe`` makes of a change and its partition."""
    refusal = partition_changes._refusal

    def believing(image: ClusterImage, broker_id: int, partition: PartitionImage, change: InSyncChange) -> int:
        return refusal(image, broker_id, partition, believe(change, partition))

    monkeypatch.setattr(partition_changes, "_refusal", believing)


def take_a_stale_partition_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """AlterPartition does not compare the partition epoch."""
    alter(monkeypatch, lambda change, partition: change._replace(partition_epoch=partition.partition_epoch))


def take_replicas_of_any_broker_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """AlterPartition does not compare the broker epochs of who is to be in sync (KIP-903)."""
    alter(
        monkeypatch,
        lambda change, _: change._replace(in_sync=tuple((replica, -1) for replica, _ in change.in_sync)),
    )


# --- leaders ----------------------------------------------------------------------------------------------------------


def keep_what_followers_had_in_an_earlier_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that leads anew believes what its followers had fetched before."""
    real = Followers.__init__
    former: dict[Any, dict[int, Any]] = {}

    def __init__(self: Followers, broker: Any, partition: Any, state: PartitionImage) -> None:
        real(self, broker, partition, state)
        key = broker, partition.topic_id, partition.index
        for broker_id, before in former.get(key, {}).items():
            if broker_id in self._by_id:
                self._by_id[broker_id].log_end_offset = before.log_end_offset
        former[key] = self._by_id

    monkeypatch.setattr(Followers, "__init__", __init__)


def have_followers_join_behind_the_start_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower joins that lacks what was written before its leader began, and may be committed."""
    real = Followers.__init__

    def __init__(self: Followers, *rest: Any) -> None:
        real(self, *rest)
        self._epoch_start_offset = 0

    monkeypatch.setattr(Followers, "__init__", __init__)


# --- producers --------------------------------------------------------------------------------------------------------


def complete_on_followers(monkeypatch: pytest.MonkeyPatch, *, epoch: bool, coordinator_epoch: bool) -> None:
    """Followers take a marker without its producer epoch, or without its coordinator's."""
    complete, following = ProducerStateManager.complete_transaction, [False]
    write = follower_append._Run.write

    def write_as_follower(self: Any, records: memoryview) -> Any:
        following[0] = True
        try:
            return write(self, records)
        finally:
            following[0] = False

    def complete_transaction(
        self: ProducerStateManager, producer_id: int, producer_epoch: int, coordinator: int, *rest: int
    ) -> Any:
        former = self.producers.get(producer_id)
        if following[0] and former is not None:
            producer_epoch = producer_epoch if epoch else former.producer_epoch
            coordinator = coordinator if coordinator_epoch else former.coordinator_epoch
        return complete(self, producer_id, producer_epoch, coordinator, *rest)

    monkeypatch.setattr(follower_append._Run, "write", write_as_follower)
    monkeypatch.setattr(ProducerStateManager, "complete_transaction", complete_transaction)


def lose_a_marker_s_epoch_on_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers keep the epoch that a producer had before the marker that raised it (KIP-890)."""
    complete_on_followers(monkeypatch, epoch=False, coordinator_epoch=True)


def lose_a_marker_s_coordinator_on_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers do not remember which coordinator a marker was of."""
    complete_on_followers(monkeypatch, epoch=True, coordinator_epoch=False)


def check_markers_less(monkeypatch: pytest.MonkeyPatch, *, epoch: bool, coordinator_epoch: bool) -> None:
    """A marker is taken whatever its producer's epoch is, or its coordinator's."""
    real = ProducerStateManager.check_marker

    def check_marker(
        self: ProducerStateManager, producer_id: int, producer_epoch: int, coordinator: int, version: int
    ) -> SequenceError | None:
        return real(
            self,
            producer_id,
            producer_epoch if epoch else NEWEST,
            coordinator if coordinator_epoch else NEWEST,
            version,
        )

    monkeypatch.setattr(ProducerStateManager, "check_marker", check_marker)


def take_markers_of_a_deposed_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator's epoch is not compared."""
    check_markers_less(monkeypatch, epoch=True, coordinator_epoch=False)


def take_markers_of_an_earlier_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer's epoch is not compared."""
    check_markers_less(monkeypatch, epoch=False, coordinator_epoch=True)


def keep_snapshots_beyond_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What producers were behind the offset where a log is cut stays on the disk."""

    def delete_snapshots(directory: Any, below: int = 0, above: int | None = None) -> None:
        if above is None:
            producer_snapshot.delete_snapshots(directory, below)

    monkeypatch.setattr(truncation, "delete_snapshots", delete_snapshots)


def keep_producers_over_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is cut remembers what its producers wrote behind that."""
    monkeypatch.setattr(truncation, "load_producers", lambda log: None)


def open_with_the_snapshot_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What producers wrote behind the last snapshot is not read when a log is opened."""
    monkeypatch.setattr(log_loader, "_replay_from", lambda log, start: None)


def forget_the_open_transactions_of_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot does not say where a producer's open transaction begins."""
    encode = producer_snapshot.encode_snapshot

    def encode_snapshot(producers: dict[int, ProducerStateEntry]) -> bytes:
        kept = {key: copy(entry) for key, entry in producers.items()}
        for entry in kept.values():
            entry.current_txn_first_offset = -1
        return encode(kept)

    monkeypatch.setattr(producer_snapshot, "encode_snapshot", encode_snapshot)


# --- coordinators -----------------------------------------------------------------------------------------------------


def load_what_is_committed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new coordinator reads its partition to the high watermark, not to its end."""

    def log_range(self: CoordinatorPartitions, topic: str, partition: int) -> tuple[int, int] | None:
        here = self._partition(topic, partition)
        if here is None or here.log.queue.busy:
            return None
        return here.log.log_start_offset, here.log.high_watermark

    def read(self: CoordinatorPartitions, topic: str, partition: int, offset: int, size: int, done: Any) -> None:
        here = self._replicas.partition(topic, partition)
        assert here is not None
        result = here.log.read(offset, size, here.log.high_watermark, True)
        assert isinstance(result, ReadResult)
        done(result.error_code, result.records)

    monkeypatch.setattr(CoordinatorPartitions, "log_range", log_range)
    monkeypatch.setattr(CoordinatorPartitions, "read", read)


def load_offsets_of_open_transactions_as_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new coordinator takes the offsets of a transaction that has not ended for committed ones."""
    replay = Loader._replay_record

    def replay_record(self: Loader, header: BatchHeader, record: Record, now_ms: int) -> None:
        replay(self, header if header.is_control else header._replace(producer_id=NO_PRODUCER_ID), record, now_ms)

    monkeypatch.setattr(Loader, "_replay_record", replay_record)


# Requests come out of order, so that each comparison of an epoch has something to say.
LATE_CHANGES = {
    "with_groups": False,
    "active_ms": 40_000,
    "faults": frozenset({"old request", "pause", "partition", "one-way partition"}),
}
DEPOSED = {"with_groups": False, "faults": frozenset({"kill", "pause", "clean restart", "partition"})}

# Who is to be in sync has lost something, and is registered anew, by the time at which the controller hears of it.
LATE_JOINS = {
    "with_groups": False,
    "active_ms": 40_000,
    "aim_share": 1.0,
    "faults": frozenset({"power failure", "broken connection", "slow network"}),
}
SWINGS = {"with_groups": False, "active_ms": 40_000, "faults": frozenset({"swing of a leadership"})}

# A coordinator moves, and its producers keep their epochs: no connection breaks, for which they would wait until their
# transactions have timed out.  Of the second protocol such a marker is refused by its producer epoch as well.
LATE_MARKERS = {
    "first_protocol_share": 1.0,
    "active_ms": 40_000,
    "faults": frozenset({"old request", "session lost"}),
}

# Not here, because no run can show it: a coordinator that goes on with what it knew where it hears in one turn that it
# was deposed and is elected anew.  A broker that heard of nothing in between has followed no leader: its log is what it
# was, and its state is what that log says.  Where the leader stays and only its epoch rises the same holds.
PLANTED = [
    Planted(take_a_stale_partition_epoch, {observed.IN_SYNC}, LATE_CHANGES),
    Planted(take_replicas_of_any_broker_epoch, LOST, LATE_JOINS, seeds_max=400),
    Planted(have_followers_join_behind_the_start_of_the_epoch, {SEEN, *LOST}, DEPOSED),
    Planted(keep_what_followers_had_in_an_earlier_term, LOST, SWINGS),
    Planted(lose_a_marker_s_epoch_on_followers, {producer_replay.PRODUCERS}),
    Planted(lose_a_marker_s_coordinator_on_followers, {producer_replay.PRODUCERS}),
    Planted(take_markers_of_an_earlier_epoch, {producer_replay.EPOCHS_OF_PRODUCERS}),
    Planted(take_markers_of_a_deposed_coordinator, {producer_replay.MARKERS}, LATE_MARKERS),
    Planted(keep_snapshots_beyond_a_cut, {producer_replay.SNAPSHOTS}),
    Planted(keep_producers_over_a_cut, {producer_replay.PRODUCERS}),
    Planted(open_with_the_snapshot_alone, {producer_replay.PRODUCERS}),
    Planted(forget_the_open_transactions_of_a_snapshot, {producer_replay.PRODUCERS, producer_replay.SNAPSHOTS}),
    Planted(load_what_is_committed_alone, {coordinator_replay.COORDINATORS}),
    Planted(load_offsets_of_open_transactions_as_committed, {coordinator_replay.COORDINATORS}),
]


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.timeout(900)
@pytest.mark.parametrize("planted", PLANTED, ids=[planted.plant.__name__ for planted in PLANTED])
def test_a_planted_mistake_is_found(monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    check_found(planted, monkeypatch, SEEDS_MAX)

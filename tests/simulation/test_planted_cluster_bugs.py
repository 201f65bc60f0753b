"""The simulated cluster can fail: each of these mistakes in its protocol is found by some seed, as what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import ANY

import pytest

from pybroker.cluster.controller.controller import Controller
from pybroker.cluster.decisions import broker_changes, partition_changes
from pybroker.cluster.decisions.operations import InSyncChange, InSyncResults
from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
)
from pybroker.cluster.store.metadata_store import CommitResult, Transaction
from pybroker.replication.fetch_session import FetchPartition
from pybroker.replication.followed_partition import FollowedPartition, Question
from pybroker.replication.follower_fetch import FollowerFetch
from pybroker.replication.followers import Followers
from pybroker.replication.partition import Partition
from pybroker.storage.log.log import Log
from pybroker.storage.results import AppendResult
from pybroker_protocol.errors import ErrorCode
from tests.simulation import cluster_observer as observed
from tests.simulation.planted import LOST, SEEN, Planted, check_found

SEEDS_MAX = 1_000

ACKNOWLEDGED = "acknowledged data is where the acknowledgement says"
READ = "a consumer reads what was written, committed transactions whole, and nothing else"


def take_the_log_s_end_for_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark is the leader's own end."""
    monkeypatch.setattr(Followers, "_committed_end", lambda self, log: log.log_end_offset)


def take_the_most_advanced_follower_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark is what any follower has."""

    def committed_end(self: Followers, log: Log) -> int:
        return max([0, *(follower.log_end_offset for follower in self._by_id.values())])

    monkeypatch.setattr(Followers, "_committed_end", committed_end)


def keep_what_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower does not say which epoch its last record has."""
    real = FollowedPartition.question

    def question(self: FollowedPartition) -> Question:
        return real(self)._replace(last_fetched_epoch=-1)

    monkeypatch.setattr(FollowedPartition, "question", question)


def count_what_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower asks for more before it has synced what it has."""
    monkeypatch.setattr(FollowedPartition, "has_to_sync", property(lambda self: False))


def elect_whoever_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is not in sync may lead."""

    def with_leader(image: ClusterImage, topic: str, partition: PartitionImage, avoided: Any = ()) -> PartitionImage:
        if partition.leader != NO_LEADER:
            return partition
        for replica in partition.replicas:
            if replica not in avoided and partition_changes.is_online(image, partition, replica):
                return partition_changes.led_by(image, topic, partition, replica)
        return partition

    monkeypatch.setattr(partition_changes, "with_leader", with_leader)
    monkeypatch.setattr(broker_changes, "with_leader", with_leader)


def acknowledge_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """acks=all waits for nobody."""
    real = Partition.append

    def append(self: Partition, records: memoryview, required_acks: int, *rest: Any) -> Any:
        return real(self, records, 1, *rest)

    def await_run(self: Partition, base_offset: int, _timeout_ms: int, done: Callable[[AppendResult], None]) -> None:
        done(AppendResult(0, base_offset, self.log.log_end_offset - 1, -1, 0, self.leader_epoch))

    monkeypatch.setattr(Partition, "append", append)
    monkeypatch.setattr(Partition, "await_run", await_run)


def show_what_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer may read to the log's end."""
    monkeypatch.setattr(Partition, "upper_bound", lambda self, read_committed: self.log.log_end_offset)


def tell_an_end_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader tells where its log ends before it knows how far the last one had come (KIP-207)."""
    monkeypatch.setattr(Partition, "_may_have_shown_more", lambda self: False)


def write_without_the_controller_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller does not compare the key before it writes."""
    real = Controller.activate

    def activate(self: Controller, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        assert self._queue is not None
        store = self._queue._store
        commit = type(store).commit

        def unchecked(transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
            commit(store, transaction._replace(checks={}), done)

        monkeypatch.setattr(store, "commit", unchecked)

    monkeypatch.setattr(Controller, "activate", activate)


def lead_without_being_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader gets no new leader epoch."""
    real = partition_changes.led_by

    def led_by(image: ClusterImage, topic: str, partition: PartitionImage, leader: int) -> PartitionImage:
        return real(image, topic, partition, leader)._replace(leader_epoch=partition.leader_epoch)

    monkeypatch.setattr(partition_changes, "led_by", led_by)


def believe_followers_of_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader compares no epoch of its followers: neither the leader's, nor that of what they fetched last.

    Without the first of the two alone nothing goes wrong: whoever differs is found by the second.
    """
    real = FollowerFetch._error

    def error(self: FollowerFetch, fetched: FetchPartition, partition: Partition) -> int:
        code, followers = real(self, fetched, partition), partition.followers
        is_known = followers is not None and followers.knows(self._broker_id)
        return 0 if is_known and code == ErrorCode.FENCED_LEADER_EPOCH else code

    monkeypatch.setattr(FollowerFetch, "_error", error)
    monkeypatch.setattr(FollowerFetch, "_diverges", lambda *_: False)


def let_a_deposed_leader_shrink_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller compares no epoch in AlterPartition: not the leader's, the partition's, nor those of brokers.

    That the sender leads goes with the first of them, since a leader epoch has one leader.  Any of these checks that
    stays finds a deposed leader out.
    """
    refusal, alter = partition_changes._refusal, Controller.alter_partitions

    def of_any_epoch(image: ClusterImage, broker_id: int, partition: PartitionImage, change: InSyncChange) -> int:
        believed = change._replace(
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            in_sync=tuple((replica, -1) for replica, _ in change.in_sync),
        )
        return refusal(image, broker_id, partition._replace(leader=broker_id), believed)

    def of_any_broker_epoch(
        self: Controller,
        broker_id: int,
        _broker_epoch: int,
        changes: Sequence[InSyncChange],
        done: Callable[[InSyncResults], None],
    ) -> None:
        alter(self, broker_id, ANY, changes, done)

    monkeypatch.setattr(partition_changes, "_refusal", of_any_epoch)
    monkeypatch.setattr(Controller, "alter_partitions", of_any_broker_epoch)


def take_a_broker_s_disk_for_the_one_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller thinks that what a broker's replicas had lies in whatever log dirs it registers now.

    Nor does it ask whether the broker stopped cleanly: an empty disk has no mark of that.
    """
    real_placed, real_rejoined = broker_changes._placed, broker_changes._rejoined

    def placed(
        builder: ImageBuilder, partition: PartitionImage, broker: BrokerRegistration, directory: bytes
    ) -> PartitionImage:
        found = real_placed(builder, partition, broker, directory)
        if broker.has_online_dir(found.directory(broker.broker_id)):
            return found
        return real_placed(builder, partition, broker, broker.log_dirs[0])

    def rejoined(image: ClusterImage, topic: str, partition: PartitionImage, broker_id: int, _: bool) -> PartitionImage:
        return real_rejoined(image, topic, partition, broker_id, True)

    monkeypatch.setattr(broker_changes, "_placed", placed)
    monkeypatch.setattr(broker_changes, "_rejoined", rejoined)


# Leaders are deposed while they run, and what they have asked for comes late.
DEPOSED_UNAWARES = {
    "active_ms": 40_000,
    "faults": frozenset({"old request", "partition", "one-way partition", "session lost"}),
}

# Nothing is lost with a process, so that what is lost was on a disk.
EMPTY_DISKS = {"faults": frozenset({"wiped disk", "kill", "clean restart", "pause"})}

PLANTED = [
    Planted(take_the_log_s_end_for_committed, LOST),
    Planted(take_the_most_advanced_follower_for_all, LOST),
    Planted(keep_what_diverged, LOST),
    Planted(count_what_is_not_synced, LOST | {SEEN}, first_seed=82),
    Planted(elect_whoever_is_there, LOST),
    Planted(acknowledge_at_once, {ACKNOWLEDGED}),
    Planted(show_what_is_not_committed, {READ, SEEN}),
    Planted(tell_an_end_that_is_behind, {SEEN}),
    Planted(write_without_the_controller_key, {observed.CONTROLLER_WRITES, observed.EPOCHS, observed.SAME_IMAGE}),
    Planted(lead_without_being_elected, {observed.ONE_LEADER, observed.EPOCHS}),
    Planted(believe_followers_of_any_epoch, LOST),
    Planted(let_a_deposed_leader_shrink_the_isr, LOST, DEPOSED_UNAWARES),
    Planted(take_a_broker_s_disk_for_the_one_that_it_had, LOST, EMPTY_DISKS),
]


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.timeout(900)
@pytest.mark.parametrize("planted", PLANTED, ids=[planted.plant.__name__ for planted in PLANTED])
def test_a_planted_mistake_is_found(monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    check_found(planted, monkeypatch, SEEDS_MAX, with_groups=False)

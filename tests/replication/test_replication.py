"""What followers have of their leader's log, and what that makes of the high watermark and of acknowledgements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from pybroker.cluster.image.cluster_image import NO_LEADER
from pybroker.cluster.membership.peers import CONTROL, REPLICATION
from pybroker.replication.coordinator_partitions import CoordinatorPartitions
from pybroker.storage.log.partition_log import PartitionLog
from pybroker.storage.results import TransactionMarker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest
from tests.replication.cluster import LAG_MS, NAME, Cluster
from tests.storage.batches import batch, end_marker

MakeCluster = Callable[..., Cluster]


def test_followers_get_what_is_produced_and_what_of_it_is_committed(cluster: Cluster) -> None:
    leader = cluster.brokers[1]
    for _ in range(5):
        leader.produce(acks=1)
    assert leader.offsets() == (0, 0, 5)
    cluster.settle()
    for broker in cluster.brokers.values():
        assert broker.offsets() == (0, 5, 5)
        assert broker.contents() == leader.contents()


def test_acks_all_come_when_the_slowest_replica_in_sync_has_the_batch(cluster: Cluster) -> None:
    leader = cluster.brokers[1]
    cluster.settle()
    cluster.cut.add((3, 1))
    results = leader.produce()
    cluster.pass_ms(1_000)
    assert (leader.log().high_watermark, results) == (0, [])
    cluster.heal()
    cluster.pass_ms(30_000)
    assert leader.log().high_watermark == 1


def test_acks_all_take_two_ways_there_and_back(cluster: Cluster) -> None:
    cluster.settle()
    results = cluster.brokers[1].produce()
    cluster.pass_ms(20)
    assert [result.error_code for result in results] == [0]


def test_a_leader_that_is_deposed_answers_those_who_wait_and_takes_nothing(cluster: Cluster) -> None:
    leader = cluster.brokers[1]
    cluster.isolate(1)
    waiting = leader.produce()
    before = leader.partition()
    cluster.elect(2)
    cluster.tell()
    assert [result.error_code for result in waiting] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert leader.replicas.partition(NAME, 0) is None
    assert leader.replicas.error_of(NAME, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused = before.append(memoryview(b""), 1, 0, 13, lambda _: None)
    assert refused is not None
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_marker_of_a_transaction_waits_for_the_replicas_in_sync(cluster: Cluster) -> None:
    leader = cluster.brokers[1]
    cluster.settle()
    results: list[int] = []
    marker = TransactionMarker(7, 0, 0, True, 1)
    leader.partition().log.producers.update(7, 0, 0, 0, 0, 0, False)
    later = leader.partition().end_transaction(
        bytes(end_marker(7, 0, True, 0)), marker, lambda result: results.append(result.error_code)
    )
    assert (later, results) == (None, [])
    cluster.pass_ms(20)
    assert results == [0]
    assert {broker.log().log_end_offset for broker in cluster.brokers.values()} == {1}


def test_a_coordinator_goes_on_while_its_marker_waits_for_the_replicas_in_sync(cluster: Cluster) -> None:
    """What comes behind it would wait as long: every commit, and each list of groups."""
    leader = cluster.brokers[1]
    cluster.settle()
    cluster.cut.add((3, 1))
    leader.partition().log.producers.update(7, 0, 0, 0, 0, 0, False)
    written: list[tuple[int, int]] = []
    partitions = CoordinatorPartitions(leader.replicas, leader.metadata, 1, NAME, Mock())
    partitions.append_end_transaction(
        NAME,
        0,
        bytes(end_marker(7, 0, True, 0)),
        TransactionMarker(7, 0, 0, True, 1),
        lambda error_code, last_offset: written.append((error_code, last_offset)),
    )
    assert written == [(0, 0)]
    assert leader.log().high_watermark == 0


def test_a_leader_whose_log_has_grown_answers_the_fetches_of_followers_that_wait(cluster: Cluster) -> None:
    cluster.settle()
    asked = [len(broker.asked) for broker in cluster.brokers.values()]
    cluster.pass_ms(10)
    assert asked == [len(broker.asked) for broker in cluster.brokers.values()], "both wait"
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(10)
    assert [cluster.brokers[follower].log().log_end_offset for follower in (2, 3)] == [1, 1]


def test_followers_at_rest_ask_once_per_wait_and_name_no_partition(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(partitions=50, replica_fetch_wait_max_ms=500)
    for index in range(50):
        cluster.brokers[1].produce(acks=1, index=index)
    cluster.settle()
    follower = cluster.brokers[2]
    follower.asked.clear()
    cluster.pass_ms(10_000)
    assert 18 <= len(follower.asked) <= 20
    for channel, request in follower.asked:
        assert isinstance(request, FetchRequest)
        assert (channel, request.topics, request.forgotten_topics_data) == (REPLICATION, [], [])


def test_large_fetches_are_appended_over_several_turns(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.replication.replica_fetcher.REPLICA_APPEND_SLICE_MS", 0)
    cluster = make_cluster(partitions=20)
    leader = cluster.brokers[1]
    for index in range(20):
        for _ in range(3):
            leader.produce(acks=1, index=index, value=bytes(1000))
    cluster.settle()
    for broker in cluster.brokers.values():
        for index in range(20):
            assert broker.offsets(index) == (0, 3, 3)
            assert broker.contents(index) == leader.contents(index)


def test_partitions_that_come_while_a_fetch_is_parked_do_not_wait_for_its_end(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(partitions=2, replica_fetch_wait_max_ms=400)
    cluster.elect(2, index=1)
    cluster.tell()
    cluster.settle()
    cluster.elect(1, index=1)
    cluster.tell()
    results = cluster.brokers[1].produce(index=1)
    cluster.pass_ms(50)
    assert [result.error_code for result in results] == [0]
    assert CONTROL in [channel for channel, _ in cluster.brokers[2].asked]


def test_a_restarted_follower_goes_on_where_its_log_ends(cluster: Cluster) -> None:
    leader = cluster.brokers[1]
    for _ in range(3):
        leader.produce(acks=1)
    cluster.settle()
    cluster.brokers[3].kill()
    for _ in range(3):
        leader.produce(acks=1)
    follower = cluster.start(3)
    cluster.pass_ms(3_000)
    assert follower.offsets() == (0, 6, 6)
    assert follower.contents() == leader.contents()
    offsets = [partition.fetch_offset for _, request in follower.asked for partition in _asked(request)]
    assert min(offsets) == 3


def _asked(request: object) -> list[FetchPartition]:
    assert isinstance(request, FetchRequest)
    return [partition for topic in request.topics for partition in topic.partitions]


def test_a_restarted_leader_shows_no_more_than_it_knows_to_be_committed(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replica_high_watermark_checkpoint_interval_ms=5_000)
    leader = cluster.brokers[1]
    leader.produce(acks=1)
    cluster.settle()
    cluster.pass_ms(6_000)  # the high watermark is in its checkpoint
    cluster.isolate(1)
    for _ in range(2):
        leader.produce(acks=1)
    leader.kill()
    leader = cluster.start(1)
    assert leader.offsets() == (0, 1, 3)
    assert leader.partition().upper_bound(read_committed=False) == 1
    cluster.heal()
    cluster.pass_ms(40_000)
    assert leader.offsets() == (0, 3, 3)


def test_a_cleanly_stopped_replica_knows_its_high_watermark(cluster: Cluster) -> None:
    cluster.brokers[1].produce(acks=1)
    cluster.settle()
    cluster.brokers[2].stop()
    cluster.isolate(2)
    follower = cluster.start(2)
    assert follower.offsets() == (0, 1, 1)


def test_the_only_replica_shows_everything_when_it_starts(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1,))
    cluster.brokers[1].produce(acks=1)
    cluster.brokers[1].kill()
    assert cluster.start(1).partition().upper_bound(read_committed=False) == 1


def test_records_that_the_leader_forgets_are_forgotten_by_followers(cluster: Cluster) -> None:
    leader = cluster.brokers[1]
    for _ in range(4):
        leader.produce(acks=1)
    cluster.settle()
    assert leader.partition().delete_records(3) == 0
    cluster.settle()
    assert [broker.offsets() for broker in cluster.brokers.values()] == [(3, 4, 4)] * 3


def test_a_follower_whose_records_are_gone_from_the_leader_begins_at_the_leaders_start(cluster: Cluster) -> None:
    leader = cluster.brokers[1]
    leader.produce(acks=1)
    cluster.settle()
    cluster.brokers[3].kill()
    cluster.fence(3)
    cluster.set(isr=(1, 2))
    cluster.tell([1, 2])
    for _ in range(4):
        leader.produce(acks=1)
    cluster.settle()
    assert leader.partition().delete_records(4) == 0
    follower = cluster.start(3)
    cluster.pass_ms(3_000)
    assert follower.offsets() == (4, 5, 5)
    assert follower.contents() == leader.contents()


def test_a_follower_begins_inside_of_a_batch_as_its_leader_does(cluster: Cluster) -> None:
    leader = cluster.brokers[1]
    cluster.settle()
    cluster.brokers[3].kill()
    cluster.fence(3)
    cluster.set(isr=(1, 2))
    cluster.tell([1, 2])
    records = batch([b"a", b"b", b"c", b"d"])
    assert leader.partition().append(memoryview(records), 1, 0, 13, lambda _: None) is not None
    cluster.settle()
    assert leader.partition().delete_records(2) == 0
    follower = cluster.start(3)
    cluster.pass_ms(3_000)
    assert follower.offsets() == (2, 4, 4)


def test_a_topic_that_is_deleted_goes_everywhere_and_is_not_asked_for_again(cluster: Cluster) -> None:
    cluster.brokers[1].produce(acks=1)
    cluster.settle()
    cluster.delete_topic()
    cluster.tell()
    for broker in cluster.brokers.values():
        broker.asked.clear()
    cluster.pass_ms(5_000)
    for broker in cluster.brokers.values():
        assert broker.storage.manager.get(NAME, 0) is None
        assert not (broker.storage.path / f"{NAME}-0").exists()
        assert len(broker.asked) <= 1


def test_a_replica_that_is_taken_from_a_broker_goes_with_its_files(cluster: Cluster) -> None:
    cluster.brokers[1].produce(acks=1)
    cluster.settle()
    cluster.set(replicas=(1, 2), isr=(1, 2))
    cluster.tell()
    cluster.pass_ms(5_000)
    assert not (cluster.brokers[3].storage.path / f"{NAME}-0").exists()
    results = cluster.brokers[1].produce()
    cluster.pass_ms(20)
    assert [result.error_code for result in results] == [0]


def test_a_partition_that_gets_a_second_replica_has_it_fetch_and_then_waits_for_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1, 2))
    cluster.set(replicas=(1,), isr=(1,))
    cluster.tell()
    cluster.pass_ms(100)
    leader = cluster.brokers[1]
    assert [result.error_code for result in leader.produce()] == [0]
    cluster.set(replicas=(1, 2))
    cluster.tell()
    cluster.settle()
    assert cluster.state().isr == (1, 2)
    cluster.isolate(2)
    assert leader.produce() == []


def test_a_partition_without_a_leader_is_kept_and_followed_when_it_has_one(cluster: Cluster) -> None:
    cluster.brokers[1].produce(acks=1)
    cluster.settle()
    cluster.elect(-1)
    cluster.tell()
    cluster.settle()
    assert cluster.brokers[2].offsets() == (0, 1, 1)
    assert cluster.brokers[2].replicas.error_of(NAME, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.elect(2)
    cluster.tell()
    cluster.brokers[2].produce(acks=1)
    cluster.settle()
    assert {broker.offsets() for broker in cluster.brokers.values()} == {(0, 2, 2)}


@pytest.mark.parametrize("leads", [True, False])
def test_a_replica_is_not_tried_again_in_a_log_dir_that_failed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    broker = cluster.brokers[1]
    manager = broker.storage.manager
    cluster.set(directories=tuple(each.storage.manager.directory_ids()[0] for each in cluster.brokers.values()))
    cluster.tell()
    cluster.isolate(1)
    manager._states[0].directory.fail(OSError("no such device"), "a write")
    tried: list[int] = []
    opened = manager.open

    def open_log(topic: str, topic_id: bytes, partition: int, *arguments: Any, **named: Any) -> PartitionLog | None:
        tried.append(partition)
        return opened(topic, topic_id, partition, *arguments, **named)

    monkeypatch.setattr(manager, "open", open_log)
    cluster.elect(1 if leads else 2)
    cluster.tell()
    cluster.pass_ms(LAG_MS // 2)
    assert tried == [0]


def test_where_acknowledgements_wait_for_syncs_a_follower_tells_of_nothing_that_it_has_not_synced(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(storage_settings={"pybroker_fsync_before_ack": True})
    cluster.brokers[1].produce()
    cluster.settle()
    (flusher,) = (each for name, each in cluster.world.executors.items() if name.endswith("-flusher-broker-2"))
    followers = cluster.brokers[1].partition().followers
    assert followers is not None
    with monkeypatch.context() as held:
        held.setattr(flusher, "run", lambda: False)
        results = cluster.brokers[1].produce()
        cluster.pass_ms(400)
        assert cluster.brokers[2].log().log_end_offset == 2
        assert [follower.log_end_offset for follower in followers._by_id.values()] == [1, 2]
        assert results == []
    cluster.pass_ms(700)
    assert [result.error_code for result in results] == [0]


def test_nothing_is_written_behind_a_cut_that_is_not_synced(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure would bring back what was cut off, below the high watermark of what is in its place."""
    cluster = make_cluster()
    cluster.settle()
    cluster.isolate(1)
    former = cluster.brokers[1]
    former.produce(acks=1)
    former.log().flushes.flush()
    cluster.elect(2)
    cluster.tell()
    (flusher,) = (each for name, each in cluster.world.executors.items() if name.endswith("-flusher-broker-1"))
    with monkeypatch.context() as held:
        held.setattr(flusher, "run", lambda: False)
        for _ in range(3):
            cluster.brokers[2].produce(acks=1)
        cluster.heal()
        cluster.pass_ms(5_000)
        assert former.log().log_end_offset == 0
    cluster.settle()
    assert former.contents() == cluster.brokers[2].contents()
    assert former.offsets() == (0, 3, 3)


def test_the_only_replica_of_a_partition_without_a_leader_commits_nothing(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1,), storage_settings={"pybroker_fsync_before_ack": True})
    cluster.brokers[1].produce()
    log = cluster.brokers[1].log()
    assert log.committed_end == 0, "it is not synced yet"
    cluster.elect(NO_LEADER)
    cluster.tell()
    assert cluster.brokers[1].replicas.open_replica(cluster.image.topics_by_name[NAME], 0) is not None
    cluster.settle()
    assert (log.committed_end, log.high_watermark) == (1, 0)
    cluster.elect(1)
    cluster.tell()
    assert cluster.brokers[1].partition().upper_bound(read_committed=False) == 1

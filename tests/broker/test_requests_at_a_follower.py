"""What a broker answers for a partition that it follows."""

from __future__ import annotations

from typing import Any

import pytest
from harness.batches import Batch, Record
from harness.waiting import wait_until

from pybroker.testing import Cluster
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pybroker_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.wire_client import WireClient, fetch_request

LATEST = -1
# Fetches of consumers before this version read no followers.
READS_LEADERS = 9


@pytest.fixture
def follower(pybroker_cluster: Cluster) -> Any:
    """A broker that follows the only partition of the topic ``t``, where a producer has written one record."""
    pybroker_cluster.create_topic("t", replication_factor=3)
    leader = pybroker_cluster.leader("t")
    assert leader is not None
    written = Batch(records=[Record()], producer_id=7, producer_epoch=0, base_sequence=0).encode()
    node = pybroker_cluster.brokers[leader]
    with WireClient((node.host, node.port)) as client:
        assert client.produce("t", written).error_code == 0
    return pybroker_cluster.brokers[next(each for each in pybroker_cluster.brokers if each != leader)]


def fetched(client: WireClient, epoch: int) -> int:
    request = fetch_request("t", 0)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    code: int = client.ask(request, READS_LEADERS).responses[0].partitions[0].error_code
    return code


def listed(client: WireClient, epoch: int) -> int:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    code: int = client.ask(request, 7).topics[0].partitions[0].error_code
    return code


def ended(client: WireClient, epoch: int) -> int:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
    code: int = client.ask(request, 4).topics[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("ask", [fetched, listed, ended])
def test_epoch_of_the_future_is_told_before_that_another_broker_leads(follower: Any, ask: Any) -> None:
    with WireClient((follower.host, follower.port)) as client:
        assert ask(client, 5) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert ask(client, 0) == ask(client, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def asked_by_a_debug_consumer(client: WireClient, timestamp: int, epoch: int = -1) -> tuple[int, int]:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-2, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    answer = client.ask(request, 8).topics[0].partitions[0]
    return answer.error_code, answer.offset


def test_debug_consumer_is_told_the_offsets_of_any_replica(follower: Any) -> None:
    """Replica id -2: what this replica has up to its end, also where another one leads."""
    with WireClient((follower.host, follower.port)) as client:
        wait_until(lambda: asked_by_a_debug_consumer(client, LATEST) == (0, 1), "the record to be here")
        earliest, newest, earliest_local, first = -2, -3, -4, 0
        for timestamp in (earliest, newest, earliest_local, first):
            assert asked_by_a_debug_consumer(client, timestamp) == (0, 0)
        assert asked_by_a_debug_consumer(client, (1 << 63) - 1) == (0, -1)
        assert asked_by_a_debug_consumer(client, LATEST, 5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)


def test_debug_consumer_reads_any_replica_in_every_version(follower: Any) -> None:
    request = fetch_request("t", 0)
    request.replica_id = -2
    with WireClient((follower.host, follower.port)) as client:

        def read() -> bool:
            answer = client.ask(request, READS_LEADERS).responses[0].partitions[0]
            assert answer.error_code == 0
            return bool(answer.records)

        wait_until(read, "the record to be committed here")


def test_producers_of_a_followed_partition_are_described(follower: Any) -> None:
    with WireClient((follower.host, follower.port)) as client:

        def told() -> list[int]:
            request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
            (partition,) = client.ask(request, 0).topics[0].partitions
            assert partition.error_code == 0
            return [producer.producer_id for producer in partition.active_producers]

        wait_until(lambda: told() == [7], "what the leader has written")


def test_a_replica_that_is_no_copy_for_another_log_dir_lags_behind_nothing(follower: Any) -> None:
    """The follower has heard of the record, and not yet that it is committed."""
    with WireClient((follower.host, follower.port)) as client:
        for directory in client.ask(DescribeLogDirsRequest(topics=None), 4).results:
            for topic in directory.topics:
                assert [partition.offset_lag for partition in topic.partitions] == [0] * len(topic.partitions)

"""DescribeQuorum: who decides, and how far the metadata of each broker is."""

from __future__ import annotations

import time
from functools import partial

from harness.waiting import wait_until
from harness.wire import Client

from pybroker.testing import Broker, Cluster
from pybroker.testing.cluster_node import ClusterNode
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
)


def describe(
    broker: Broker | ClusterNode, topic: str = "__cluster_metadata", index: int = 0, version: int = 2
) -> DescribeQuorumResponse:
    partition = DescribeQuorumRequestPartitionData(partition_index=index)
    asked = DescribeQuorumRequestTopicData(topic_name=topic, partitions=[partition])
    with Client((broker.host, broker.port)) as client:
        answer: DescribeQuorumResponse = client.ask(DescribeQuorumRequest(topics=[asked]), version)
    return answer


def partition_of(answer: DescribeQuorumResponse) -> DescribeQuorumResponsePartitionData:
    assert answer.error_code == 0
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return partition


def test_a_broker_that_is_alone_leads_and_has_everything(pybroker: Broker) -> None:
    answer = describe(pybroker)
    partition = partition_of(answer)
    (voter,) = partition.current_voters
    assert (partition.error_code, partition.leader_id, partition.observers) == (0, voter.replica_id, [])
    assert partition.leader_epoch > 0
    assert voter.log_end_offset == partition.high_watermark > 0
    assert abs(voter.last_caught_up_timestamp - time.time() * 1000) < 60_000
    (node,) = answer.nodes
    assert {(listener.host, listener.port) for listener in node.listeners} == {(pybroker.host, pybroker.port)}


def test_older_versions_tell_less(pybroker: Broker) -> None:
    for version in (0, 1):
        answer = describe(pybroker, version=version)
        (voter,) = partition_of(answer).current_voters
        assert (voter.last_fetch_timestamp == -1, answer.nodes) == (version == 0, [])


def test_there_is_no_other_quorum(pybroker: Broker) -> None:
    for topic, index in (("__cluster_metadata", 1), ("another", 0)):
        partition = partition_of(describe(pybroker, topic, index))
        assert (partition.partition_index, partition.error_code) == (index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert partition.current_voters == []


def test_every_broker_tells_who_leads_and_who_has_everything(pybroker_cluster: Cluster) -> None:
    def all_have_everything(node: ClusterNode) -> bool:
        partition = partition_of(describe(node))
        return (
            partition.leader_id == pybroker_cluster.controller_id
            and [voter.replica_id for voter in partition.current_voters] == [1, 2, 3]
            and {voter.log_end_offset for voter in partition.current_voters} == {partition.high_watermark}
        )

    for node in pybroker_cluster.brokers.values():
        wait_until(partial(all_have_everything, node), "metadata that all have")


def test_a_dead_broker_falls_behind_and_another_epoch_begins_with_another_leader(pybroker_cluster: Cluster) -> None:
    dead = pybroker_cluster.controller_id
    assert dead is not None
    before = partition_of(describe(pybroker_cluster.brokers[dead]))
    pybroker_cluster.kill(dead)
    wait_until(lambda: pybroker_cluster.controller_id not in (None, dead), "another controller")
    pybroker_cluster.create_topic("later", partitions=1)
    (alive, _) = sorted({1, 2, 3} - {dead})
    after = partition_of(describe(pybroker_cluster.brokers[alive]))
    ends = {voter.replica_id: voter.log_end_offset for voter in after.current_voters}
    assert after.leader_id == pybroker_cluster.controller_id
    assert after.leader_epoch > before.leader_epoch
    assert ends[dead] < ends[after.leader_id] == after.high_watermark

"""Partitions that nothing was written to have a place: DescribeLogDirs tells it, and AlterReplicaLogDirs changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness.batches import batch
from harness.waiting import wait_until

from pybroker.cluster.membership.moved_replicas import MovedReplicas
from pybroker.testing import Broker, Cluster
from pybroker_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pybroker_protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.broker.wire_client import WireClient

TOPIC, PARTITIONS = "t", 4


def connect(broker: Any) -> WireClient:
    return WireClient((broker.host, broker.port))


def described(client: WireClient, *asked: int, topic: str = TOPIC) -> dict[int, tuple[str, int]]:
    """The log dir and size of each partition of the topic; each stands in one place and is no future one."""
    topics = [DescribableLogDirTopic(topic=topic, partitions=list(asked))] if asked else None
    reply = client.ask(DescribeLogDirsRequest(topics=topics), 4)
    found: dict[int, tuple[str, int]] = {}
    for result in reply.results:
        assert result.error_code == 0
        for told in result.topics:
            for partition in told.partitions if told.name == topic else ():
                assert partition.partition_index not in found
                assert (partition.offset_lag, partition.is_future_key) == (0, False)
                found[partition.partition_index] = Path(result.log_dir).name, partition.partition_size
    return found


def move(client: WireClient, path: Path, *partitions: int) -> list[int]:
    topic = AlterReplicaLogDirTopic(name=TOPIC, partitions=list(partitions))
    reply = client.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[topic])]), 2)
    return [partition.error_code for result in reply.results for partition in result.partitions]


@pytest.fixture
def two_dirs(tmp_path: Path) -> str:
    return f"{tmp_path / 'a'},{tmp_path / 'b'}"


def test_each_partition_of_a_new_topic_is_told_with_the_size_0_and_where_it_will_lie(two_dirs: str) -> None:
    with Broker(data_dir=two_dirs) as broker, connect(broker) as client:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        before = described(client)
        assert [size for _, size in before.values()] == [0] * PARTITIONS
        assert sorted(before) == list(range(PARTITIONS))
        assert described(client, 2, 0) == {index: before[index] for index in (0, 2)}
        assert described(client, PARTITIONS, -1) == {}
        assert described(client, 0, topic="unknown") == {}
        for index in range(PARTITIONS):
            assert client.produce(TOPIC, batch(b"v"), partition=index).error_code == 0
        after = described(client)
        assert {index: name for index, (name, _) in after.items()} == {
            index: name for index, (name, _) in before.items()
        }
        assert all(size > 0 for _, size in after.values())


@pytest.mark.parametrize("is_heard", [True, False])
def test_partition_that_nothing_was_written_to_moves_and_lies_there_after_a_restart(
    tmp_path: Path, two_dirs: str, is_heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_heard:  # the broker ends before its controller has the new places
        monkeypatch.setattr(MovedReplicas, "tell", lambda *_: None)
    with Broker(data_dir=two_dirs) as broker, connect(broker) as client:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        target = {index: "b" if name == "a" else "a" for index, (name, _) in described(client).items()}
        for index, name in target.items():
            for there in (name, "a" if name == "b" else "b", name):
                assert move(client, tmp_path / there, index) == [0]
        wanted = {index: (name, 0) for index, name in target.items()}
        wait_until(lambda: described(client) == wanted, "the partitions to lie there")
    with Broker(data_dir=two_dirs) as broker, connect(broker) as client:
        assert described(client) == wanted
        for index, name in target.items():
            assert client.produce(TOPIC, batch(b"v"), partition=index).error_code == 0
            assert (tmp_path / name / f"{TOPIC}-{index}").is_dir()


def test_deleted_topic_is_told_no_more(two_dirs: str) -> None:
    with Broker(data_dir=two_dirs) as broker, connect(broker) as client:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        assert len(described(client)) == PARTITIONS
        broker.delete_topic(TOPIC)
        assert described(client) == {}


def test_each_replica_of_a_cluster_tells_what_it_has_been_given(tmp_path: Path) -> None:
    with Cluster(2, data_dir=str(tmp_path)) as cluster:
        cluster.create_topic(TOPIC, partitions=2, replication_factor=2)
        cluster.create_topic("one", partitions=2, replication_factor=1)
        held = []
        for broker in cluster.brokers.values():
            with connect(broker) as client:
                assert {index: size for index, (_, size) in described(client).items()} == {0: 0, 1: 0}
                held += list(described(client, 0, 1, topic="one"))
        assert sorted(held) == [0, 1]

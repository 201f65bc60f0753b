"""AlterReplicaLogDirs: moves of replicas between log dirs as clients see them, of one broker and in a cluster."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.batches import batch
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

from pybroker.testing import Broker, Cluster
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.two_dirs import TwoDirs
from tests.broker.wire_client import WireClient

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER, TOPIC = 4, "t"


def connect(broker: Any) -> WireClient:
    return WireClient((broker.host, broker.port))


def ask_to_move(client: WireClient, path: Path | str, topic: str = TOPIC, *partitions: int) -> list[int]:
    """The error code of each partition (by default 0)."""
    wanted = AlterReplicaLogDir(
        path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(partitions or (0,)))]
    )
    reply = client.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
    return [partition.error_code for result in reply.results for partition in result.partitions]


def places(client: WireClient, topic: str = TOPIC, partition: int = 0) -> list[tuple[str, bool]]:
    """The log dirs that hold the partition, each with whether it is on its way there."""
    reply = client.ask(DescribeLogDirsRequest(topics=None), 4)
    return [
        (Path(result.log_dir).name, found.is_future_key)
        for result in reply.results
        for described in result.topics
        for found in described.partitions
        if (described.name, found.partition_index) == (topic, partition)
    ]


def other(root: Path, client: WireClient) -> Path:
    ((name, _),) = places(client)
    return root / ("b" if name == "a" else "a")


def set_throttle(client: WireClient, broker_id: int, value: str) -> None:
    config = AlterableConfig(name=THROTTLE, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=str(broker_id), configs=[config])
    reply = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert [each.error_code for each in reply.responses] == [0]


def values(client: WireClient, topic: str = TOPIC) -> int:
    """How many bytes may be fetched of the partition."""
    fetched = client.fetch(topic, 0, max_bytes=64 << 20, partition_max_bytes=64 << 20)
    return len(fetched.responses[0].partitions[0].records or b"")


@pytest.fixture
def two_dirs(tmp_path: Path) -> str:
    return f"{tmp_path / 'a'},{tmp_path / 'b'}"


def test_a_replica_moves_and_is_found_there_by_the_next_start(tmp_path: Path, two_dirs: str) -> None:
    with Broker(data_dir=two_dirs) as broker:
        broker.create_topic(TOPIC)
        with connect(broker) as client:
            for _ in range(20):
                assert client.produce(TOPIC, batch(bytes(1000))).error_code == 0
            target = other(tmp_path, client)
            assert ask_to_move(client, target) == [0]
            wait_until(lambda: places(client) == [(target.name, False)], "the replica to lie there")
            assert client.produce(TOPIC, batch(b"v")).base_offset == 20
    with Broker(data_dir=two_dirs) as broker, connect(broker) as client:
        assert places(client) == [(target.name, False)]
        assert client.produce(TOPIC, batch(b"v")).base_offset == 21


def test_each_error_is_told_for_its_partition(tmp_path: Path, two_dirs: str) -> None:
    with Broker(data_dir=two_dirs) as broker, connect(broker) as client:
        broker.create_topic(TOPIC)
        assert ask_to_move(client, "/nowhere") == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert ask_to_move(client, tmp_path / "a", TOPIC, 0, 1, -1) == [
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert ask_to_move(client, tmp_path / "a", "x" * 249) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_partition_that_is_not_there_yet_begins_in_the_dir_that_was_asked_for(tmp_path: Path, two_dirs: str) -> None:
    for name in ("a", "b"):
        with Broker(data_dir=two_dirs) as broker, connect(broker) as client:
            topic = f"to-{name}"
            assert ask_to_move(client, tmp_path / name, topic) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            broker.create_topic(topic)
            assert client.produce(topic, batch(b"v")).error_code == 0
            assert places(client, topic) == [(name, False)]


def test_a_throttled_move_is_seen_and_cancelled_by_its_own_dir(tmp_path: Path, two_dirs: str) -> None:
    with Broker(data_dir=two_dirs) as broker, connect(broker) as client:
        broker.create_topic(TOPIC)
        for _ in range(30):
            client.produce(TOPIC, batch(bytes(10_000)))
        set_throttle(client, 1, "20000")
        source, target = Path(places(client)[0][0]), other(tmp_path, client)
        assert ask_to_move(client, target) == [0]
        assert (target.name, True) in places(client)
        assert ask_to_move(client, tmp_path / source) == [0]
        wait_until(lambda: places(client) == [(source.name, False)], "the replica to lie there")
        assert ask_to_move(client, target) == [0]
        set_throttle(client, 1, str(1 << 40))
        wait_until(lambda: places(client) == [(target.name, False)], "the replica to lie there")


def set_cordoned(client: WireClient, broker_id: int, value: str) -> str | None:
    """The error, if any."""
    config = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=str(broker_id), configs=[config])
    reply = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    message: str | None = reply.responses[0].error_message
    return message


def cordoned(client: WireClient) -> list[str]:
    """The log dirs that DescribeLogDirs calls cordoned."""
    reply = client.ask(DescribeLogDirsRequest(topics=None), 5)
    return sorted(Path(result.log_dir).name for result in reply.results if result.is_cordoned)


def a_topic(topic: CreatableTopic) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[topic], timeout_ms=9000, validate_only=False)


def new_topics(client: WireClient, *names: str) -> list[tuple[str, int, str | None]]:
    """For each the name of its log dir, or the error."""
    found = []
    for name in names:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        (result,) = client.ask(a_topic(topic), 7).topics
        if not result.error_code:
            assert client.produce(name, batch(b"v")).error_code == 0
        where = "" if result.error_code else places(client, name)[0][0]
        found.append((where, result.error_code, result.error_message))
    return found


def test_a_cordoned_log_dir_gets_no_new_replica_and_keeps_those_it_has(tmp_path: Path, two_dirs: str) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with Broker({"cordoned.log.dirs": str(b)}, data_dir=two_dirs) as broker, connect(broker) as client:
        assert cordoned(client) == ["b"]
        assert new_topics(client, "t1", "t2") == [("a", 0, None)] * 2
        assert ask_to_move(client, b, "t1") == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
        assert ask_to_move(client, b, "not-there-yet") == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
        assert set_cordoned(client, 1, str(a)) is None
        assert cordoned(client) == ["a"]
        assert new_topics(client, "t3", "t4", "t5") == [("b", 0, None)] * 3
        assert client.produce("t1", batch(b"v")).error_code == 0, "what lies there is served as before"
        assert "Missing entries : /nowhere" in (set_cordoned(client, 1, "/nowhere") or "")
        assert set_cordoned(client, 1, "*") is None
        ((_, code, message),) = new_topics(client, "t6")
        assert code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "fenced, or have all their log directories cordoned" in (message or "")
    with Broker({"cordoned.log.dirs": str(b)}, data_dir=two_dirs) as broker, connect(broker) as client:
        assert cordoned(client) == ["a", "b"], "the dynamic setting is there from the start on"
        assert new_topics(client, "t6")[0][1] == ErrorCode.INVALID_REPLICATION_FACTOR
        assert set_cordoned(client, 1, "") is None
        assert new_topics(client, "t6")[0][1] == 0


def test_a_broker_whose_log_dirs_are_all_cordoned_gets_no_new_replica_of_the_cluster() -> None:
    with Cluster(2) as cluster:
        first, second = cluster.brokers.values()
        with connect(first) as client, connect(second) as other_client:
            assert set_cordoned(other_client, second.broker_id, "*") is None

            def replicas(name: str, factor: int = 1) -> set[int] | int:
                topic = CreatableTopic(
                    name=name, num_partitions=4, replication_factor=factor, assignments=[], configs=[]
                )
                (result,) = client.ask(a_topic(topic), 7).topics
                if result.error_code:
                    return int(result.error_code)
                wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
                nodes: set[int] = set()

                def is_known() -> bool:
                    (found,) = client.ask(wanted, 9).topics
                    nodes.update(node for partition in found.partitions for node in partition.replica_nodes)
                    return bool(nodes)

                wait_until(is_known, "the broker that was asked to know the topic")
                return nodes

            names = iter(f"t{number}" for number in range(1000))
            wait_until(lambda: replicas(next(names)) == {first.broker_id}, "the controller to know")
            for _ in range(5):
                assert replicas(next(names)) == {first.broker_id}
            assert replicas(next(names), factor=2) == ErrorCode.INVALID_REPLICATION_FACTOR
            assert set_cordoned(other_client, second.broker_id, "") is None
            wait_until(lambda: replicas(next(names)) == {first.broker_id, second.broker_id}, "the controller to know")


@pytest.mark.slow
@pytest.mark.parametrize("delay_ms", [0, 3, 30])
def test_a_kill_in_the_middle_of_a_move_loses_and_doubles_nothing(tmp_path: Path, two_dirs: str, delay_ms: int) -> None:
    broker = PybrokerProcess(tmp_path / "process")
    broker.data_directory = two_dirs  # type: ignore[assignment]  # a list of them
    with broker:
        with connect(broker) as client:
            client.create_topic(TOPIC)
            for _ in range(50):
                assert client.produce(TOPIC, batch(bytes(100_000))).error_code == 0
            target = other(tmp_path, client)
            assert ask_to_move(client, target) == [0]
            threading.Event().wait(delay_ms / 1000)
        broker.kill()
        broker.start()
        with connect(broker) as client:
            wait_until(lambda: places(client) == [(target.name, False)], "the replica to lie there")
            assert client.produce(TOPIC, batch(b"v")).base_offset == 50
            assert values(client) > 50 * 100_000


def test_leader_and_followers_move_while_they_are_replicated(tmp_path: Path) -> None:
    with TwoDirs(brokers=3, data_dir=tmp_path) as cluster:
        cluster.create_topic(TOPIC, replication_factor=3, configs={"min.insync.replicas": 3})
        leader = cluster.leader(TOPIC)
        assert leader is not None
        with connect(cluster.brokers[leader]) as producer:
            produced = 0
            for broker_id, node in cluster.brokers.items():
                with connect(node) as client:
                    ((source, _),) = place_of(client)
                    target = f"{'b' if source[0] == 'a' else 'a'}-{broker_id}"
                    assert ask_to_move(client, tmp_path / target) == [0]
                    while places(client) != [(target, False)] or produced < 10 * broker_id:
                        assert producer.produce(TOPIC, batch(bytes(2000))).error_code == 0
                        produced += 1
                    wait_until(partial(is_told, cluster, broker_id, target), "the metadata to have it")
        for broker_id in cluster.brokers:
            cluster.kill(broker_id)
        for node in cluster.brokers.values():
            node.start()
        wait_until(lambda: cluster.leader(TOPIC) is not None, "a leader")
        leader = cluster.leader(TOPIC)
        assert leader is not None
        with connect(cluster.brokers[leader]) as client:
            wait_until(lambda: client.produce(TOPIC, batch(b"v")).error_code == 0, "a produce")


def place_of(client: WireClient) -> list[tuple[str, bool]]:
    """Where the replica lies, once it does."""
    wait_until(lambda: places(client), "the replica")
    return places(client)


def is_told(cluster: Cluster, broker_id: int, name: str) -> bool:
    """Whether the metadata has the broker's replica in the log dir of that name."""
    server = cluster.brokers[broker_id]._server
    assert server is not None
    state = server.services.metadata.partition(TOPIC, 0)
    assert state is not None
    directory_id = state.directory(broker_id)
    found = [each.directory for each in server.services.logs._states if each.directory.directory_id == directory_id]
    return found[0].path.name == name

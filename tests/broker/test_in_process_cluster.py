"""Several brokers in one process that are a cluster: stock clients go on through faults, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.batches import batch
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaConsumer, KafkaProducer

from pybroker.cluster.decisions.operations import TopicDeletion
from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.config.schema import ConfigError
from pybroker.testing import Cluster
from pybroker.testing.cluster_node import ClusterNode
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient
from tests.new_threads import NewThreads

COUNT = 60
VALUES = sorted(b"%d" % number for number in range(COUNT))


def led_by(cluster: Cluster, broker_id: int, topic: str = "t") -> int:
    """A partition that the broker leads."""
    return next(index for index in range(6) if cluster.leader(topic, index) == broker_id)


def other(cluster: Cluster) -> int:
    """A broker that is not the controller."""
    return next(broker_id for broker_id in cluster.brokers if broker_id != cluster.controller_id)


def is_fenced(cluster: Cluster, broker_id: int) -> bool:
    images = [node.image() for node in cluster.brokers.values() if node.is_running and not node.is_paused]
    return all(image.brokers[broker_id].fenced for image in images)


def kafka_python(bootstrap: str) -> list[bytes]:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(COUNT):
        producer.send("t", b"%d" % number, partition=number % 6)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id="readers")
    values = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    return values


def librdkafka(bootstrap: str) -> list[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        producer.produce("t", b"%d" % number, partition=number % 6)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    values: list[bytes] = []
    while len(values) < COUNT:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        values.append(message.value() or b"")
    consumer.close()
    return values


def aiokafka(bootstrap: str) -> list[bytes]:
    async def scenario() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(COUNT):
                await producer.send("t", b"%d" % number, partition=number % 6)
        consumer = AIOKafkaConsumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id="readers")
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(COUNT)]

    return asyncio.run(scenario())


@pytest.mark.parametrize("client", [kafka_python, librdkafka, aiokafka])
def test_stock_clients_write_and_read_partitions_that_all_brokers_lead(
    pybroker_cluster: Cluster, client: Callable[[str], list[bytes]]
) -> None:
    pybroker_cluster.create_topic("t", partitions=6)
    assert {pybroker_cluster.leader("t", index) for index in range(6)} == {1, 2, 3}
    # A single address leads to all of them.
    assert sorted(client(pybroker_cluster.brokers[2].bootstrap)) == VALUES


def test_broker_that_does_not_lead_a_partition_says_so(pybroker_cluster: Cluster) -> None:
    pybroker_cluster.create_topic("t", partitions=6)
    node = pybroker_cluster.brokers[1]
    with WireClient((node.host, node.port)) as client:
        fetched = client.fetch("t", 0, partition=led_by(pybroker_cluster, 2)).responses[0].partitions[0]
    assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_internal_topic_is_refused_by_every_broker_whoever_leads_it(pybroker_cluster: Cluster) -> None:
    pybroker_cluster.create_topic(GROUPS.topic)
    asked = DeleteRecordsPartition(partition_index=0, offset=0)
    topic = DeleteRecordsTopic(name=GROUPS.topic, partitions=[asked])
    deleting = DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
    for node in pybroker_cluster.brokers.values():
        with WireClient((node.host, node.port)) as client:
            produced = client.produce(GROUPS.topic, batch(b"v", key=b"k"))
            (deleted,) = client.ask(deleting, 2).topics[0].partitions
            unknown = client.produce(GROUPS.topic, batch(b"v", key=b"k"), partition=1)
        assert produced.error_code == deleted.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _note_offset(offsets: list[int | None], error: KafkaError | None, message: Message) -> None:
    assert error is None
    offsets.append(message.offset())


def test_nobody_leads_while_nobody_runs_who_is_not_paused() -> None:
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("t")
        cluster.kill(1)
        cluster.pause(2)
        assert cluster.leader("t") is None


def test_topic_that_the_controller_does_not_delete_is_told_with_its_reason(
    pybroker_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pybroker_cluster.create_topic("t")

    def refuse(node: ClusterNode, names: Sequence[str]) -> Sequence[TopicDeletion]:
        return [TopicDeletion(name, bytes(16), ErrorCode.REQUEST_TIMED_OUT, "the store is away") for name in names]

    with monkeypatch.context() as patched:
        patched.setattr(ClusterNode, "delete", refuse)
        with pytest.raises(ValueError, match="topic t was not deleted: the store is away"):
            pybroker_cluster.delete_topic("t")
    pybroker_cluster.delete_topic("t")
    pybroker_cluster.delete_topic("t")


def test_killed_broker_that_is_started_again_has_what_it_acknowledged(pybroker_cluster: Cluster) -> None:
    pybroker_cluster.create_topic("t", partitions=6)
    victim = other(pybroker_cluster)
    partition = led_by(pybroker_cluster, victim)
    producer = Producer({"bootstrap.servers": pybroker_cluster.bootstrap})
    offsets: list[int | None] = []
    told = partial(_note_offset, offsets)
    producer.produce("t", b"before", partition=partition, on_delivery=told)
    assert producer.flush(PATIENCE_S) == 0
    pybroker_cluster.kill(victim)
    wait_until(lambda: pybroker_cluster.leader("t", partition) is None, "its partition has no leader")
    producer.produce("t", b"after", partition=partition, on_delivery=told)
    producer.poll(0.1)
    assert offsets == [0]
    pybroker_cluster.restart(victim)
    assert producer.flush(PATIENCE_S) == 0
    assert offsets == [0, 1]
    assert pybroker_cluster.leader("t", partition) == victim


def test_partition_with_replicas_and_a_group_go_on_when_brokers_are_killed(pybroker_cluster: Cluster) -> None:
    pybroker_cluster.create_topic("t", partitions=6, replication_factor=3)
    assert sorted(librdkafka(pybroker_cluster.bootstrap)) == VALUES
    leader = pybroker_cluster.leader("t", 0)
    assert leader is not None
    pybroker_cluster.kill(leader)
    wait_until(lambda: pybroker_cluster.leader("t", 0) not in {None, leader}, "another leader")
    producer = Producer({"bootstrap.servers": pybroker_cluster.bootstrap})
    for number in range(6):
        producer.produce("t", b"after", partition=number)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": pybroker_cluster.bootstrap, "group.id": "readers", "log_level": 0})
    consumer.subscribe(["t"])
    values: list[bytes] = []
    while len(values) < 6:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    assert values == [b"after"] * 6


def test_kill_leaves_no_mark_of_a_clean_stop_and_restart_does(pybroker_cluster: Cluster) -> None:
    victim = other(pybroker_cluster)
    mark = pybroker_cluster.data_dir / f"broker-{victim}" / ".kafka_cleanshutdown"
    pybroker_cluster.kill(victim)
    assert not mark.exists()
    pybroker_cluster.restart(victim)
    pybroker_cluster.brokers[victim].stop()
    assert mark.exists()


def test_connections_of_a_killed_broker_break_and_its_port_refuses(pybroker_cluster: Cluster) -> None:
    node = pybroker_cluster.brokers[other(pybroker_cluster)]
    with socket.create_connection((node.host, node.port), 30) as connection:
        connection.settimeout(PATIENCE_S)
        pybroker_cluster.kill(node.broker_id)
        with suppress(ConnectionResetError):  # of one that was not accepted yet
            assert connection.recv(1) == b""
        with socket.socket() as probe:
            assert probe.connect_ex((node.host, node.port)) != 0


def test_another_broker_becomes_controller_after_the_first_is_killed_and_takes_requests_of_all(
    pybroker_cluster: Cluster,
) -> None:
    first = pybroker_cluster.controller_id
    assert first is not None
    pybroker_cluster.kill(first)
    wait_until(lambda: pybroker_cluster.controller_id not in {None, first}, "another controller")
    for node in pybroker_cluster.brokers.values():
        if node.is_running:
            admin = AdminClient({"bootstrap.servers": node.bootstrap})
            (created,) = admin.create_topics([NewTopic(f"by-{node.broker_id}", 3, 1)]).values()
            created.result(PATIENCE_S)
    pybroker_cluster.restart(first)
    assert pybroker_cluster.controller_id != first


def create_topic_request(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)


def test_topic_is_created_by_a_request_to_any_broker(pybroker_cluster: Cluster) -> None:
    for node in pybroker_cluster.brokers.values():
        with WireClient((node.host, node.port)) as client:
            (answer,) = client.ask(create_topic_request(f"by-{node.broker_id}"), 7).topics
        assert answer.error_code == 0, answer
        for each in pybroker_cluster.brokers.values():
            each.wait_for_image(partial(knows, answer.name))


def knows(topic: str, image: ClusterImage) -> bool:
    return topic in image.topics_by_name


def test_paused_broker_does_nothing_is_fenced_and_rejoins_when_it_goes_on(pybroker_cluster: Cluster) -> None:
    pybroker_cluster.create_topic("t", partitions=6)
    victim = other(pybroker_cluster)
    node = pybroker_cluster.brokers[victim]
    pybroker_cluster.pause(victim)
    with socket.create_connection((node.host, node.port), 30):  # the kernel's doing
        wait_until(lambda: is_fenced(pybroker_cluster, victim), "it is fenced")
    pybroker_cluster.resume(victim)
    wait_until(lambda: not is_fenced(pybroker_cluster, victim), "it is back")
    assert sorted(kafka_python(pybroker_cluster.bootstrap)) == VALUES


def test_clean_stop_is_one_also_of_a_broker_that_has_registered_anew_since_it_started(
    pybroker_cluster: Cluster,
) -> None:
    victim = other(pybroker_cluster)
    watcher = next(node for node in pybroker_cluster.brokers.values() if node.broker_id != victim)

    def registered() -> BrokerRegistration:
        return watcher.image().brokers[victim]

    began = registered().epoch
    pybroker_cluster.pause(victim)
    wait_until(lambda: registered().fenced, "it is fenced")
    pybroker_cluster.resume(victim)
    wait_until(lambda: not registered().fenced, "it is back")
    pybroker_cluster.stop_broker(victim)
    mark = pybroker_cluster.data_dir / f"broker-{victim}" / ".kafka_cleanshutdown"
    assert json.loads(mark.read_text())["brokerEpoch"] == registered().epoch > began
    pybroker_cluster.restart(victim)


def test_paused_controller_is_deposed(pybroker_cluster: Cluster) -> None:
    first = pybroker_cluster.controller_id
    assert first is not None
    pybroker_cluster.pause(first)
    wait_until(lambda: pybroker_cluster.controller_id is not None, "another controller")
    pybroker_cluster.resume(first)
    wait_until(lambda: not pybroker_cluster.brokers[first].is_controller(), "the first knows it")
    pybroker_cluster.create_topic("t")


def test_no_task_of_a_killed_broker_outlives_its_loop(pybroker_cluster: Cluster) -> None:
    ended: Future[None] = Future()
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.set_result(None)

    life = pybroker_cluster.brokers[1]._life
    assert life is not None
    life.call_soon(lambda: tasks.append(asyncio.ensure_future(work())))
    pybroker_cluster.kill(1)
    assert ended.done()


def test_paused_broker_may_be_killed(pybroker_cluster: Cluster) -> None:
    victim = other(pybroker_cluster)
    pybroker_cluster.pause(victim)
    pybroker_cluster.kill(victim)
    assert not pybroker_cluster.brokers[victim].is_running
    pybroker_cluster.restart(victim)


@pytest.mark.parametrize("fault", [None, Cluster.kill, Cluster.pause])
def test_nothing_is_left_after_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Cluster, int], None] | None
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    new_threads = NewThreads()
    with Cluster(3) as cluster:
        addresses = [(node.host, node.port) for node in cluster.brokers.values()]
        descriptors = open_below(tmp_path)
        cluster.create_topic("t", partitions=6)
        kafka_python(cluster.bootstrap)
        assert descriptors
        if fault is not None:
            fault(cluster, 2)
    assert not list(tmp_path.iterdir())
    assert not new_threads()
    assert not open_below(tmp_path)
    for address in addresses:
        with socket.socket() as probe:
            assert probe.connect_ex(address) != 0


def open_below(path: Path) -> list[str]:
    """Files below the path that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith(f"{path}/"):
            found.append(target)
    return found


def test_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    new_threads = NewThreads()
    with pytest.raises(ConfigError):
        Cluster(3, {"num.partition": 3}).start()
    assert not list(tmp_path.iterdir())
    assert not new_threads()


def test_data_and_ids_survive_in_a_given_directory(tmp_path: Path) -> None:
    with Cluster(2, data_dir=tmp_path / "data") as cluster:
        cluster.create_topic("t", partitions=6)
        kafka_python(cluster.bootstrap)
    with Cluster(2, data_dir=tmp_path / "data") as cluster:
        consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        assert sorted(next(consumer).value for _ in range(COUNT)) == VALUES
        consumer.close()


def test_cluster_is_entered_on_a_loop(tmp_path: Path) -> None:
    async def scenario() -> Any:
        async with Cluster(3) as cluster:
            producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
            sent = producer.send("t", b"value").get(timeout=PATIENCE_S)  # blocks this loop
            producer.close()
            return sent.offset

    assert asyncio.run(scenario()) == 0


def test_cluster_of_one_is_a_cluster() -> None:
    with Cluster(1) as cluster:
        assert cluster.controller_id == 1
        cluster.create_topic("t")
        assert cluster.leader("t") == 1
        with pytest.raises(ValueError, match="already exists"):
            cluster.create_topic("t")
        with pytest.raises(KeyError):
            cluster.leader("unknown")
        cluster.delete_topic("t")


def test_brokers_run_on_the_standard_loop_too() -> None:
    with Cluster(3, loop_factory=asyncio.SelectorEventLoop) as cluster:
        cluster.create_topic("t", partitions=6)
        assert sorted(kafka_python(cluster.bootstrap)) == VALUES
        cluster.kill(other(cluster))


def test_each_broker_leaves_the_list_as_it_stops_and_librdkafka_loses_nothing() -> None:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=6, replication_factor=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        def produce() -> None:
            for index in range(6):
                producer.produce("t", b"v", partition=index, callback=delivered)
            assert producer.flush(PATIENCE_S) == 0

        for broker_id, node in cluster.brokers.items():
            produce()
            cluster.stop_broker(broker_id)
            wait_until(lambda broker_id=broker_id: is_fenced(cluster, broker_id), "it has left")  # type: ignore[misc]
            for each in cluster.brokers.values():
                if each is not node:
                    with WireClient((each.host, each.port)) as client:
                        listed = {broker.node_id for broker in client.ask(MetadataRequest(topics=[]), 9).brokers}
                    assert listed == set(cluster.brokers) - {broker_id}
            produce()
            cluster.restart(broker_id)
        assert not failed

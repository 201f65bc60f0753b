"""Three brokers, each on a small disk of its own that is really full: those with room go on, and all come back."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from harness.batches import batch
from harness.waiting import PATIENCE_S, wait_until

from pybroker.cluster.image.cluster_image import ClusterImage, PartitionImage
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.testing import Cluster
from pybroker_protocol.errors import ErrorCode
from tests.broker.test_start_on_a_full_disk import fill_up
from tests.broker.wire_client import WireClient
from tests.simulation.model import read_directory

DISK = b"size=40m"
PARTITIONS = 6
IDS = (1, 2, 3)
DETACH = 2


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a cluster whose brokers have a small file system each; skips where none can be mounted."""
    libc = ctypes.CDLL(None, use_errno=True)
    mounted: list[Path] = []
    try:
        for broker_id in IDS:
            path = tmp_path / f"broker-{broker_id}"
            path.mkdir()
            if not hasattr(libc, "umount2") or libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, DISK):
                pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
            mounted.append(path)
        yield tmp_path
    finally:
        for path in mounted:
            libc.umount2(os.fsencode(path), DETACH)


def ballast(disks: Path, broker_id: int) -> Path:
    return disks / f"broker-{broker_id}" / "ballast"


def image_of(cluster: Cluster, broker_id: int = 1) -> ClusterImage:
    return cluster.brokers[broker_id].image()


def partitions(cluster: Cluster) -> list[PartitionImage]:
    """Those of all topics, also of the coordinators'."""
    return [partition for topic in image_of(cluster).topics_by_name.values() for partition in topic.partitions]


def is_out(cluster: Cluster, broker_id: int) -> bool:
    return all(each.leader != broker_id and broker_id not in each.isr for each in partitions(cluster))


def all_in_sync(cluster: Cluster) -> bool:
    return all(set(each.isr) == set(each.replicas) for each in partitions(cluster))


def all_are_full(cluster: Cluster) -> bool:
    return all(broker.full_dirs for broker in image_of(cluster).brokers.values())


class Writing:
    """An idempotent producer of librdkafka that writes numbers, from the first on, until told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 10}
        )
        self.acknowledged: list[int] = []
        self.failed: list[KafkaError] = []
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged.append(int(message.value() or b""))

    def _run(self) -> None:
        for number in count():
            if self._stop.is_set():
                break
            self._producer.produce(
                "t",
                b"%d" % number,
                bytes(500),
                partition=number % PARTITIONS,
                on_delivery=self._delivered,
            )
            self._producer.poll(0.002)
        assert self._producer.flush(PATIENCE_S) == 0

    def goes_on(self) -> None:
        """Return once as many as are in flight, and more, are acknowledged from now on."""
        enough = len(self.acknowledged) + 300
        wait_until(lambda: len(self.acknowledged) > enough, "producing goes on", PATIENCE_S)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(90)


def test_the_others_go_on_while_a_disk_is_full_and_the_broker_comes_back_by_itself(disks: Path) -> None:
    with Cluster(data_dir=disks, settings={"min.insync.replicas": 2}) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS, replication_factor=3)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        coordinator = next(each.leader for each in image_of(cluster).topics_by_name[GROUPS.topic].partitions)
        writing = Writing(cluster.bootstrap)
        try:
            writing.goes_on()
            fill_up(ballast(disks, coordinator))
            wait_until(lambda: is_out(cluster, coordinator), "others lead and are in sync", PATIENCE_S)
            writing.goes_on()
            consumer.commit(offsets=[TopicPartition("t", 0, 2)], asynchronous=False)
            cluster.create_topic("u", partitions=3, replication_factor=3)
            wait_until(lambda: is_out(cluster, coordinator), "others lead and are in sync", PATIENCE_S)
            ballast(disks, coordinator).unlink()
            wait_until(lambda: all_in_sync(cluster), "all are in sync again", PATIENCE_S)
            writing.goes_on()
        finally:
            writing.end()
            consumer.close()
        assert writing.failed == []
        wait_until(lambda: all_in_sync(cluster), "all are in sync again", PATIENCE_S)
    for broker_id in IDS:
        batches = [
            each for index in range(PARTITIONS) for each in read_directory(disks / f"broker-{broker_id}/t-{index}")
        ]
        values = sorted(int(value) for each in batches for _, _, value in each.records())
        assert values == list(range(len(values))) == sorted(writing.acknowledged), f"broker {broker_id}: lost or twice"
        assert {each.producer_epoch for each in batches} == {0}


def test_where_all_disks_are_full_writes_are_refused_reads_go_on_and_nothing_is_lost(disks: Path) -> None:
    with Cluster(data_dir=disks, settings={"min.insync.replicas": 1}) as cluster:
        cluster.create_topic("t", replication_factor=3)

        def produce(size: int) -> int:
            node = cluster.brokers[cluster.leader("t") or 1]
            with WireClient((node.host, node.port)) as client:
                return int(client.produce("t", batch(bytes(size)), acks=-1).error_code)

        assert produce(10) == 0
        for broker_id in IDS:
            fill_up(ballast(disks, broker_id))
        large = 200_000
        wait_until(lambda: produce(large) and all_are_full(cluster), "each of them has refused one", PATIENCE_S)
        assert produce(large) == ErrorCode.KAFKA_STORAGE_ERROR
        node = cluster.brokers[cluster.leader("t") or 1]
        with WireClient((node.host, node.port)) as client:
            answer = client.fetch("t", 0).responses[0].partitions[0]
            assert (answer.error_code, answer.high_watermark) == (0, 1)
        last = cluster.leader("t") or 1
        first = next(broker_id for broker_id in IDS if broker_id != last)
        ballast(disks, first).unlink()
        wait_until(lambda: cluster.leader("t") == first, "the first that has room leads", PATIENCE_S)
        # Another broker may have told who leads before the leader has heard of it.
        wait_until(lambda: produce(large) == 0, "the leader takes a write", PATIENCE_S)
        for broker_id in IDS:
            ballast(disks, broker_id).unlink(missing_ok=True)
        wait_until(lambda: all_in_sync(cluster), "all are in sync again", PATIENCE_S)
        assert produce(large) == 0
        restarted = next(broker_id for broker_id in IDS if broker_id != cluster.leader("t"))
        cluster.stop_broker(restarted)
        fill_up(ballast(disks, restarted))
        cluster.restart(restarted)
        wait_until(lambda: is_out(cluster, restarted), "others lead and are in sync", PATIENCE_S)
        assert produce(large) == 0
        ballast(disks, restarted).unlink()
        wait_until(lambda: all_in_sync(cluster), "all are in sync again", PATIENCE_S)
    contents = [[each.data for each in read_directory(disks / f"broker-{broker_id}/t-0")] for broker_id in IDS]
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) == 4

"""Real clusters with a link between them, of which every process is killed once under load, and here once more during
the promotion.

What the source has acknowledged below the mirrored end is here, at the same offset, byte for byte.  A group that moves
over after the promotion reads each record once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.apache_cluster import ApacheCluster
from harness.apache_kafka import ApacheKafka, missing_requirement
from harness.broker_process import BrokerProcess
from harness.pybroker_cluster import PybrokerCluster
from harness.waiting import PATIENCE_S, wait_until

from tests.cli.command import CommandLine
from tests.links.killed_load import Load, Place
from tests.links.linked import stored_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC, PARTITIONS = "orders", 3
GROUP = "billing"
# Acknowledged between two kills.
STEP = 100


class Side:
    """The brokers of a cluster."""

    def __init__(self, brokers: list[Any]) -> None:
        self.brokers: list[BrokerProcess] = brokers

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def ends(self) -> dict[int, int]:
        """Where what consumers may read ends, by partitions."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"})
        places = (TopicPartition(TOPIC, index) for index in range(PARTITIONS))
        found = {each.partition: consumer.get_watermark_offsets(each, PATIENCE_S)[1] for each in places}
        consumer.close()
        return found

    def batches(self, index: int) -> list[dict[int, bytes]]:
        """Those in the files of each replica, by base offsets."""
        directories = [broker.data_directory / f"{TOPIC}-{index}" for broker in self.brokers]
        return [stored_in(directory) for directory in directories if directory.exists()]


OF_APACHE = ("apache", "three of apache")


@pytest.fixture(params=["pybroker", *(pytest.param(each, marks=pytest.mark.jvm) for each in OF_APACHE)])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Side]:
    with ExitStack() as stack:
        if request.param == "pybroker":
            side = Side(stack.enter_context(PybrokerCluster(tmp_path / "source")).brokers)
        else:
            if (reason := missing_requirement()) is not None:
                pytest.skip(reason)
            path = tmp_path / "source"
            if request.param == "apache":
                side = Side([stack.enter_context(ApacheKafka(path))])
            else:
                side = Side(list(stack.enter_context(ApacheCluster(path)).brokers))
        copies = len(side.brokers)
        wanted = NewTopic(TOPIC, PARTITIONS, copies, config={"min.insync.replicas": str((copies + 1) // 2)})
        admin = AdminClient({"bootstrap.servers": side.bootstrap})
        admin.create_topics([wanted])[TOPIC].result(PATIENCE_S)
        yield side


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Side]:
    with PybrokerCluster(tmp_path / "here", {"min.insync.replicas": "2"}) as cluster:
        yield Side(cluster.brokers)


def read(
    side: Side, is_done: Callable[[list[tuple[Place, bytes]]], bool], **settings: Any
) -> list[tuple[Place, bytes]]:
    """What a member of the group reads of committed records until it is done; it commits all of that."""
    consumer = Consumer(
        {
            "bootstrap.servers": side.bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **settings,
        }
    )
    consumer.subscribe([TOPIC])
    found: list[tuple[Place, bytes]] = []
    while not is_done(found):
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            found.append((Place(partition, offset), message.value() or b""))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_everything_is_mirrored_byte_for_byte_though_every_process_is_killed(source: Side, here: Side) -> None:
    links = CommandLine(here.bootstrap)
    often = ("--set", "refresh.interval.ms=200")
    links.ok("links", "create", "west", "--source", source.bootstrap, "-t", TOPIC, "-g", GROUP, "-r", "3", *often)
    with Load(source.bootstrap, TOPIC) as load:
        wait_until(lambda: load.count >= STEP, "a load")
        before = read(source, lambda found: len(found) >= STEP)
        for broker in (*source.brokers, *here.brokers):
            broker.kill()
            goal = load.count + (STEP if len(source.brokers) > 1 or broker in here.brokers else 0)
            wait_until(partial(has_come_to, load, goal), "a load that goes on without a broker")
            broker.start()
            goal = load.count + STEP
            wait_until(partial(has_come_to, load, goal), "a load that goes on")
    wait_until(lambda: here.ends() == source.ends(), "all to be mirrored")
    wait_until(lambda: all(is_same(source, here, index) for index in range(PARTITIONS)), "the same bytes on all")
    check_acknowledged(here, load)
    before += read(source, lambda found: len(found) >= STEP)
    with ThreadPoolExecutor() as pool:
        promotion = pool.submit(links.ok, "links", "promote", "west", TOPIC)
        for broker in here.brokers:
            broker.kill()
            broker.start()
        promotion.result()
    check_group(source, here, load, before)


def has_come_to(load: Load, goal: int) -> bool:
    return load.count >= goal


def is_same(source: Side, here: Side, index: int) -> bool:
    """Whether each replica on both sides has the same batches."""
    first, *others = [*source.batches(index), *here.batches(index)]
    return all(each == first for each in others)


def check_acknowledged(here: Side, load: Load) -> None:
    """Each acknowledged record is here where it was acknowledged."""
    consumer = Consumer({"bootstrap.servers": here.bootstrap, "group.id": "all", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    missing, unplaced = dict(load.acknowledged), set(load.unplaced)
    while missing or unplaced:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"records are missing, as {[*missing.items(), *unplaced][0]}"
        assert message.error() is None, message.error()
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        expected = missing.pop(Place(partition, offset), None)
        assert expected in (None, message.value())
        unplaced.discard(message.value() or b"")
    consumer.close()


def check_group(source: Side, here: Side, load: Load, before: list[tuple[Place, bytes]]) -> None:
    """What the group has read there and reads here is each committed record, once."""
    wait_until(lambda: committed(here) == committed(source), "the group's offsets")
    read_before = {place for place, _ in before}
    left = {place for place in load.acknowledged if place not in read_before}
    unplaced = load.unplaced - {value for _, value in before}

    def is_all(found: list[tuple[Place, bytes]]) -> bool:
        return left <= {place for place, _ in found} and unplaced <= {value for _, value in found}

    after = read(here, is_all)
    counts = Counter(value for _, value in [*before, *after])
    assert not [value for value, count in counts.items() if count > 1]
    acknowledged = {*load.acknowledged.values(), *load.unplaced}
    assert acknowledged <= counts.keys()
    assert not load.aborted & counts.keys()
    assert counts.keys() <= acknowledged | load.unknown


def committed(side: Side) -> dict[int, int]:
    """The group's offsets by partitions."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    return {each.partition: each.offset for each in future.result(PATIENCE_S).topic_partitions if each.offset >= 0}

"""Brokers whose ZooKeeper answers slowly, loses their sessions, or has forgotten everything."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until
from harness.zookeeper import ZooKeeper

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker_protocol.record_codec import decode_records

from .running_cluster import IDS, SESSION_TIMEOUT_MS, TOPIC, Partition, Processes
from .slow_link import SlowLink

pytestmark = [pytest.mark.jvm(needs="zookeeper")]

AWAY_S = 60.0
PAUSE_S = 0.1  # between two records, while the other processor runs tests, too
DELAY_S = 0.25  # of each direction
SLOW_SESSION_TIMEOUT_MS = 6_000
SLOW_SESSIONS = {"pybroker.metadata.session.timeout.ms": str(SLOW_SESSION_TIMEOUT_MS)}
SLOW_S = 2 * SLOW_SESSION_TIMEOUT_MS / 1000
WIPED = re.compile(
    r"ERROR pybroker.cluster.zookeeper_store: the metadata store \S+ cannot be followed: "
    r"the metadata store \S+ ends at revision 0, where this broker has seen \d+: it was wiped\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the server that the test maltreats."""
    return tmp_path / "zookeeper"


@pytest.fixture
def zookeeper(folder: Path) -> Iterator[ZooKeeper]:
    with ZooKeeper(folder) as server:
        yield server


@pytest.fixture
def partition(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Partition]:
    with Processes(tmp_path, f"zookeeper://{zookeeper.hosts}/scenario") as processes:
        yield Partition(processes)


@pytest.mark.parametrize("sessions", [0.5, 2.5], ids=["shorter_than_a_session", "longer_than_two"])
def test_zookeeper_that_stands_still_stops_no_client_and_loses_nothing(
    partition: Partition, zookeeper: ZooKeeper, sessions: float
) -> None:
    leader = partition.leader
    written = partition.write_each_way("before")
    zookeeper.pause()
    ends = time.monotonic() + sessions * SESSION_TIMEOUT_MS / 1000
    while time.monotonic() < ends:
        value = b"%d while it stands still" % len(written)
        assert partition.write(value, -1, at=leader) == 0
        written.append(value)
    zookeeper.resume()
    partition.wait_for(isr=IDS)
    written += partition.write_each_way("after")
    partition.wait_for_values(written)


def test_zookeeper_that_was_killed_and_comes_back_is_followed_on(partition: Partition, zookeeper: ZooKeeper) -> None:
    leader = partition.leader
    zookeeper.kill()
    assert partition.write(b"while it is away", -1, at=leader) == 0
    zookeeper.start()
    partition.wait_for(isr=IDS)
    partition.cluster.kill(leader)
    partition.wait_for(isr=set(IDS) - {leader})
    assert partition.write(b"after the next election", -1) == 0
    partition.wait_for_values([b"while it is away", b"after the next election"])


def test_broker_whose_zookeeper_was_wiped_refuses_to_start_and_keeps_its_records(
    partition: Partition, zookeeper: ZooKeeper, folder: Path, tmp_path: Path
) -> None:
    assert partition.write(b"kept", -1) == 0
    for broker_id in IDS:
        partition.cluster.stop(broker_id)
    zookeeper.kill()
    shutil.rmtree(folder / "0")
    zookeeper.start()
    settings = {"node.id": "1", "pybroker.metadata": f"zookeeper://{zookeeper.hosts}/scenario"}
    broker = PybrokerProcess(tmp_path / "broker-1", settings, ("--dev",))
    with pytest.raises(RuntimeError, match="exited with 1"):
        broker.start()
    assert "is new and knows none of them" in broker.log_path.read_text()
    (log,) = (tmp_path / "broker-1" / "data").glob("t-0/*.log")
    assert b"kept" in log.read_bytes()


def logs(folder: Path) -> dict[int, str]:
    """What each broker has logged up to now."""
    return {broker_id: (folder / f"broker-{broker_id}" / "broker.log").read_text() for broker_id in IDS}


def new_topic(name: str, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    """Two partitions, with a replica on each broker."""
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=3, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)


def create(partition: Partition, broker_id: int, name: str) -> int:
    """Ask a broker for the topic; the error code."""
    with partition.at(broker_id) as client:
        return int(client.ask(new_topic(name), 5).topics[0].error_code)


def told(partition: Partition, name: str) -> set[tuple[int, ...] | None]:
    """How many replicas in sync each partition has, as each broker tells; None where it knows no such topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    found = set()
    for broker_id in IDS:
        with partition.at(broker_id) as client:
            (topic,) = client.ask(request, 9).topics
        in_sync = tuple(len(each.isr_nodes) for each in topic.partitions)
        found.add(None if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else in_sync)
    return found


def has_all_replicas(partition: Partition, name: str) -> bool:
    """Whether all brokers know the topic, with all replicas in sync."""
    return told(partition, name) == {(3, 3)}


def directories(folder: Path, name: str) -> set[str]:
    """Of a topic, at all brokers."""
    return {path.name for path in folder.glob(f"broker-*/data/{name}-*")}


def fetched(partition: Partition, leader: int, offset: int) -> bytes:
    """The record at an offset, as the leader gives it once the followers have it."""
    with partition.at(leader) as client:
        row = client.fetch(TOPIC, offset, replica_id=-1, max_wait_ms=10_000).responses[0].partitions[0]
    assert row.error_code == 0, row
    (record,) = decode_records(bytes(row.records or b""))
    return bytes(record.value or b"")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_zookeeper_away_for_a_minute_stops_no_record_and_leaves_no_topic_half_made(
    partition: Partition, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    leader = partition.leader
    written = partition.write_each_way("before")
    zookeeper.kill()
    ends = time.monotonic() + AWAY_S
    patience_ms = {1: 1_000, 2: 10_000, 3: 120_000}  # the last one's is over when the store is back
    with ExitStack() as connections:
        askers = {broker_id: connections.enter_context(partition.at(broker_id)) for broker_id in IDS}
        for broker_id, asker in askers.items():
            asker.send(new_topic(f"asked-{broker_id}", patience_ms[broker_id]), 5)
        while time.monotonic() < ends:
            for acks in (1, -1):
                written.append(b"%d with acks %d" % (len(written), acks))
                assert partition.write(written[-1], acks, at=leader) == 0
            assert fetched(partition, leader, len(written) - 1) == written[-1]
            time.sleep(PAUSE_S)
        zookeeper.start()
        answers = {broker_id: asker.receive().topics[0].error_code for broker_id, asker in askers.items()}
    partition.wait_for(isr=IDS)
    written += partition.write_each_way("after")
    partition.wait_for_values(written)
    # Whose time was over while the store was away may be done all the same, as in Kafka: wholly, or not at all.
    assert {answers[1], answers[2]} == {ErrorCode.REQUEST_TIMED_OUT}
    assert answers[3] in {0, ErrorCode.REQUEST_TIMED_OUT}
    for broker_id, answer in answers.items():
        name = f"asked-{broker_id}"
        if answer:
            wait_until(lambda name=name: told(partition, name) in ({None}, {(3, 3)}), f"all or nothing of {name}")  # type: ignore[misc]
            is_there = told(partition, name) == {(3, 3)}
            assert is_there or not directories(tmp_path, name)
            assert create(partition, broker_id, name) == (ErrorCode.TOPIC_ALREADY_EXISTS if is_there else 0)
        wait_until(partial(has_all_replicas, partition, name), f"{name} with all its replicas in sync")


@pytest.mark.slow
def test_zookeeper_that_answers_slowly_stops_nothing_and_has_nobody_fenced(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with (
        SlowLink(zookeeper.hosts) as link,
        Processes(tmp_path, f"zookeeper://{link.hosts}/scenario", SLOW_SESSIONS) as processes,
    ):
        partition = Partition(processes)
        link.delay_s = DELAY_S
        leader, written, made = partition.leader, list[bytes](), 0
        ends = time.monotonic() + SLOW_S
        while time.monotonic() < ends:
            made += 1
            assert create(partition, IDS[made % 3], f"slow-{made}") == 0
            written += partition.write_each_way(f"after {made} topics")
        for number in range(1, made + 1):
            wait_until(partial(has_all_replicas, partition, f"slow-{number}"), f"slow-{number} with all replicas")
        partition.wait_for(leader=leader, isr=IDS)
        partition.wait_for_values(written)
    for text in logs(tmp_path).values():
        assert "fencing" not in text
        assert "has expired" not in text
        assert "is no longer the active controller" not in text


def test_zookeeper_that_is_wiped_under_running_brokers_is_refused_and_its_data_followed_on_when_it_is_back(
    partition: Partition, zookeeper: ZooKeeper, folder: Path, tmp_path: Path
) -> None:
    leader = partition.leader
    written = partition.write_each_way("before")
    zookeeper.kill()
    (folder / "0").rename(folder / "aside")
    zookeeper.start()
    wait_until(
        lambda: all(len(WIPED.findall(text)) == 1 for text in logs(tmp_path).values()), "each broker to tell it once"
    )
    for acks in (1, -1):
        written.append(b"%d while it is wiped, acks %d" % (len(written), acks))
        assert partition.write(written[-1], acks, at=leader) == 0
    partition.wait_for(leader=leader, isr=IDS)
    partition.wait_for_values(written)
    with partition.at(leader) as client:
        assert client.ask(new_topic("refused", 1_000), 5).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    zookeeper.kill()
    shutil.rmtree(folder / "0")
    (folder / "aside").rename(folder / "0")
    zookeeper.start()
    wait_until(lambda: create(partition, leader, "taken") == 0, "the topic can be made")
    partition.wait_for(isr=IDS)
    assert told(partition, "refused") == {None}
    written += partition.write_each_way("after")
    partition.wait_for_values(written)

"""Brokers whose ZooKeeper answers slowly, loses their sessions, or has forgotten everything."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until
from harness.zookeeper import ZooKeeper

from pybroker_protocol.errors import ErrorCode

from .running_cluster import IDS, SESSION_TIMEOUT_MS, Partition, Processes
from .slow_link import SlowLink
from .store_away import create, has_all_replicas, new_topic, serve_while_the_store_is_away, told

pytestmark = [pytest.mark.jvm(needs="zookeeper")]

DELAY_S = 0.25  # of each direction
SLOW_SESSION_TIMEOUT_MS = 6_000
SLOW_SESSIONS = {"pybroker.metadata.session.timeout.ms": str(SLOW_SESSION_TIMEOUT_MS)}
SLOW_S = 2 * SLOW_SESSION_TIMEOUT_MS / 1000
WIPED = re.compile(
    r"ERROR pybroker.cluster.store.zookeeper.zookeeper_store: the metadata store \S+ cannot be followed: "
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


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_zookeeper_away_for_a_minute_stops_no_record_and_leaves_no_topic_half_made(
    partition: Partition, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    serve_while_the_store_is_away(partition, tmp_path, zookeeper.kill, zookeeper.start)


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

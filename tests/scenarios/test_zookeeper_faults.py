"""Brokers whose ZooKeeper answers slowly, loses their sessions, or has forgotten everything."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.pybroker_process import PybrokerProcess
from harness.zookeeper import ZooKeeper

from .running_cluster import IDS, SESSION_TIMEOUT_MS, Partition, Processes

pytestmark = [pytest.mark.jvm(needs="zookeeper")]


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

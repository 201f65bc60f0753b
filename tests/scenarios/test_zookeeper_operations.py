"""What operators do to processes that share a ZooKeeper, while clients of three libraries are at work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.pybroker_cluster import PybrokerCluster
from harness.waiting import PATIENCE_S, wait_until
from harness.zookeeper import ZooKeeper

from tests.cli.command import CommandLine

from .load import GAP_MAX_S, PARTITIONS, TOPIC, Load
from .operating import described, grow_and_retire_the_first

LARGE = "large"

pytestmark = [
    pytest.mark.jvm(needs="zookeeper"),
    pytest.mark.timeout(300),
    # kafka-python forgets sockets that could not be connected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PybrokerCluster]:
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        PybrokerCluster(tmp_path / "brokers", metadata=f"zookeeper://{zookeeper.hosts}/operated") as brokers,
    ):
        yield brokers


@pytest.fixture
def load(cluster: PybrokerCluster) -> Iterator[Load]:
    made = ("topics", "create", TOPIC, "--partitions", str(PARTITIONS), "--replicas", "3")
    CommandLine(cluster.bootstrap).ok(*made)
    with Load(",".join(cluster.bootstraps)) as running:
        yield running


def test_processes_over_zookeeper_get_a_fourth_and_lose_the_first_under_load(
    cluster: PybrokerCluster, load: Load
) -> None:
    cli = CommandLine(",".join(cluster.bootstraps))
    grow_and_retire_the_first(cli, load, cluster.add_broker(), lambda: cluster.stop_one(0))


def test_moved_replicas_arrive_though_the_controller_is_killed_on_the_way(cluster: PybrokerCluster, load: Load) -> None:
    cli = CommandLine(",".join(cluster.bootstraps))
    cli.ok("topics", "create", LARGE, "--partitions", "1", "--replicas", "3")
    cli.ok("produce", LARGE, stdin=(b"x" * 1_000 + b"\n") * 4_000)
    fourth = cluster.add_broker()
    (controller,) = (each["id"] for each in cli.json("brokers", "list") if each["controller"])
    move = ("partitions", "reassign", "--all", "--brokers", f"2,3,{fourth}")
    cli.ok(*move, "--throttle", "1")
    cluster.kill(controller - 1)
    assert cli.json("partitions", "reassignments"), "more than a fetch is to be copied"
    load.wait_for_progress()
    cluster.start_one(controller - 1)
    cli.ok(*move, "--throttle", str(1 << 30), "--wait")
    for topic in (TOPIC, LARGE):
        assert all(sorted(each["replicas"]) == [2, 3, fourth] for each in described(cli, topic))
    load.wait_for_progress()


def test_processes_over_zookeeper_are_restarted_one_by_one_under_load(cluster: PybrokerCluster, load: Load) -> None:
    cli = CommandLine(",".join(cluster.bootstraps))
    for number in range(len(cluster.brokers)):
        cluster.stop_one(number)
        cluster.start_one(number)
        wait_until(lambda: all(is_whole_on(each, {1, 2, 3}) for each in described(cli)), "all are in sync", PATIENCE_S)
        load.wait_for_progress()
    assert max(load.longest_gap_s().values()) < GAP_MAX_S


def is_whole_on(partition: dict[str, Any], broker_ids: set[int]) -> bool:
    """Whether its replicas are on these brokers, and all in sync."""
    return set(partition["isr"]) == broker_ids == set(partition["replicas"])

"""What operators do to a cluster in use: it grows, a broker retires, all are restarted one by one; clients go on."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from harness.waiting import wait_until

from pybroker.testing import Cluster
from tests.cli.command import CommandLine

from .load import PARTITIONS, PATIENCE_S, TOPIC, Load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # kafka-python forgets sockets that could not be connected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def load(kafka_cluster: Cluster) -> Iterator[Load]:
    kafka_cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
    with Load(kafka_cluster.bootstrap) as running:
        yield running
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()


def test_cluster_grows_and_a_broker_retires_under_load(kafka_cluster: Cluster, load: Load) -> None:
    cli = CommandLine(kafka_cluster.bootstrap)
    fourth = kafka_cluster.add_broker()
    cli.ok("partitions", "reassign", "--all", "--wait")
    cli.ok("partitions", "elect", "--all")
    assert any(each["leader"] == fourth for each in described(cli))
    load.wait_for_progress()
    cli.ok("partitions", "reassign", "--all", "--brokers", f"2,3,{fourth}", "--wait")
    assert all(sorted(each["replicas"]) == [2, 3, fourth] for each in described(cli))
    load.wait_for_progress()
    kafka_cluster.stop_broker(1)
    cli.ok("brokers", "unregister", "1")
    assert [each["id"] for each in cli.json("brokers", "list")] == [2, 3, fourth]


def test_all_brokers_are_restarted_one_by_one_under_load(kafka_cluster: Cluster, load: Load) -> None:
    for broker_id in list(kafka_cluster.brokers):
        kafka_cluster.restart(broker_id)
        wait_until(lambda: all_are_in_sync(kafka_cluster), "all are in sync again")
        load.wait_for_progress()
    assert max(load.longest_gap_s().values()) < PATIENCE_S


def all_are_in_sync(cluster: Cluster) -> bool:
    return all(
        set(partition.isr) == set(partition.replicas) and partition.leader >= 0
        for node in cluster.brokers.values()
        for topic in node.image().topics_by_name.values()
        for partition in topic.partitions
    )


def described(cli: CommandLine) -> list[dict[str, Any]]:
    (topic,) = cli.json("topics", "describe", TOPIC)
    partitions: list[dict[str, Any]] = topic["partitions"]
    return partitions

"""Kafka's own tool moves partitions of three brokers under a throttle, and takes the throttle away at the end."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from harness.apache_cluster import ApacheCluster
from harness.apache_kafka import REASSIGN_PARTITIONS_COMMAND, ApacheKafka, missing_requirement, run_kafka_tool
from harness.broker_cluster import BrokerCluster
from harness.pybroker_cluster import PybrokerCluster
from harness.pybroker_process import PybrokerProcess
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from conformance.broker_under_test import MAKE

TOPIC = "moved"
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(2)]
MEGABYTE = 1_000_000
SIZE, RATE = 20 * MEGABYTE, 4 * MEGABYTE
TOOL_TIMEOUT_S = 90

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(missing_requirement() is not None, reason="Apache Kafka is not there"),
]

Cluster = BrokerCluster[PybrokerProcess] | BrokerCluster[ApacheKafka]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers of the run's make."""
    make = ApacheCluster if os.environ.get(MAKE) == "apache" else PybrokerCluster
    with make(tmp_path / "cluster") as started:
        yield started


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=cluster.bootstraps)
    yield made
    made.close()


class SmallProducer:
    """Sends a record of a few bytes again and again, and knows how long the slowest acknowledgement took."""

    def __init__(self, bootstraps: list[str]) -> None:
        self.slowest_s = 0.0
        self.acknowledged = 0
        self._ends = threading.Event()
        self._producer = KafkaProducer(bootstrap_servers=bootstraps, acks="all", linger_ms=0)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> SmallProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._producer.close()

    def _run(self) -> None:
        while not self._ends.wait(0.02):
            begin = time.monotonic()
            self._producer.send(TOPIC, b"small", partition=0).get(timeout=PATIENCE_S)
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
            self.acknowledged += 1


def fill(cluster: Cluster) -> None:
    with closing(KafkaProducer(bootstrap_servers=cluster.bootstraps, acks="all", batch_size=100_000)) as producer:
        for number in range(SIZE // 10_000):
            producer.send(TOPIC, os.urandom(10_000), partition=number % len(PARTITIONS))
        producer.flush()


def reassign(cluster: Cluster, plan: Path, *arguments: str) -> str:
    options = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan), *arguments)
    return run_kafka_tool(REASSIGN_PARTITIONS_COMMAND, *options, timeout_s=TOOL_TIMEOUT_S).stdout


def settings_with_throttles(admin: KafkaAdminClient) -> dict[str, str]:
    """Whatever is set of the topic, or a broker, that has to do with throttles."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, TOPIC)]
    resources += [ConfigResource(ConfigResourceType.BROKER, str(broker_id)) for broker_id in (1, 2, 3)]
    found: dict[str, str] = {}
    described: dict[str, Any] = admin.describe_configs(resources, config_filter="all")
    for of_type in described.values():
        for resource, settings in of_type.items():
            for name, entry in settings.items():
                if "replication.throttled" in name and entry["value"]:
                    found[f"{resource} {name}"] = entry["value"]
    return found


def test_a_move_is_held_to_its_throttle_while_producers_go_on(
    cluster: Cluster, admin: KafkaAdminClient, tmp_path: Path
) -> None:
    admin.create_topics({TOPIC: {"assignments": {index: [1] for index in range(2)}}})
    fill(cluster)
    plan = tmp_path / "plan.json"
    moves = [{"topic": TOPIC, "partition": index, "replicas": [2, 3]} for index in range(2)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    with SmallProducer(cluster.bootstraps) as producer:
        wait_until(lambda: producer.acknowledged > 10, "a producer that goes on")
        executing = threading.Thread(target=reassign, args=(cluster, plan, "--execute", "--throttle", str(RATE)))
        executing.start()
        wait_until(lambda: bool(admin.list_partition_reassignments()), "a move that has begun", TOOL_TIMEOUT_S)
        begin, acknowledged = time.monotonic(), producer.acknowledged
        throttles = settings_with_throttles(admin)
        wait_until(lambda: not admin.list_partition_reassignments(), "a move that has ended", TOOL_TIMEOUT_S)
        took_s = time.monotonic() - begin
        executing.join()
    assert throttles[f"{TOPIC} leader.replication.throttled.replicas"] == "0:1,1:1"
    assert throttles[f"{TOPIC} follower.replication.throttled.replicas"] == "0:2,0:3,1:2,1:3"
    for broker_id in (1, 2, 3):
        assert throttles[f"{broker_id} leader.replication.throttled.rate"] == str(RATE)
        assert throttles[f"{broker_id} follower.replication.throttled.rate"] == str(RATE)
    # The leader sends everything to two followers; the last fetch is let through before its time.
    at_rate_s = 2 * SIZE / RATE
    assert took_s > 0.7 * at_rate_s
    assert producer.slowest_s < at_rate_s / 2, "nobody waits for what is throttled"
    assert producer.acknowledged > acknowledged + 20
    verified = reassign(cluster, plan, "--verify")
    for index in range(2):
        assert f"Reassignment of partition {TOPIC}-{index} is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert f"Clearing topic-level throttles on topic {TOPIC}" in verified
    wait_until(lambda: not settings_with_throttles(admin), "throttles that are gone")
    with closing(KafkaConsumer(bootstrap_servers=cluster.bootstraps)) as consumer:
        ends = consumer.end_offsets(PARTITIONS)
    assert sum(ends.values()) == SIZE // 10_000 + producer.acknowledged

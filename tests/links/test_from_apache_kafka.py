"""A link whose source is Apache Kafka: what that has is here, at its offsets, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness.apache_kafka import JARS_DIRECTORY, KAFKA_VERSION, ApacheKafka, jars_of, older_sources
from harness.waiting import PATIENCE_S, wait_until

from pybroker.cluster.image.link_states import MIRRORING, PROMOTED
from pybroker.testing import Broker, Cluster
from tests.links.linked import (
    commit,
    committed,
    image_of,
    produce,
    produce_transactions,
    set_link,
    stored,
    stored_in,
    wait_for_state,
)

pytestmark = pytest.mark.jvm

PARTITIONS = 2
# Defaults of a source that are others than ours are carried over: from 3.6 until 4.0 records may be of any future.
OTHER_DEFAULTS = {"3.9.1": {"message.timestamp.after.max.ms": str(2**63 - 1)}}
# What Kafka 3.1 does not take for granted yet.
PROTOCOLS = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"}


def assert_mirrored(kafka: ApacheKafka, here: Broker | Cluster, topic: str) -> None:
    """Once everything is here."""
    for index in range(PARTITIONS):
        directory = kafka.data_directory / f"{topic}-{index}"
        wait_until(partial(is_mirrored, here, topic, index, directory), f"{topic}-{index}")


def is_mirrored(here: Broker | Cluster, topic: str, index: int, directory: Path) -> bool:
    return stored(here, topic, index) == stored_in(directory)


@pytest.fixture(params=[KAFKA_VERSION, *(pytest.param(version, marks=pytest.mark.slow) for version in older_sources())])
def version(request: pytest.FixtureRequest) -> str:
    """Of Apache Kafka."""
    return str(request.param)


@pytest.fixture
def kafka(version: str, tmp_path: Path) -> Iterator[ApacheKafka]:
    jars = JARS_DIRECTORY if version == KAFKA_VERSION else jars_of(version)
    if not jars.exists():
        pytest.skip("scripts/kafka-jars --sources has not run")
    with ApacheKafka(tmp_path / "kafka", PROTOCOLS, jars=jars) as running:
        yield running


@pytest.mark.parametrize("brokers", [1, 3])
def test_what_apache_kafka_has_is_mirrored_through_restarts_of_it_and_promoted(
    kafka: ApacheKafka, version: str, brokers: int
) -> None:
    with Cluster(brokers) as here:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        wanted = NewTopic("orders", PARTITIONS, config={"retention.ms": "123456789", "segment.bytes": "1048576"})
        admin.create_topics([wanted])["orders"].result(PATIENCE_S)
        for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
            produce(kafka, "orders", 100, compression_type=compression, enable_idempotence=compression != "none")
        set_link(
            here.bootstrap,
            bootstrap_servers=kafka.bootstrap,
            topics="orders",
            refresh_interval_ms="200",
            groups="billing",
            replication_factor=str(brokers),
        )
        wait_for_state(here, "orders", MIRRORING)
        assert_mirrored(kafka, here, "orders")
        produce_transactions(kafka, "orders", True, False, True)
        assert_mirrored(kafka, here, "orders")
        epochs = {each.leader_epoch for each in image_of(here).topics_by_name["orders"].partitions}
        commit(kafka, "billing", {0: 7, 1: 9})
        wait_until(lambda: committed(here, "billing") == {0: 7, 1: 9}, "the group's offsets")
        kafka.kill()
        kafka.start()
        produce(kafka, "orders", 100)
        assert_mirrored(kafka, here, "orders")
        assert {each.leader_epoch for each in image_of(here).topics_by_name["orders"].partitions} == epochs
        carried = {"retention.ms": "123456789", **OTHER_DEFAULTS.get(version, {})}
        assert image_of(here).overrides(2, "orders") == carried
        set_link(here.bootstrap, promote="orders")
        wait_for_state(here, "orders", PROMOTED)
        produce(here, "orders", 20)

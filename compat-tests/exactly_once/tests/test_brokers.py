"""The cluster of ``--brokers 3``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from harness.waiting import PATIENCE_S

from exactly_once import topics
from exactly_once.brokers import CLUSTER, make_brokers

NAMES = ("in", "__consumer_offsets", "__transaction_state")


@pytest.mark.slow
def test_three_brokers_have_three_replicas_of_every_topic_and_acknowledge_with_two(tmp_path: Path) -> None:
    with make_brokers(tmp_path, CLUSTER) as brokers:
        bootstrap = ",".join(brokers.bootstraps)
        topics.create(bootstrap, "in", 1)
        address: dict[str, Any] = {"bootstrap.servers": bootstrap}
        producer = Producer({**address, "transactional.id": "t"})
        producer.init_transactions(30)
        consumer = Consumer({**address, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("in", 0, 0)], asynchronous=False)
        consumer.close()
        admin = AdminClient(address)
        found = admin.list_topics(timeout=PATIENCE_S).topics
        assert all(len(each.replicas) == CLUSTER for name in NAMES for each in found[name].partitions.values())
        asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in NAMES])
        assert [each.result(PATIENCE_S)["min.insync.replicas"].value for each in asked.values()] == ["2"] * len(NAMES)

"""Administration with every client: topics, configs, records, groups, offsets, log dirs and the cluster."""

from __future__ import annotations

from harness.broker_probe import host_and_port
from harness.waiting import wait_until

from conformance.adapter import (
    Admin,
    Client,
    Committed,
    ConsumerOptions,
    Group,
    poll_until,
)
from conformance.broker_under_test import BrokerUnderTest
from conformance.conftest import EveryBroker, MakeTopic
from conformance.security import client_address

UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
UNKNOWN_MEMBER_ID = 25
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
GROUP_SUBSCRIBED_TO_TOPIC = 86
EVENT_MS = 1_700_000_000_000


def test_topics_are_created_listed_and_deleted(client: Client, name: str) -> None:
    admin = client.admin()
    assert admin.create_topic(name, 3) == 0
    wait_for_partitions(admin, name, 3)
    assert admin.create_topic(name) == TOPIC_ALREADY_EXISTS
    assert admin.delete_topic(name) == 0
    wait_for_partitions(admin, name, None)
    assert admin.delete_topic(name) == UNKNOWN_TOPIC_OR_PARTITION


def test_topic_that_is_only_validated_is_not_created(client: Client, name: str) -> None:
    admin = client.admin()
    assert admin.create_topic(name, 3, {"retention.ms": "1000000"}, validate_only=True) == 0
    assert name not in admin.topics()


def test_topic_is_created_with_its_configs(client: Client, name: str) -> None:
    admin = client.admin()
    assert admin.create_topic(name, 3, {"retention.ms": "1000000"}) == 0
    wait_for_partitions(admin, name, 3)
    assert admin.topic_configs(name)["retention.ms"] == "1000000"
    assert admin.delete_topic(name) == 0


def wait_for_partitions(admin: Admin, topic: str, expected: int | None) -> None:
    """Wait until the topic has so many; a broker may hear of it from its controller late."""
    wait_until(lambda: admin.topics().get(topic) == expected, f"{expected} partitions of {topic}")


def test_topic_with_a_bad_config_is_refused(client: Client, name: str) -> None:
    admin = client.admin()
    assert admin.create_topic(name, 1, {"retention.ms": "soon"}) == INVALID_CONFIG
    assert name not in admin.topics()


def test_partitions_are_added_but_never_removed(client: Client, fresh_topic: str, every_broker: EveryBroker) -> None:
    admin = client.admin()
    assert admin.create_partitions(fresh_topic, 4) == 0
    wait_for_partitions(admin, fresh_topic, 4)
    assert admin.create_partitions(fresh_topic, 2) == INVALID_PARTITIONS
    every_broker.wait_for_partitions(fresh_topic, 4)
    producer = client.producer()
    producer.send(fresh_topic, b"v", partition=3)
    assert [delivery.partition for delivery in producer.flush()] == [3]


def test_legacy_alteration_replaces_all_configs(client: Client, fresh_topic: str) -> None:
    admin = client.admin()
    default = admin.topic_configs(fresh_topic)["segment.bytes"]
    altered = {"segment.bytes": "2000000", "retention.ms": "5000000"}
    assert admin.alter_configs(fresh_topic, altered) == 0
    wait_for_configs(admin, fresh_topic, altered)
    altered = {"retention.ms": "6000000", "segment.bytes": default or ""}
    assert admin.alter_configs(fresh_topic, altered) == 0
    wait_for_configs(admin, fresh_topic, altered)
    assert admin.alter_configs(fresh_topic, {"retention.ms": "soon"}) == INVALID_CONFIG


def wait_for_configs(admin: Admin, topic: str, expected: dict[str, str]) -> None:
    """Wait until the topic has these among its own; a broker may hear of them from its controller late."""
    wait_until(lambda: expected.items() <= admin.topic_configs(topic).items(), f"{expected} of {topic}")


def test_incremental_alteration_changes_what_is_named(client: Client, fresh_topic: str) -> None:
    admin = client.admin()
    setting = [("SET", "retention.ms", "5000000"), ("APPEND", "cleanup.policy", "compact")]
    assert admin.incremental_alter_configs(fresh_topic, setting) == 0
    altered = {"retention.ms": "5000000", "cleanup.policy": "delete,compact"}
    wait_for_configs(admin, fresh_topic, altered)
    resetting = [("DELETE", "retention.ms", None), ("SUBTRACT", "cleanup.policy", "delete")]
    assert admin.incremental_alter_configs(fresh_topic, resetting) == 0
    altered = {"retention.ms": "604800000", "cleanup.policy": "compact"}
    wait_for_configs(admin, fresh_topic, altered)


def test_configs_take_effect_at_once(client: Client, fresh_topic: str, every_broker: EveryBroker) -> None:
    admin = client.admin()
    assert admin.alter_configs(fresh_topic, {"max.message.bytes": "1000"}) == 0
    every_broker.wait_for_config(fresh_topic, "max.message.bytes", "1000")
    producer = client.producer()
    producer.send(fresh_topic, bytes(2_000))
    assert [delivery.error for delivery in producer.flush()] == [MESSAGE_TOO_LARGE]


def test_records_are_deleted_up_to_an_offset(client: Client, fresh_topic: str) -> None:
    partition = (fresh_topic, 0)
    producer = client.producer()
    for _ in range(10):
        producer.send(fresh_topic, b"v")
    producer.flush()
    admin = client.admin()
    assert admin.delete_records(partition, 4) == 4
    assert client.consumer().beginning_and_end(partition) == (4, 10)
    assert admin.delete_records(partition, -1) == 10
    assert client.consumer().beginning_and_end(partition) == (10, 10)


def test_groups_are_listed_described_and_deleted(client: Client, fresh_topic: str, name: str) -> None:
    admin = client.admin()
    consumer = client.consumer(ConsumerOptions(group=name))
    consumer.subscribe(fresh_topic)
    poll_until([consumer], lambda _: bool(consumer.assignment()))
    consumer.commit({(fresh_topic, 0): Committed(5, "")})
    assert name in admin.groups()
    assert admin.describe_group(name) == Group("Stable", 1)
    assert admin.group_offsets(name) == {(fresh_topic, 0): 5}
    consumer.close()
    assert admin.describe_group(name) == Group("Empty", 0)
    assert admin.delete_group(name) == 0
    assert name not in admin.groups()
    assert admin.delete_group(name) == GROUP_ID_NOT_FOUND


def test_group_with_members_is_not_deleted(client: Client, fresh_topic: str, name: str) -> None:
    consumer = client.consumer(ConsumerOptions(group=name))
    consumer.subscribe(fresh_topic)
    poll_until([consumer], lambda _: bool(consumer.assignment()))
    assert client.admin().delete_group(name) == NON_EMPTY_GROUP


def test_offsets_of_a_group_are_altered_and_deleted(client: Client, fresh_topic: str, name: str) -> None:
    admin = client.admin()
    partition = (fresh_topic, 0)
    assert admin.alter_group_offset(name, partition, 3) == 0
    assert admin.group_offsets(name) == {partition: 3}
    assert admin.delete_group_offset(name, partition) == 0
    assert admin.group_offsets(name) == {}


def test_offsets_of_a_topic_that_members_read_are_kept(client: Client, fresh_topic: str, name: str) -> None:
    admin = client.admin()
    consumer = client.consumer(ConsumerOptions(group=name))
    consumer.subscribe(fresh_topic)
    poll_until([consumer], lambda _: bool(consumer.assignment()))
    consumer.commit({(fresh_topic, 0): Committed(5, "")})
    assert admin.alter_group_offset(name, (fresh_topic, 0), 1) == UNKNOWN_MEMBER_ID
    assert admin.group_offsets(name) == {(fresh_topic, 0): 5}
    assert admin.delete_group_offset(name, (fresh_topic, 0)) == GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_are_listed_by_every_spec(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(retention_ms="-1")
    producer = client.producer()
    for seconds in (10, 30, 20):
        producer.send(topic, b"v", timestamp_ms=EVENT_MS + seconds)
        producer.flush()
    admin = client.admin()
    partition = (topic, 0)
    specs = ("earliest", "latest", "max_timestamp", EVENT_MS + 11, EVENT_MS + 31)
    assert [admin.list_offset(partition, spec) for spec in specs] == [0, 3, 1, 1, -1]


def test_log_dirs_tell_what_a_partition_takes(client: Client, fresh_topic: str) -> None:
    producer = client.producer()
    producer.send(fresh_topic, bytes(10_000))
    producer.flush()
    assert 10_000 < client.admin().log_dir_sizes()[fresh_topic, 0] < 11_000


def test_cluster_is_described(client: Client, broker: BrokerUnderTest) -> None:
    described = client.admin().describe_cluster()
    addresses = [host_and_port(each) for each in client_address(broker.bootstrap).split(",")]
    assert sorted((host, port) for _, host, port in described.brokers) == sorted(addresses)
    ids = {broker_id for broker_id, _, _ in described.brokers}
    assert len(ids) == len(broker.addresses)
    assert described.controller_id in ids
    assert len(described.cluster_id) == 22

"""Metadata, topics and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comparator.wire import Tree
from harness.batches import batch
from harness.waiting import PATIENCE_S, wait_until

from conformance.broker_under_test import BrokerUnderTest, first_address, start_own_broker
from conformance.wire.asking import (
    EARLIEST,
    TIMEOUT_MS,
    UNKNOWN_ID,
    Wire,
    end_offset,
    fresh_name,
    list_offset,
    metadata,
    produce,
    produced,
)
from pybroker_protocol.errors import ErrorCode

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
FROM_TOPIC, FROM_ALL_BROKERS, FROM_PROPERTIES, FROM_DEFAULT, FROM_GROUP = 1, 3, 4, 5, 8


def new(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> dict[str, Any]:
    entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, "configs": entries}


def create(wire: Wire, *topics: dict[str, Any], **more: Any) -> dict[str, int]:
    """CreateTopics; the error code of each topic."""
    reply = wire.ask("CreateTopics", 7, topics=list(topics), timeout_ms=TIMEOUT_MS, **more)
    return {found["name"]: found["error_code"] for found in reply["topics"]}


def delete(wire: Wire, *topics: dict[str, Any]) -> list[int]:
    reply = wire.ask("DeleteTopics", 6, topics=list(topics), timeout_ms=TIMEOUT_MS)
    return [found["error_code"] for found in reply["responses"]]


# --- Metadata --------------------------------------------------------------------------------------------------------


def test_null_topics_are_all_and_no_topics_are_none(wire: Wire, topic: str, broker: BrokerUnderTest) -> None:
    assert topic in [found["name"] for found in wire.ask("Metadata", 9, topics=None)["topics"]]
    reply = wire.ask("Metadata", 9, topics=[])
    assert reply["topics"] == []
    assert len(reply["brokers"]) == len(broker.addresses)
    # In version 0 there is no null: an empty array asks for all.
    assert topic in [found["name"] for found in wire.ask("Metadata", 0, topics=[])["topics"]]


def test_a_partition_has_a_leader_among_the_brokers(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    reply = wire.ask("Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False)
    nodes = [broker["node_id"] for broker in reply["brokers"]]
    (found,) = reply["topics"]
    assert sorted(partition["partition_index"] for partition in found["partitions"]) == [0, 1]
    for partition in found["partitions"]:
        assert (partition["leader_id"], partition["leader_epoch"]) == (wire.own_id(), 0)
        assert partition["replica_nodes"][0] == wire.own_id()
        assert sorted(partition["replica_nodes"]) == sorted(partition["isr_nodes"]) == sorted(nodes)


def test_an_unknown_topic_is_made_only_for_who_wants_it(wire: Wire) -> None:
    name = fresh_name()
    for _ in range(2):
        assert metadata(wire, name)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wire.topic()  # once it is there, the controller has done what it was asked for before
    found = metadata(wire, name, create=True)
    assert (found["error_code"], found["partitions"]) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    wait_until(lambda: metadata(wire, name)["error_code"] == 0, "the topic")
    wire.wait_for_leaders(name)
    assert metadata(wire, "no good", create=True)["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    delete(wire, {"name": name})


def test_a_topic_that_was_deleted_is_gone_in_the_next_reply_though_it_is_wanted_again(wire: Wire, topic: str) -> None:
    topic_id = wire.topic_id(topic)
    delete(wire, {"name": topic})
    wait_until(lambda: metadata(wire, topic)["error_code"] != 0, "the deletion")
    found = metadata(wire, topic, create=True)
    assert (found["error_code"], found["partitions"]) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    wait_until(lambda: metadata(wire, topic)["error_code"] == 0, "the topic")
    assert wire.topic_id(topic) != topic_id


def test_no_topic_is_made_where_that_is_switched_off(tmp_path: Path) -> None:
    own = start_own_broker(tmp_path, {"auto.create.topics.enable": "false"})
    wire = Wire(first_address(own.bootstrap))
    try:
        assert metadata(wire, "not-made", create=True)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Where what was asked for later is there, the first would be, too.
        assert create(wire, new("made")) == {"made": 0}
        wait_until(lambda: metadata(wire, "made")["error_code"] == 0, "the topic that is made")
        assert metadata(wire, "not-made", create=True)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    finally:
        wire.close()
        own.stop()


def test_topics_are_known_by_their_ids(wire: Wire, topic: str) -> None:
    topic_id = wire.topic_id(topic)

    def by_id(wanted: bytes) -> Tree:
        asked = [{"topic_id": wanted, "name": None}]
        (found,) = wire.ask("Metadata", 12, topics=asked, allow_auto_topic_creation=False)["topics"]
        return found

    assert (by_id(topic_id)["error_code"], by_id(topic_id)["name"]) == (0, topic)
    assert (by_id(UNKNOWN_ID)["error_code"], by_id(UNKNOWN_ID)["name"]) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


def test_partitions_are_described_page_by_page(wire: Wire) -> None:
    topic = wire.topic(partitions=3)
    reply = wire.ask("DescribeTopicPartitions", 0, topics=[{"name": topic}], response_partition_limit=2)
    assert [found["partition_index"] for found in reply["topics"][0]["partitions"]] == [0, 1]
    assert reply["next_cursor"] == {"topic_name": topic, "partition_index": 2}
    fields = {"topics": [{"name": topic}], "response_partition_limit": 2, "cursor": reply["next_cursor"]}
    reply = wire.ask("DescribeTopicPartitions", 0, **fields)
    assert [found["partition_index"] for found in reply["topics"][0]["partitions"]] == [2]
    assert reply["next_cursor"] is None


# --- topics ----------------------------------------------------------------------------------------------------------


def test_a_mixed_request_creates_the_valid_topics(wire: Wire, topic: str) -> None:
    good, many, replicated, configured = (fresh_name() for _ in range(4))
    codes = create(
        wire,
        new(good),
        new(topic),
        new("no good"),
        new(many, partitions=0),
        new(replicated, replicas=len(wire.brokers()) + 1),
        new(configured, segment_bytes="small"),
    )
    assert codes == {
        good: ErrorCode.NONE,
        topic: ErrorCode.TOPIC_ALREADY_EXISTS,
        "no good": ErrorCode.INVALID_TOPIC_EXCEPTION,
        many: ErrorCode.INVALID_PARTITIONS,
        replicated: ErrorCode.INVALID_REPLICATION_FACTOR,
        configured: ErrorCode.INVALID_CONFIG,
    }
    wire.wait_for_leaders(good)
    assert delete(wire, {"name": good}) == [0]


def test_a_topic_named_twice_is_refused(wire: Wire) -> None:
    good, twice = fresh_name(), fresh_name()
    assert create(wire, new(twice), new(twice, 2), new(good)) == {twice: ErrorCode.INVALID_REQUEST, good: 0}
    assert metadata(wire, twice)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(wire, {"name": good}) == [0]


def test_validating_creates_nothing(wire: Wire) -> None:
    name = fresh_name()
    assert create(wire, new(name), validate_only=True) == {name: 0}
    assert create(wire, new(name), validate_only=True) == {name: 0}
    assert metadata(wire, name)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_that_differ_in_dots_and_underscores_alone_collide(wire: Wire) -> None:
    name = fresh_name()
    assert create(wire, new(f"{name}.x")) == {f"{name}.x": 0}
    assert create(wire, new(f"{name}_x")) == {f"{name}_x": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert delete(wire, {"name": f"{name}.x"}) == [0]


def test_a_created_topic_is_told_with_its_id_and_settings(wire: Wire) -> None:
    name = fresh_name()
    reply = wire.ask("CreateTopics", 7, topics=[new(name, 2, retention_ms="60000")], timeout_ms=TIMEOUT_MS)
    (found,) = reply["topics"]
    assert (found["num_partitions"], found["replication_factor"]) == (2, 1)
    wire.wait_for_leaders(name, 2)
    assert found["topic_id"] == wire.topic_id(name)
    settings = {entry["name"]: (entry["value"], entry["config_source"]) for entry in found["configs"]}
    assert settings["retention.ms"] == ("60000", FROM_TOPIC)
    assert settings["cleanup.policy"] == ("delete", FROM_DEFAULT)
    assert delete(wire, {"name": name}) == [0]


def test_every_topic_of_a_create_partitions_is_answered(wire: Wire) -> None:
    topic, other = wire.topic(partitions=2), wire.topic(partitions=2)

    def grow(*counts: tuple[str, int], validate_only: bool = False) -> dict[str, int]:
        asked = [{"name": name, "count": count, "assignments": None} for name, count in counts]
        fields = {"topics": asked, "timeout_ms": TIMEOUT_MS, "validate_only": validate_only}
        return {found["name"]: found["error_code"] for found in wire.ask("CreatePartitions", 3, **fields)["results"]}

    assert grow((topic, 5), validate_only=True) == {topic: 0}
    assert grow((topic, 3), (other, 1), ("missing-topic", 3)) == {
        topic: ErrorCode.NONE,
        other: ErrorCode.INVALID_PARTITIONS,
        "missing-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    wait_until(lambda: len(metadata(wire, topic)["partitions"]) == 3, "the new partition")
    assert grow((topic, 3)) == {topic: ErrorCode.INVALID_PARTITIONS}


def test_a_deleted_topic_is_gone_by_name_and_by_id(wire: Wire) -> None:
    topic = fresh_name()
    wire.make_topic(topic)
    topic_id = wire.topic_id(topic)
    assert delete(wire, {"name": None, "topic_id": UNKNOWN_ID}) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert delete(wire, {"name": None, "topic_id": topic_id}) == [0]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: metadata(wire, topic)["error_code"] == unknown, "the topic to be gone")
    assert delete(wire, {"name": topic}) == [unknown]


def test_records_are_deleted_up_to_an_offset(wire: Wire, topic: str) -> None:
    produced(wire, topic, *[b"v"] * 10)

    def trim(offset: int) -> tuple[int, int]:
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        (found,) = wire.ask("DeleteRecords", 2, topics=asked, timeout_ms=TIMEOUT_MS)["topics"][0]["partitions"]
        return found["error_code"], found["low_watermark"]

    assert trim(4) == (0, 4)
    assert trim(2) == (0, 4)
    assert trim(11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert trim(-1) == (0, 10)
    assert (list_offset(wire, topic, EARLIEST)["offset"], end_offset(wire, topic)) == (10, 10)


def test_records_of_a_compacted_topic_are_not_deleted(wire: Wire) -> None:
    topic = wire.topic(cleanup_policy="compact")
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]
    (found,) = wire.ask("DeleteRecords", 2, topics=asked, timeout_ms=TIMEOUT_MS)["topics"][0]["partitions"]
    assert found["error_code"] == ErrorCode.POLICY_VIOLATION


# --- settings --------------------------------------------------------------------------------------------------------


def describe(wire: Wire, topic: str, *names: str, kind: int = TOPIC, **more: Any) -> dict[str, Tree]:
    asked = [{"resource_type": kind, "resource_name": topic, "configuration_keys": list(names) or None}]
    (found,) = wire.ask("DescribeConfigs", 4, resources=asked, **more)["results"]
    assert found["error_code"] == 0, found
    return {entry["name"]: entry for entry in found["configs"]}


def alter(wire: Wire, topic: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, **more: Any) -> int:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    asked = [{"resource_type": kind, "resource_name": topic, "configs": configs}]
    (found,) = wire.ask("IncrementalAlterConfigs", 1, resources=asked, **more)["responses"]
    error: int = found["error_code"]
    return error


def changed_value(wire: Wire, topic: str, change: tuple[str, int, str | None]) -> str:
    """Make the change; the value of its setting as soon as it is another one."""
    name = change[0]

    def value() -> str:
        found: str = describe(wire, topic, name)[name]["value"]
        return found

    before = value()
    assert alter(wire, topic, change) == 0
    wait_until(lambda: value() != before, f"another {name} of {topic} than {before}")
    return value()


def test_settings_are_changed_one_by_one(wire: Wire) -> None:
    topic = wire.topic(segment_ms="7000")
    for change, value in (
        (("retention.ms", SET, "5000"), "5000"),
        (("cleanup.policy", APPEND, "compact"), "delete,compact"),
        (("cleanup.policy", SUBTRACT, "delete"), "compact"),
        (("retention.ms", DELETE, None), "604800000"),
    ):
        assert changed_value(wire, topic, change) == value
    assert describe(wire, topic, "segment.ms")["segment.ms"]["value"] == "7000"


def test_a_change_is_made_whole_or_not_at_all(wire: Wire, topic: str) -> None:
    assert alter(wire, topic, ("segment.ms", SET, "7000"), ("segment.bytes", SET, "x")) == ErrorCode.INVALID_CONFIG
    assert alter(wire, topic, ("segment.ms", SET, "8000"), validate_only=True) == 0
    twice = (("segment.ms", SET, "1000"), ("segment.ms", SET, "2000"))
    assert alter(wire, topic, *twice) == ErrorCode.INVALID_REQUEST
    assert alter(wire, topic, ("retention.ms", APPEND, "1")) == ErrorCode.INVALID_CONFIG
    assert alter(wire, topic, ("no.such.config", SET, "1")) == ErrorCode.INVALID_CONFIG
    assert changed_value(wire, topic, ("retention.ms", SET, "9000")) == "9000"
    assert describe(wire, topic, "segment.ms")["segment.ms"]["config_source"] == FROM_DEFAULT


def test_the_legacy_change_resets_what_it_does_not_name(wire: Wire) -> None:
    topic = wire.topic(retention_ms="5000")
    configs = [{"name": "segment.ms", "value": "7000"}]
    asked = [{"resource_type": TOPIC, "resource_name": topic, "configs": configs}]
    (found,) = wire.ask("AlterConfigs", 2, resources=asked)["responses"]
    assert found["error_code"] == 0
    wait_until(lambda: describe(wire, topic, "segment.ms")["segment.ms"]["value"] == "7000", "the change")
    assert describe(wire, topic, "retention.ms")["retention.ms"]["value"] == "604800000"


def test_every_setting_is_described_with_where_it_comes_from(wire: Wire) -> None:
    topic = wire.topic(retention_ms="5000")
    found = describe(wire, topic, include_synonyms=True)
    assert {"cleanup.policy", "max.message.bytes", "min.insync.replicas", "segment.bytes"} <= set(found)
    retention = found["retention.ms"]
    assert (retention["value"], retention["config_source"], retention["read_only"]) == ("5000", FROM_TOPIC, False)
    # A number of 64 bits, a list.
    assert (retention["config_type"], found["cleanup.policy"]["config_type"]) == (5, 7)
    first = retention["synonyms"][0]
    assert (first["name"], first["source"]) == ("retention.ms", FROM_TOPIC)
    assert (found["segment.ms"]["config_source"], found["segment.ms"]["value"]) == (FROM_DEFAULT, "604800000")


def test_settings_of_the_broker_that_need_a_restart_are_read_only(wire: Wire) -> None:
    found = describe(wire, str(wire.own_id()), "log.dirs", "log.retention.ms", kind=BROKER)
    assert found["log.dirs"]["read_only"] is True
    assert found["log.retention.ms"]["read_only"] is False


def test_the_minimum_of_in_sync_replicas_is_set_for_all_brokers_and_for_none_alone(wire: Wire, topic: str) -> None:
    """As long as eligible leader replicas are tracked, which a new cluster's features say (KIP-966)."""
    name = "min.insync.replicas"
    node = str(wire.own_id())
    assert name in describe(wire, "", kind=BROKER)
    for kind, resource in ((TOPIC, topic), (BROKER, node)):
        found = describe(wire, resource, name, kind=kind, include_synonyms=True)[name]
        assert found["config_source"] == FROM_ALL_BROKERS
        # The properties of the run may say something, too.
        sources = [synonym["source"] for synonym in found["synonyms"] if synonym["source"] != FROM_PROPERTIES]
        assert sources == [FROM_ALL_BROKERS, FROM_DEFAULT]
    for validate_only in (True, False):
        for resource, operation, value in ((node, SET, "1"), ("", DELETE, None)):
            refused = alter(wire, resource, (name, operation, value), kind=BROKER, validate_only=validate_only)
            assert refused == ErrorCode.INVALID_CONFIG


def test_a_setting_of_a_group_that_brokers_have_no_name_for_has_its_default_behind_it(wire: Wire) -> None:
    group, name = fresh_name(), "share.auto.offset.reset"
    assert alter(wire, group, (name, SET, "earliest"), kind=GROUP) == 0

    def synonyms() -> list[tuple[str, int]]:
        found = describe(wire, group, name, kind=GROUP, include_synonyms=True)[name]
        return [(synonym["value"], synonym["source"]) for synonym in found["synonyms"]]

    wait_until(lambda: synonyms() == [("earliest", FROM_GROUP), ("latest", FROM_DEFAULT)], "both of its values")
    assert alter(wire, group, (name, DELETE, None), kind=GROUP) == 0
    wait_until(lambda: synonyms() == [("latest", FROM_DEFAULT)], "the default alone")


def test_settings_of_a_topic_that_is_not_there(wire: Wire) -> None:
    asked = [{"resource_type": TOPIC, "resource_name": fresh_name(), "configuration_keys": None}]
    (found,) = wire.ask("DescribeConfigs", 4, resources=asked)["results"]
    assert found["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(wire, fresh_name(), ("retention.ms", SET, "5000")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_changed_setting_holds_for_the_next_request(wire: Wire, topic: str) -> None:
    too_large = batch(b"x" * 200)
    assert produce(wire, topic, too_large)["error_code"] == 0
    assert changed_value(wire, topic, ("max.message.bytes", SET, "100")) == "100"
    # Apache Kafka shows the new value a moment before it counts.
    refused = ErrorCode.MESSAGE_TOO_LARGE
    wait_until(lambda: produce(wire, topic, too_large)["error_code"] == refused, "the new bound", patience_s=PATIENCE_S)

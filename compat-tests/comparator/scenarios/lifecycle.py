"""What happens to requests under way, sessions and cached ids when a topic changes, goes, or comes again."""

from __future__ import annotations

import time
from typing import Any

from harness.batches import batch

from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario

TOPIC, SET, DELETE = 2, 0, 1
SETTLING_S = 0.3


def produce(
    broker: Broker, version: int, note: str, topic: str, topic_id: bytes, index: int = 0, value: bytes = b"v"
) -> Tree:
    data = [{"name": topic, "topic_id": topic_id, "partition_data": [{"index": index, "records": batch(value)}]}]
    return broker.call("Produce", version, note, acks=-1, timeout_ms=5000, topic_data=data)


def wanted(topic: str, topic_id: bytes, *offsets: int) -> list[dict[str, Any]]:
    partitions = [{"partition": i, "fetch_offset": o, "partition_max_bytes": 10_000} for i, o in enumerate(offsets)]
    return [{"topic": topic, "topic_id": topic_id, "partitions": partitions}]


def delete(broker: Broker, name: str) -> None:
    broker.quietly("DeleteTopics", 6, topics=[{"name": name}], timeout_ms=10_000)

    def is_gone() -> bool:
        reply = broker.quietly("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
        latest = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        offsets = broker.quietly("ListOffsets", 7, replica_id=-1, topics=latest)
        return bool(reply["topics"][0]["error_code"] and offsets["topics"][0]["partitions"][0]["error_code"])

    broker.wait_until(is_gone, f"{name} to be deleted")


def configure(broker: Broker, topic: str, name: str, operation: int, value: str | None) -> None:
    entry = {"name": name, "config_operation": operation, "value": value}
    resources = [{"resource_type": TOPIC, "resource_name": topic, "configs": [entry]}]
    reply = broker.quietly("IncrementalAlterConfigs", 1, resources=resources)
    assert reply["responses"][0]["error_code"] == 0, reply
    keys = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": [name]}]

    def is_visible() -> bool:
        described = broker.quietly("DescribeConfigs", 4, resources=keys)["results"][0]["configs"][0]
        return bool(described["config_source"] != 1) if operation == DELETE else bool(described["value"] == value)

    broker.wait_until(is_visible, f"{name} of {topic}")
    # Kafka shows a setting a moment before its log heeds it, and nothing can be asked to learn when it does.
    time.sleep(SETTLING_S)


@scenario
def requests_for_a_deleted_topic(broker: Broker) -> None:
    topic_id = broker.prepare_topic("deleted")
    produce(broker, 9, "while it is there", "deleted", topic_id)
    delete(broker, "deleted")
    for version in (9, 12, 13):
        produce(broker, version, "deleted", "deleted", topic_id)
    for version in (11, 12, 13, 18):
        broker.call("Fetch", version, "deleted", max_wait_ms=0, min_bytes=1, topics=wanted("deleted", topic_id, 0))


@scenario
def the_old_id_of_a_topic_that_came_again(broker: Broker) -> None:
    old = broker.prepare_topic("phoenix")
    produce(broker, 9, "before", "phoenix", old)
    delete(broker, "phoenix")
    new = broker.prepare_topic("phoenix", partitions=2)
    for topic_id, note in ((old, "the old id"), (new, "the new id")):
        produce(broker, 13, note, "", topic_id)
        broker.call("Fetch", 13, note, max_wait_ms=0, min_bytes=1, topics=wanted("", topic_id, 0, 0))


@scenario
def a_session_whose_topic_goes(broker: Broker) -> None:
    for version in (11, 13):
        stays, goes = f"session-stays-{version}", f"session-goes-{version}"
        ids = {name: broker.prepare_topic(name) for name in (stays, goes)}
        for name, topic_id in ids.items():
            produce(broker, 9, name, name, topic_id)
        topics = wanted(stays, ids[stays], 1) + wanted(goes, ids[goes], 1)
        opened = broker.call("Fetch", version, "open", max_wait_ms=0, min_bytes=1, session_epoch=0, topics=topics)
        delete(broker, goes)
        for epoch in (1, 2):
            session = {"session_id": opened["session_id"], "session_epoch": epoch}
            broker.call("Fetch", version, f"epoch {epoch}", max_wait_ms=0, min_bytes=1, topics=[], **session)


@scenario
def a_parked_fetch_whose_topic_goes(broker: Broker) -> None:
    for version in (11, 13):
        name = f"parked-{version}"
        topic_id = broker.prepare_topic(name)
        fields = {"max_wait_ms": 4000, "min_bytes": 1, "topics": wanted(name, topic_id, 0)}
        parked = broker.begin("Fetch", version, "its topic goes", broker.connect(), **fields)
        # Nothing tells when a fetch over another connection is parked.
        time.sleep(SETTLING_S)
        delete(broker, name)
        parked.reply()


@scenario
def partitions_that_come_later(broker: Broker) -> None:
    topic_id = broker.prepare_topic("growing")
    produce(broker, 9, "not there yet", "growing", topic_id, index=1)
    grow = [{"name": "growing", "count": 2, "assignments": None}]
    broker.call("CreatePartitions", 3, topics=grow, timeout_ms=5000)
    broker.wait_for_leaders("growing", 2)
    produce(broker, 13, "there by now", "growing", topic_id, index=1)
    broker.call("Fetch", 13, "both", max_wait_ms=0, min_bytes=1, topics=wanted("growing", topic_id, 0, 0))


@scenario
def settings_take_effect_at_once(broker: Broker) -> None:
    topic_id = broker.prepare_topic("tuned")
    produce(broker, 9, "large", "tuned", topic_id, value=b"x" * 2000)
    configure(broker, "tuned", "max.message.bytes", SET, "1000")
    produce(broker, 9, "too large by now", "tuned", topic_id, value=b"x" * 2000)
    configure(broker, "tuned", "max.message.bytes", DELETE, None)
    produce(broker, 9, "large again", "tuned", topic_id, value=b"x" * 2000)
    configure(broker, "tuned", "cleanup.policy", SET, "compact")
    produce(broker, 9, "keyless by now", "tuned", topic_id)
    configure(broker, "tuned", "cleanup.policy", SET, "delete")
    configure(broker, "tuned", "message.timestamp.type", SET, "LogAppendTime")
    produce(broker, 9, "log append time", "tuned", topic_id)
    configure(broker, "tuned", "min.insync.replicas", SET, "2")
    for acks in (1, -1):
        data = [{"name": "tuned", "partition_data": [{"index": 0, "records": batch(b"v")}]}]
        broker.call("Produce", 9, f"too few replicas, acks {acks}", acks=acks, timeout_ms=5000, topic_data=data)
    broker.call("Fetch", 12, "all of it", max_wait_ms=0, min_bytes=1, topics=wanted("tuned", topic_id, 0))

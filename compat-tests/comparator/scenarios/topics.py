"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from typing import Any

from harness.batches import batch

from comparator.broker import Broker
from comparator.registry import scenario

UNKNOWN_ID = b"\x01" * 16
TIMEOUT_MS = 10_000


def topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


def configs(**entries: str | None) -> list[dict[str, str | None]]:
    """Topic configs; underscores stand for dots."""
    return [{"name": name.replace("_", "."), "value": value} for name, value in entries.items()]


def assignment(*brokers_of_partitions: list[int]) -> list[dict[str, Any]]:
    return [{"partition_index": i, "broker_ids": brokers} for i, brokers in enumerate(brokers_of_partitions)]


def create(broker: Broker, version: int, note: str, *topics: dict[str, Any], **more: Any) -> Any:
    return broker.call("CreateTopics", version, note, topics=list(topics), timeout_ms=TIMEOUT_MS, **more)


@scenario
def create_in_every_version(broker: Broker) -> None:
    for version in broker.versions("CreateTopics"):
        name = f"create-v{version}"
        create(broker, version, "validate only", topic(name), validate_only=True)
        create(broker, version, "new", topic(name, 2, configs=configs(retention_ms="60000")))
        create(broker, version, "exists", topic(name))
        create(broker, version, "exists, validate only", topic(name), validate_only=True)
        broker.wait_for_leaders(name, 2)


@scenario
def create_topics_that_are_not_valid(broker: Broker) -> None:
    latest = broker.latest("CreateTopics")
    for name in ("", ".", "..", "has space", "x" * 249, "x" * 250, "a/b", "ümlaut"):
        create(broker, latest, f"name {name[:12]!r}", topic(name), validate_only=True)
    for partitions in (0, -1, -2, 1):
        create(
            broker, latest, f"{partitions} partitions", topic(f"invalid-{partitions}", partitions), validate_only=True
        )
    for replicas in (0, -1, -2, 2, 3):
        create(broker, latest, f"{replicas} replicas", topic("invalid-r", 1, replicas), validate_only=True)
    create(broker, 3, "defaults before version 4", topic("invalid-d", -1, -1), validate_only=True)
    create(broker, latest, "no topics at all")


@scenario
def create_answers_topic_by_topic(broker: Broker) -> None:
    create(broker, 7, "one good, one bad", topic("create-good"), topic("create bad"))
    create(broker, 7, "the same twice", topic("create-twice"), topic("create-twice", 2))
    create(broker, 7, "twice beside a good one", topic("create-dup"), topic("create-dup"), topic("create-good-2"))
    create(broker, 7, "a name that collides with another", topic("create.good"))


@scenario
def create_with_assignments(broker: Broker) -> None:
    def manual(name: str, *brokers: list[int], partitions: int = -1, replicas: int = -1) -> dict[str, Any]:
        return topic(name, partitions, replicas, assignments=assignment(*brokers))

    create(broker, 7, "two partitions", manual("assigned-a", [1], [1]))
    create(broker, 7, "unknown broker", manual("assigned-b", [99]))
    create(broker, 7, "the same broker twice", manual("assigned-c", [1, 1]))
    create(broker, 7, "no broker", manual("assigned-d", []))
    create(broker, 7, "uneven", manual("assigned-e", [1], [1, 99]))
    create(broker, 7, "with a partition count as well", manual("assigned-f", [1], partitions=1))
    create(broker, 7, "with a replication factor as well", manual("assigned-g", [1], replicas=1))
    gap = [{"partition_index": 1, "broker_ids": [1]}]
    create(broker, 7, "not from zero", topic("assigned-h", -1, -1, assignments=gap))
    repeated = [*assignment([1]), *assignment([1])]
    create(broker, 7, "one partition twice", topic("assigned-i", -1, -1, assignments=repeated))


@scenario
def create_with_configs(broker: Broker) -> None:
    def configured(note: str, **entries: str | None) -> None:
        request = topic("configured", configs=configs(**entries))
        create(broker, 7, note, request, validate_only=True)

    configured("good", cleanup_policy="compact", segment_bytes="1048576")
    configured("unknown name", no_such_config="1")
    configured("not a number", retention_ms="soon")
    configured("out of range", segment_bytes="1")
    configured("not one of the choices", cleanup_policy="sometimes")
    configured("null value", retention_ms=None)
    configured("codec", compression_type="zstd")
    configured("no such codec", compression_type="brotli")
    configured("level without codec", compression_gzip_level="5")
    configured("both policies", cleanup_policy="compact,delete")
    configured("empty policy", cleanup_policy="")
    configured("boolean", preallocate="true")
    configured("not a boolean", preallocate="perhaps")
    configured("ratio", min_cleanable_dirty_ratio="0.7")
    configured("ratio out of range", min_cleanable_dirty_ratio="1.7")
    configured("throttled replicas", leader_replication_throttled_replicas="*")
    configured("throttled replicas, malformed", leader_replication_throttled_replicas="x")
    configured("min isr", min_insync_replicas="0")
    configured("spaces around", retention_ms=" 1000 ")
    configured("lags crossed", min_compaction_lag_ms="100", max_compaction_lag_ms="10")
    configured("removed in 4.0", message_format_version="3.0")
    configured("remote storage", remote_storage_enable="true")
    twice = [*configs(retention_ms="1"), *configs(retention_ms="2")]
    create(broker, 7, "one name twice", topic("configured", configs=twice), validate_only=True)


@scenario
def created_configs_are_in_the_reply(broker: Broker) -> None:
    for version in (5, 7):
        name = f"create-configs-v{version}"
        entries = configs(retention_ms="60000", cleanup_policy="compact", max_message_bytes="2000")
        create(broker, version, "with overrides", topic(name, configs=entries))


@scenario
def delete_in_every_version(broker: Broker) -> None:
    for version in broker.versions("DeleteTopics"):
        name = f"delete-v{version}"
        broker.prepare_topic(name)
        names = {"topics": [{"name": name}, {"name": "delete-missing"}], "topic_names": [name, "delete-missing"]}
        broker.call("DeleteTopics", version, "one there, one missing", timeout_ms=TIMEOUT_MS, **names)
        broker.call("DeleteTopics", version, "again", timeout_ms=TIMEOUT_MS, **names)


@scenario
def delete_by_id(broker: Broker) -> None:
    topic_id = broker.prepare_topic("delete-by-id")

    def delete(note: str, *topics: dict[str, Any]) -> None:
        broker.call("DeleteTopics", 6, note, topics=list(topics), timeout_ms=TIMEOUT_MS)

    delete("unknown id", {"name": None, "topic_id": UNKNOWN_ID})
    delete("neither", {"name": None})
    delete("both", {"name": "delete-by-id", "topic_id": topic_id})
    delete("the same twice by name", {"name": "delete-by-id"}, {"name": "delete-by-id"})
    delete("by id", {"name": None, "topic_id": topic_id})
    delete("by id again", {"name": None, "topic_id": topic_id})
    delete("nothing")
    delete("empty name", {"name": ""})


@scenario
def a_topic_created_again_has_another_id(broker: Broker) -> None:
    first = broker.prepare_topic("recreated")
    broker.quietly("DeleteTopics", 6, topics=[{"name": "recreated"}], timeout_ms=TIMEOUT_MS)
    second = broker.prepare_topic("recreated", partitions=2)
    broker.note("the ids differ", first != second)
    topics = [{"topic_id": first, "name": None}]
    broker.call("Metadata", 12, "the old id", topics=topics, allow_auto_topic_creation=False)


@scenario
def create_partitions(broker: Broker) -> None:
    broker.prepare_topic("grow", partitions=2)

    def grow(version: int, note: str, *topics: dict[str, Any], validate_only: bool = False) -> None:
        fields = {"topics": list(topics), "timeout_ms": TIMEOUT_MS, "validate_only": validate_only}
        broker.call("CreatePartitions", version, note, **fields)

    for version in broker.versions("CreatePartitions"):
        count = 3 + version
        grow(version, "validate only", {"name": "grow", "count": count, "assignments": None}, validate_only=True)
        grow(version, "more", {"name": "grow", "count": count, "assignments": None})
        grow(version, "as many as there are", {"name": "grow", "count": count, "assignments": None})
        grow(version, "fewer", {"name": "grow", "count": 1, "assignments": None})
    grow(3, "zero", {"name": "grow", "count": 0, "assignments": None})
    grow(3, "negative", {"name": "grow", "count": -5, "assignments": None})
    grow(3, "unknown topic", {"name": "grow-missing", "count": 3, "assignments": None})
    grow(3, "invalid name", {"name": "no good", "count": 3, "assignments": None})
    grow(3, "assigned", {"name": "grow", "count": 7, "assignments": [{"broker_ids": [1]}]})
    grow(3, "too few assignments", {"name": "grow", "count": 9, "assignments": [{"broker_ids": [1]}]})
    grow(3, "unknown broker", {"name": "grow", "count": 8, "assignments": [{"broker_ids": [99]}]})
    grow(3, "empty assignment", {"name": "grow", "count": 8, "assignments": [{"broker_ids": []}]})
    grow(3, "replicas uneven", {"name": "grow", "count": 8, "assignments": [{"broker_ids": [1, 99]}]})
    twice = {"name": "grow", "count": 9, "assignments": None}
    grow(3, "the same topic twice", twice, twice)
    broker.wait_for_leaders("grow", 7)


@scenario
def delete_records(broker: Broker) -> None:
    broker.prepare_topic("trim", partitions=2)
    broker.prepare_topic("trim-compacted", cleanup_policy="compact")
    records = batch(*[b"value"] * 10)
    data = [{"name": "trim", "partition_data": [{"index": 0, "records": records}]}]
    broker.quietly("Produce", 9, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data)

    def trim(version: int, note: str, partition: int, offset: int, name: str = "trim") -> None:
        partitions = [{"partition_index": partition, "offset": offset}]
        topics = [{"name": name, "partitions": partitions}]
        broker.call("DeleteRecords", version, note, topics=topics, timeout_ms=TIMEOUT_MS)

    for version in broker.versions("DeleteRecords"):
        trim(version, "forward", 0, 3 + version)
        trim(version, "backward", 0, 1)
        trim(version, "past the end", 0, 11)
    trim(2, "negative", 0, -2)
    trim(2, "an empty partition", 1, 0)
    trim(2, "unknown partition", 7, 0)
    trim(2, "unknown topic", 0, 0, "trim-missing")
    trim(2, "a compacted topic", 0, 0, "trim-compacted")
    trim(2, "up to the high watermark", 0, -1)
    trim(2, "up to the high watermark again", 0, -1)
    earliest = [{"name": "trim", "partitions": [{"partition_index": 0, "timestamp": -2}]}]
    broker.call("ListOffsets", 7, "the log start", replica_id=-1, topics=earliest)

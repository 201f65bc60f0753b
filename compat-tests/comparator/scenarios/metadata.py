"""Metadata, DescribeTopicPartitions and DescribeCluster."""

from __future__ import annotations

from comparator.broker import Broker
from comparator.registry import scenario
from comparator.scenarios.lifecycle import delete

UNKNOWN_ID = b"\x01" * 16
FIRST_VERSION_WITH_IDS = 12


@scenario
def every_version(broker: Broker) -> None:
    broker.prepare_topic("metadata-a", partitions=3)
    topics = [{"name": "metadata-a"}, {"name": "metadata-missing"}]
    for version in broker.versions("Metadata"):
        # Before version 4 the broker's own setting decides, so nothing unknown is asked for.
        known = topics if version >= 4 else topics[:1]
        broker.call(
            "Metadata",
            version,
            topics=known,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )


@scenario
def no_topics_asks_for_the_brokers_alone(broker: Broker) -> None:
    for version in broker.versions("Metadata")[1:]:
        broker.call("Metadata", version, topics=[])


@scenario
def names_that_no_topic_can_have(broker: Broker) -> None:
    for name in ("", ".", "..", "has space", "x" * 249, "x" * 250, "a/b", "ümlaut"):
        for version in (4, 9, broker.latest("Metadata")):
            topics = [{"name": name}]
            broker.call("Metadata", version, f"name {name[:12]!r}", topics=topics, allow_auto_topic_creation=False)


@scenario
def duplicate_names_and_many_topics(broker: Broker) -> None:
    broker.prepare_topic("metadata-twice")
    topics = [{"name": "metadata-twice"}, {"name": "metadata-twice"}]
    broker.call("Metadata", 9, "the same topic twice", topics=topics, allow_auto_topic_creation=False)


@scenario
def topics_by_id(broker: Broker) -> None:
    topic_id = broker.prepare_topic("metadata-by-id", partitions=2)
    for version in range(10, broker.latest("Metadata") + 1):
        if version < FIRST_VERSION_WITH_IDS:
            topics = [{"topic_id": topic_id, "name": "metadata-by-id"}]
            broker.call("Metadata", version, "an id before its time", topics=topics)
            continue
        by_id = {"allow_auto_topic_creation": False}
        broker.call("Metadata", version, "by id", topics=[{"topic_id": topic_id, "name": None}], **by_id)
        broker.call("Metadata", version, "unknown id", topics=[{"topic_id": UNKNOWN_ID, "name": None}], **by_id)
        broker.call(
            "Metadata", version, "id and name", topics=[{"topic_id": topic_id, "name": "metadata-by-id"}], **by_id
        )
        broker.call("Metadata", version, "neither id nor name", topics=[{"name": None}], **by_id)
        mixed = [{"topic_id": topic_id, "name": None}, {"name": "metadata-by-id"}]
        broker.call("Metadata", version, "ids and names mixed", topics=mixed, **by_id)


@scenario
def auto_creation_brings_the_topic_into_being(broker: Broker) -> None:
    for version in broker.versions("Metadata"):
        name = f"metadata.auto.{version}"
        # Before version 4 there is no such field, and creation is always meant.
        wanted = {"allow_auto_topic_creation": True} if version >= 4 else {}
        broker.call("Metadata", version, "while it is made", topics=[{"name": name}], **wanted)
        broker.wait_for_leaders(name, 1)
        broker.call("Metadata", version, "once it is there", topics=[{"name": name}], **wanted)
    wanted = {"allow_auto_topic_creation": True}
    broker.call("Metadata", 9, "a name it refuses", topics=[{"name": "no good"}], **wanted)
    for note in ("a name too like another", "which is refused in silence"):
        broker.call("Metadata", 9, note, topics=[{"name": "metadata.auto_9"}], **wanted)
    delete(broker, "metadata.auto.9")
    broker.call("Metadata", 9, "deleted, and wanted again", topics=[{"name": "metadata.auto.9"}], **wanted)


@scenario
def describe_topic_partitions(broker: Broker) -> None:
    broker.prepare_topic("partitions-a", partitions=3)
    broker.prepare_topic("partitions-b", partitions=2)
    both = [{"name": "partitions-a"}, {"name": "partitions-b"}]

    def ask(note: str, **fields: object) -> None:
        broker.call("DescribeTopicPartitions", 0, note, **fields)

    ask("all of two topics", topics=both)
    ask("limit within a topic", topics=both, response_partition_limit=2)
    ask("limit at the end of a topic", topics=both, response_partition_limit=3)
    ask("limit of nothing", topics=both, response_partition_limit=0)
    ask("negative limit", topics=both, response_partition_limit=-1)
    ask("from a cursor", topics=both, cursor={"topic_name": "partitions-a", "partition_index": 2})
    ask("cursor past the end", topics=both, cursor={"topic_name": "partitions-b", "partition_index": 9})
    ask("cursor in no topic", topics=both, cursor={"topic_name": "partitions-ab", "partition_index": 0})
    ask("negative cursor", topics=both, cursor={"topic_name": "partitions-a", "partition_index": -1})
    ask("unknown topic", topics=[{"name": "partitions-missing"}, *both])
    ask("invalid name", topics=[{"name": "no good"}])
    ask("the same topic twice", topics=[both[0], both[0]])


@scenario
def describe_cluster(broker: Broker) -> None:
    for version in broker.versions("DescribeCluster"):
        for operations in (False, True):
            broker.call(
                "DescribeCluster",
                version,
                f"operations {operations}",
                include_cluster_authorized_operations=operations,
                include_fenced_brokers=False,
            )
        if version >= 1:
            broker.call("DescribeCluster", version, "controllers", endpoint_type=2)
            broker.call("DescribeCluster", version, "no such endpoints", endpoint_type=9)
    broker.call("DescribeCluster", 2, "with fenced brokers", include_fenced_brokers=True)

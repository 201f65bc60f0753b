"""What clients may and may not do with ``__consumer_offsets``."""

from __future__ import annotations

from harness.batches import batch

from comparator.broker import Broker
from comparator.registry import scenario

OFFSETS = "__consumer_offsets"
TOPIC = 2


@scenario
def they_look_like_topics(broker: Broker) -> None:
    broker.wait_for_coordinator("any")
    for version in (1, 9, 12):
        broker.call("Metadata", version, topics=[{"name": OFFSETS}], allow_auto_topic_creation=False)
    broker.call("DescribeTopicPartitions", 0, topics=[{"name": OFFSETS}])
    asked = [{"resource_type": TOPIC, "resource_name": OFFSETS, "configuration_keys": None}]
    broker.call("DescribeConfigs", 4, resources=asked, include_synonyms=True)
    topic = {"name": OFFSETS, "num_partitions": 5, "replication_factor": 1}
    broker.call("CreateTopics", 7, "it is there", topics=[topic], timeout_ms=5000)


@scenario
def clients_do_not_write_into_them(broker: Broker) -> None:
    broker.wait_for_coordinator("any")
    broker.wait_for_leaders(OFFSETS, 5)
    data = [{"name": OFFSETS, "partition_data": [{"index": 0, "records": batch(b"v", key=b"k")}]}]
    for version in (3, 9, 12):
        broker.call("Produce", version, acks=-1, timeout_ms=5000, topic_data=data)
    trimmed = [{"name": OFFSETS, "partitions": [{"partition_index": 0, "offset": 0}]}]
    broker.call("DeleteRecords", 2, topics=trimmed, timeout_ms=5000)

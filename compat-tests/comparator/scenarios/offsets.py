"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

from harness.batches import BASE_TIMESTAMP_MS, GZIP, Batch, Record

from comparator.broker import Broker
from comparator.registry import scenario

SPECIAL_TIMESTAMPS = {
    -1: "latest",
    -2: "earliest",
    -3: "maximum timestamp",
    -4: "earliest local",
    -5: "latest tiered",
    -6: "earliest pending upload",
    -7: "no such special timestamp",
}


def list_offsets(broker: Broker, version: int, note: str, topic: str, timestamp: int, **more: Any) -> None:
    """Ask for one partition; ``partition`` and ``epoch`` may be given."""
    partitions = [
        {
            "partition_index": more.pop("partition", 0),
            "timestamp": timestamp,
            "current_leader_epoch": more.pop("epoch", -1),
        }
    ]
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}], **more}
    broker.call("ListOffsets", version, note, timeout_ms=5000, **fields)


def prepare_log(broker: Broker, name: str, **configs: str) -> None:
    """Three batches whose timestamps do not rise evenly: the highest is in the middle of the second one."""
    broker.prepare_topic(name, partitions=2, **configs)
    for base, deltas, codec in ((0, (0, 10, 20), 0), (100, (0, 900, 50), GZIP), (200, (0, 10), 0)):
        records = [Record(timestamp_delta_ms=delta, value=str(delta).encode()) for delta in deltas]
        encoded = Batch(records=records, base_timestamp_ms=BASE_TIMESTAMP_MS + base, codec=codec).encode()
        data = [{"name": name, "partition_data": [{"index": 0, "records": encoded}]}]
        broker.quietly("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data)


@scenario
def special_timestamps_in_every_version(broker: Broker) -> None:
    prepare_log(broker, "offsets")
    for version in broker.versions("ListOffsets"):
        for timestamp, note in SPECIAL_TIMESTAMPS.items():
            list_offsets(broker, version, note, "offsets", timestamp)
            list_offsets(broker, version, f"{note}, empty partition", "offsets", timestamp, partition=1)
        list_offsets(broker, version, "latest, read committed", "offsets", -1, isolation_level=1)


@scenario
def timestamps_of_records(broker: Broker) -> None:
    prepare_log(broker, "offsets-time")
    for version in (1, 5, broker.latest("ListOffsets")):
        for delta in (-1000, 0, 1, 10, 20, 21, 99, 100, 101, 150, 151, 999, 1000, 1001, 1_000_000):
            list_offsets(broker, version, f"base + {delta}", "offsets-time", BASE_TIMESTAMP_MS + delta)
        list_offsets(broker, version, "zero", "offsets-time", 0)
        list_offsets(broker, version, "empty partition", "offsets-time", BASE_TIMESTAMP_MS, partition=1)


@scenario
def after_records_were_deleted(broker: Broker) -> None:
    prepare_log(broker, "offsets-trimmed")
    trimmed = [{"name": "offsets-trimmed", "partitions": [{"partition_index": 0, "offset": 2}]}]
    broker.quietly("DeleteRecords", 2, topics=trimmed, timeout_ms=10_000)
    for timestamp in (-1, -2, -3, -4, BASE_TIMESTAMP_MS, BASE_TIMESTAMP_MS + 20):
        list_offsets(broker, 9, f"timestamp {timestamp}", "offsets-trimmed", timestamp)


@scenario
def partitions_that_are_not_there_and_wrong_epochs(broker: Broker) -> None:
    prepare_log(broker, "offsets-wrong")
    for version in (1, 4, broker.latest("ListOffsets")):
        list_offsets(broker, version, "unknown topic", "offsets-missing", -1)
        list_offsets(broker, version, "invalid name", "no good", -1)
        list_offsets(broker, version, "unknown partition", "offsets-wrong", -1, partition=9)
        for epoch in (0, 1):
            list_offsets(broker, version, f"epoch {epoch}", "offsets-wrong", -1, epoch=epoch)
        if version >= 2:
            list_offsets(broker, version, "isolation level 9", "offsets-wrong", -1, isolation_level=9)
        list_offsets(broker, version, "as a replica", "offsets-wrong", -1, replica_id=99)
        list_offsets(broker, version, "as a debugger", "offsets-wrong", -1, replica_id=-2)
        twice = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
        topics = [{"name": "offsets-wrong", "partitions": twice}]
        broker.call("ListOffsets", version, "one partition twice", replica_id=-1, topics=topics)
        broker.call("ListOffsets", version, "nothing", replica_id=-1, topics=[])


@scenario
def offset_for_leader_epoch(broker: Broker) -> None:
    prepare_log(broker, "epochs")
    for version in broker.versions("OffsetForLeaderEpoch"):
        for partition, current, epoch in (
            (0, -1, 0),
            (0, 0, 0),
            (0, 1, 0),
            (0, -1, 1),
            (0, -1, 99),
            (0, -1, -1),
            (0, -1, -2),
            (1, -1, 0),
            (9, -1, 0),
        ):
            asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
            topics = [{"topic": "epochs", "partitions": [asked]}]
            note = f"partition {partition}, current {current}, epoch {epoch}"
            broker.call("OffsetForLeaderEpoch", version, note, replica_id=-1, topics=topics)
        unknown = [{"topic": "epochs-missing", "partitions": [{"partition": 0, "leader_epoch": 0}]}]
        broker.call("OffsetForLeaderEpoch", version, "unknown topic", replica_id=-1, topics=unknown)

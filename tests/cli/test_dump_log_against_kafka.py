"""``pybroker dump-log`` beside Apache Kafka's DumpLogSegments: the same files, the same facts."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from harness.apache_kafka import DUMP_LOG_SEGMENTS, run_kafka_tool
from harness.waiting import PATIENCE_S, wait_until

from pybroker.cli.records.log_files import read_entries
from pybroker.cli.records.record_decoders import STATE_FIELDS, decoder_of
from pybroker.testing import Broker

pytestmark = [pytest.mark.jvm]

WAIT_S = 30.0
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "segment.ms": "100",
    "delete.retention.ms": "60000",
}
FIELD = re.compile(r"(\w+): ((?:\[[^\]]*\]|OptionalLong\[\d+\]|\{.*?\}(?= payload:|$)|\S)*)")


def transact(bootstrap: str) -> None:
    """Transactions of every end: committed, aborted, and one with offsets that stays open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments", "linger.ms": 0})
    producer.init_transactions()
    for commits in (True, False):
        producer.begin_transaction()
        for value in (b"1", b"2"):
            producer.produce("orders", value, key=b"k")
        assert producer.flush(WAIT_S) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)()
    members = [
        Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol})
        for group, protocol in (("classic", "classic"), ("consumer", "consumer"), ("pattern", "consumer"))
    ]
    for member, topic in zip(members, ("orders", "orders", "^ord.*"), strict=True):
        member.subscribe([topic])

    def assigned() -> bool:
        for member in members:
            member.poll(0.05)
        return all(member.assignment() for member in members)

    wait_until(assigned, "all members have partitions")
    producer.begin_transaction()
    producer.produce("orders", b"open")
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 3)], members[0].consumer_group_metadata())
    assert producer.flush(WAIT_S) == 0
    for member in members:
        member.close()


def compact(broker: Broker) -> None:
    """Segments of one key; returns when the first of them has been cleaned."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    for number in range(6):
        for key in (b"a", b"b", b"%d" % number):
            producer.produce("compacted", b"" if key == b"b" else b"%d" % number, key=key)
        producer.produce("compacted", None, key=b"gone")
        assert producer.flush(WAIT_S) == 0
        time.sleep(0.15)  # past segment.ms by the records' own clock: the next batch begins a segment
    first = broker.data_dir / "compacted-0" / f"{0:020d}.log"

    def is_cleaned() -> bool:
        return any(entry["delete_horizon_ms"] for entry in read_entries(first, None))

    wait_until(is_cleaned, "the first segment is cleaned")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log dir of a broker that has stopped, with an open transaction."""
    path = tmp_path_factory.mktemp("logs")
    with Broker(settings=SETTINGS, data_dir=path) as broker:
        broker.create_topic("orders", partitions=1)
        broker.create_topic("compacted", partitions=1, configs=COMPACTED)
        transact(broker.bootstrap)
        compact(broker)
    return path


def kafka_dump(paths: list[Path], *options: str) -> list[dict[str, str]]:
    """The lines of DumpLogSegments with fields, as they are written."""
    files = ",".join(map(str, paths))
    printed = run_kafka_tool(DUMP_LOG_SEGMENTS, *options, "--files", files, timeout_s=PATIENCE_S).stdout
    return [
        dict(FIELD.findall(line.removeprefix("| ")))
        for line in printed.splitlines()
        if re.match(r"(\| )?(baseOffset|offset|producerId|version|timestamp): ", line)
    ]


def our_dump(paths: list[Path]) -> list[dict[str, Any]]:
    """Our entries, batches and their records one after the other."""
    found = []
    for path in paths:
        for entry in read_entries(path, decoder_of(path.parent.name.rpartition("-")[0])):
            records = entry.pop("records", [])
            found += [entry, *records]
    return found


def snake_case(value: Any) -> Any:
    """Kafka's JSON with our spelling of names."""
    if isinstance(value, dict):
        return {re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower(): snake_case(item) for name, item in value.items()}
    if isinstance(value, list):
        return [snake_case(item) for item in value]
    return value


def optional(text: str) -> int | None:
    """A Java optional as printed."""
    return None if text == "OptionalLong.empty" else int(text.removeprefix("OptionalLong[").removesuffix("]"))


def files(data_dir: Path, partition: str, suffix: str) -> list[Path]:
    found = sorted((data_dir / partition).glob(f"*{suffix}"))
    assert found
    return found


BATCH_FIELDS = {
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "count": "count",
    "baseSequence": "base_sequence",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "partition_leader_epoch",
    "position": "position",
    "CreateTime": "max_timestamp",
    "size": "size_bytes",
    "crc": "crc",
}


def assert_same_batch(theirs: dict[str, str], ours: dict[str, Any]) -> None:
    assert {name: int(theirs[name]) for name in BATCH_FIELDS} == {
        name: ours[field] for name, field in BATCH_FIELDS.items()
    }
    for name, field in (("isTransactional", "is_transactional"), ("isControl", "is_control"), ("isvalid", "crc_valid")):
        assert (theirs[name] == "true") == ours[field]
    assert theirs["compresscodec"] == ours["compression"]
    assert optional(theirs["deleteHorizonMs"]) == ours["delete_horizon_ms"]


@pytest.mark.parametrize("partition", ["orders-0", "compacted-0"])
def test_batches_markers_and_records_are_those_that_kafka_prints(data_dir: Path, partition: str) -> None:
    paths = files(data_dir, partition, ".log")
    theirs, ours = kafka_dump(paths, "--deep-iteration", "--print-data-log"), our_dump(paths)
    assert len(theirs) == len(ours)
    controls = []
    for their, our in zip(theirs, ours, strict=True):
        if "baseOffset" in their:
            assert_same_batch(their, our)
            continue
        assert (int(their["offset"]), int(their["CreateTime"])) == (our["offset"], our["timestamp"])
        if "endTxnMarker" in their:
            controls.append(our["control"])
            assert (their["endTxnMarker"], int(their["coordinatorEpoch"])) == (our["control"], our["coordinator_epoch"])
        else:
            assert (their.get("key"), their.get("payload")) == (our["key"], our["value"])
    if partition == "orders-0":
        assert controls == ["COMMIT", "ABORT"]
    else:
        batches = [entry for entry in ours if "base_offset" in entry]
        assert any(entry["count"] <= entry["last_offset"] - entry["base_offset"] for entry in batches), (
            "nothing cleaned"
        )
        assert any(entry["delete_horizon_ms"] for entry in batches), "no tombstone waits"


def test_transaction_indexes_and_snapshots_are_those_that_kafka_prints(data_dir: Path) -> None:
    index = files(data_dir, "orders-0", ".txnindex")
    assert [snake_case(entry) for entry in kafka_dump(index)] == [
        {name: str(value) for name, value in entry.items()} for entry in our_dump(index)
    ]
    snapshots = files(data_dir, "orders-0", ".snapshot")
    theirs, ours = kafka_dump(snapshots), our_dump(snapshots)
    assert ours
    for their, our in zip(theirs, ours, strict=True):
        for name in ("producerId", "producerEpoch", "coordinatorEpoch", "lastSequence", "lastOffset", "timestamp"):
            assert int(their[name]) == our[re.sub(r"([A-Z])", r"_\1", name).lower()]
        first_offset = optional(their["currentTxnFirstOffset"])
        assert (-1 if first_offset is None else first_offset) == our["current_txn_first_offset"]
    assert any(our["current_txn_first_offset"] > 0 for our in ours), "no open transaction"


@pytest.mark.parametrize(
    ("topic", "option", "kinds"),
    [
        ("__transaction_state", "--transaction-log-decoder", {"TransactionLog"}),
        (
            "__consumer_offsets",
            "--offsets-decoder",
            {
                "OffsetCommit",
                "GroupMetadata",
                "ConsumerGroupMetadata",
                "ConsumerGroupMemberMetadata",
                "ConsumerGroupTargetAssignmentMetadata",
                "ConsumerGroupTargetAssignmentMember",
                "ConsumerGroupCurrentMemberAssignment",
                "ConsumerGroupRegularExpression",
            },
        ),
    ],
)
def test_records_of_coordinators_are_decoded_as_kafka_decodes_them(
    data_dir: Path, topic: str, option: str, kinds: set[str]
) -> None:
    paths = files(data_dir, f"{topic}-0", ".log")
    theirs = [entry for entry in kafka_dump(paths, option) if "key" in entry]
    ours = [entry for entry in our_dump(paths) if "key" in entry]
    assert {entry["type"] for entry in ours} == kinds
    for their, our in zip(theirs, ours, strict=True):
        assert int(their["offset"]) == our["offset"]
        assert snake_case(json.loads(their["key"])["data"]) == our["key"]
        if their["payload"] == "<DELETE>":
            assert our["value"] is None
            continue
        payload = snake_case(json.loads(their["payload"]))
        assert payload["version"] == str(our["version"])
        if our["type"] in STATE_FIELDS:
            field, names = STATE_FIELDS[our["type"]]
            # Kafka 4.4 prints the name of a transaction's state, and the number of others.
            payload["data"][field] = names.get(payload["data"][field], payload["data"][field])
        assert payload["data"] == our["value"]

"""The data of transactions: Produce, markers, committed readers, offsets inside of transactions."""

from __future__ import annotations

from typing import Any

from harness.batches import TRANSACTIONAL_FLAG, Batch, Record, batch

from comparator.broker import Broker
from comparator.registry import scenario
from comparator.scenarios.produce import TIMEOUT_MS, produce
from comparator.scenarios.transactions import add, end, init, prepare, topics

READ_COMMITTED = 1
ADDS_PARTITIONS = 12  # Produce
ADDS_OFFSETS = 5  # TxnOffsetCommit
NAMES_TOPICS_BY_ID = 6
V1, V2 = 4, 5


def transactional(producer: Any, sequence: int = 0, value: bytes = b"v", **header: int) -> bytes:
    who = {"producer_id": producer["producer_id"], "producer_epoch": producer["producer_epoch"], **header}
    return Batch(records=[Record(value=value)], flags=TRANSACTIONAL_FLAG, base_sequence=sequence, **who).encode()


def fetch(
    broker: Broker, note: str, topic: str, offset: int = 0, isolation_level: int = READ_COMMITTED, **more: int
) -> Any:
    partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": more.pop("limit", 1 << 20)}]
    asked = [{"topic": topic, "partitions": partitions}]
    fields = {"max_wait_ms": 0, "min_bytes": 1, "isolation_level": isolation_level, "topics": asked, **more}
    return broker.call("Fetch", 11, note, **fields)


def latest(broker: Broker, note: str, topic: str, version: int = 7) -> None:
    for isolation_level in (0, READ_COMMITTED):
        for timestamp in (-1, -2, 0):
            partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}]
            asked = [{"name": topic, "partitions": partitions}]
            fields = {"replica_id": -1, "isolation_level": isolation_level, "topics": asked}
            broker.call("ListOffsets", version, f"{note}, isolation {isolation_level}, {timestamp}", **fields)


def producers(broker: Broker, note: str, topic: str, *indexes: int) -> Any:
    asked = [{"name": topic, "partition_indexes": list(indexes or (0,))}]
    return broker.call("DescribeProducers", 0, note, topics=asked)


def write_marker(
    broker: Broker,
    version: int,
    note: str,
    topic: str,
    producer: Any,
    *,
    epoch: int = 0,
    commit: bool = True,
    **more: Any,
) -> Any:
    marker = {
        "producer_id": producer["producer_id"],
        "producer_epoch": producer["producer_epoch"] + epoch,
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": more.pop("indexes", [0])}],
        "coordinator_epoch": 0,
        **more,
    }
    return broker.call("WriteTxnMarkers", version, note, markers=[marker])


@scenario
def transactional_produce_in_every_version(broker: Broker) -> None:
    for version in broker.versions("Produce"):
        topic, name = f"txn-produce-{version}", f"produce-{version}"
        topic_id = broker.prepare_topic(topic)
        prepare(broker, name)
        producer = init(broker, 5, "begin", name)
        if version < ADDS_PARTITIONS:
            add(broker, 3, "the partition", name, producer, topics((topic, 0)))
        for sequence in range(3):
            produce(
                broker,
                version,
                f"sequence {sequence}",
                topic,
                transactional(producer, sequence),
                transactional_id=name,
                topic_id=topic_id,
            )
        fetch(broker, "an open transaction", topic)
        latest(broker, "an open transaction", topic)
        producers(broker, "an open transaction", topic)
        end(broker, V2 if version >= ADDS_PARTITIONS else V1, "commit", name, producer, version % 2 == 0)
        fetch(broker, "an ended transaction", topic)
        fetch(broker, "an ended transaction, everything", topic, isolation_level=0)
        latest(broker, "an ended transaction", topic)
        producers(broker, "an ended transaction", topic)


@scenario
def batches_that_are_part_of_no_transaction(broker: Broker) -> None:
    broker.prepare_topic("txn-stray", partitions=2)
    prepare(broker, "stray", "stray-unknown")
    producer = init(broker, 5, "begin", "stray")
    stranger = {**producer, "producer_id": producer["producer_id"] + 1}
    old = {**producer, "producer_epoch": producer["producer_epoch"] - 1}
    later = {**producer, "producer_epoch": producer["producer_epoch"] + 1}
    for version in (9, 10, 11, 12):
        for note, who, transactional_id in (
            ("not added", producer, "stray"),
            ("another producer id", stranger, "stray"),
            ("a later epoch", later, "stray"),
            ("no such transactional id", producer, "stray-unknown"),
        ):
            if version < ADDS_PARTITIONS or who is not producer or transactional_id != "stray":
                produce(broker, version, note, "txn-stray", transactional(who), transactional_id=transactional_id)
        produce(broker, version, "no transactional id", "txn-stray", transactional(producer))
        produce(broker, version, "nothing transactional", "txn-stray", batch(b"plain"), transactional_id="stray")
    add(broker, 3, "a partition", "stray", producer, topics(("txn-stray", 0)))
    for version in (9, 12):
        data = [
            {"index": 0, "records": transactional(producer, 0)},
            {"index": 1, "records": transactional(stranger, 0)},
        ]
        fields = {"acks": -1, "timeout_ms": TIMEOUT_MS, "transactional_id": "stray"}
        asked = [{"name": "txn-stray", "partition_data": data}]
        broker.call("Produce", version, "two producers", topic_data=asked, **fields)
    produce(broker, 11, "added", "txn-stray", transactional(producer), transactional_id="stray")
    produce(broker, 11, "duplicate of the first", "txn-stray", transactional(producer), transactional_id="stray")
    produce(broker, 11, "a gap", "txn-stray", transactional(producer, 5), transactional_id="stray")
    produce(broker, 11, "an older epoch", "txn-stray", transactional(old), transactional_id="stray")
    plain = batch(producer_id=producer["producer_id"], producer_epoch=producer["producer_epoch"], base_sequence=1)
    produce(broker, 11, "a plain batch in between", "txn-stray", plain, transactional_id="stray")
    data = [{"index": 0, "records": transactional(producer, 1)}, {"index": 1, "records": transactional(producer, 0)}]
    asked = [{"name": "txn-stray", "partition_data": data}]
    fields = {"acks": -1, "timeout_ms": TIMEOUT_MS, "transactional_id": "stray"}
    broker.call("Produce", 11, "one added, one not", topic_data=asked, **fields)
    end(broker, V1, "commit", "stray", producer)
    produce(broker, 11, "after the end", "txn-stray", transactional(producer, 2), transactional_id="stray")
    produce(broker, 11, "after the end, again", "txn-stray", transactional(producer, 1), transactional_id="stray")
    fetch(broker, "in the end", "txn-stray")


@scenario
def committed_readers_among_several_transactions(broker: Broker) -> None:
    broker.prepare_topic("txn-read")
    prepare(broker, "read-a", "read-b")
    first, second = init(broker, 5, "begin a", "read-a"), init(broker, 5, "begin b", "read-b")

    def write(producer: Any, name: str, sequence: int) -> None:
        produce(broker, 12, name, "txn-read", transactional(producer, sequence, b"x" * 300), transactional_id=name)

    def read(note: str) -> None:
        for offset in (0, 1, 2, 3, 5, 7):
            for limit in (1, 1 << 20):
                fetch(broker, f"{note}, from {offset}, {limit} bytes", "txn-read", offset, limit=limit)
        latest(broker, note, "txn-read")

    produce(broker, 12, "plain", "txn-read", batch(b"plain"))
    write(first, "read-a", 0)
    write(second, "read-b", 0)
    write(first, "read-a", 1)
    read("both open")
    second = end(broker, V2, "abort b", "read-b", second, committed=False)
    read("one aborted")
    produce(broker, 12, "plain", "txn-read", batch(b"plain"))
    first = end(broker, V2, "abort a", "read-a", first, committed=False)
    read("both aborted")
    write(first, "read-a", 0)
    write(second, "read-b", 0)
    end(broker, V2, "commit b", "read-b", second)
    read("the later one committed")
    end(broker, V2, "commit a", "read-a", first)
    read("all ended")


@scenario
def markers_by_hand(broker: Broker) -> None:
    broker.prepare_topic("txn-marker", partitions=2)
    for version in broker.versions("WriteTxnMarkers"):
        name = f"marker-{version}"
        prepare(broker, name)
        init(broker, 5, "begin", name)
        producer = init(broker, 5, "begin again", name)
        add(broker, 3, "a partition", name, producer, topics(("txn-marker", 0)))
        produce(broker, 11, "open", "txn-marker", transactional(producer), transactional_id=name)
        more: dict[str, Any] = {"transaction_version": 2} if version >= 2 else {}
        write_marker(broker, version, "no such partition", "txn-marker", producer, indexes=[7], **more)
        write_marker(broker, version, "no such topic", "txn-missing", producer, **more)
        write_marker(broker, version, "an older epoch", "txn-marker", producer, epoch=-1, **more)
        write_marker(broker, version, "no epoch", "txn-marker", {**producer, "producer_epoch": -1}, **more)
        write_marker(broker, version, "the epoch of the data", "txn-marker", producer, commit=False, **more)
        write_marker(broker, version, "the next epoch", "txn-marker", producer, epoch=1, indexes=[0, 1], **more)
        write_marker(broker, version, "the next epoch again", "txn-marker", producer, epoch=1, **more)
        write_marker(
            broker, version, "a later coordinator", "txn-marker", producer, epoch=2, coordinator_epoch=9, **more
        )
        write_marker(broker, version, "a former coordinator", "txn-marker", producer, epoch=3, **more)
        producers(broker, "in the end", "txn-marker", 0, 1)
        fetch(broker, "in the end", "txn-marker")
    broker.call("WriteTxnMarkers", 1, "nothing", markers=[])


@scenario
def one_partition_marked_twice(broker: Broker) -> None:
    broker.prepare_topic("txn-marked-twice")
    prepare(broker, "marked-twice")
    producer = init(broker, 5, "begin", "marked-twice")
    marker = {
        "producer_id": producer["producer_id"],
        "producer_epoch": producer["producer_epoch"],
        "transaction_result": True,
        "topics": [{"name": "txn-marked-twice", "partition_indexes": [0, 0]}],
        "coordinator_epoch": 0,
    }
    broker.call_in_vain("WriteTxnMarkers", 2, "one partition twice", markers=[marker])


@scenario
def producers_that_are_not_there(broker: Broker) -> None:
    broker.prepare_topic("txn-producers")
    producers(broker, "nobody", "txn-producers", 0, 3)
    producers(broker, "no such topic", "txn-producers-missing")
    producers(broker, "no topic's name", "no good")
    broker.call("DescribeProducers", 0, "nothing", topics=[])


def commit_inside(broker: Broker, version: int, note: str, producer: Any, offset: int, **more: Any) -> Any:
    """TxnOffsetCommit of one partition of ``txn-offsets``, unless ``more`` says otherwise."""
    metadata = more.pop("committed_metadata", "m")
    partition = {
        "partition_index": more.pop("index", 0),
        "committed_offset": offset,
        "committed_metadata": metadata,
    }
    fields = {
        "transactional_id": f"offsets-{version}",
        "group_id": f"txn-group-{version}",
        "producer_id": producer["producer_id"],
        "producer_epoch": producer["producer_epoch"],
        "topics": [{**topic_of(broker, version, more.pop("topic", "txn-offsets")), "partitions": [partition]}],
        **more,
    }
    return broker.call("TxnOffsetCommit", version, note, **fields)


def topic_of(broker: Broker, version: int, name: str) -> dict[str, Any]:
    """How TxnOffsetCommit names a topic; what does not exist has an id of nothing."""
    if version < NAMES_TOPICS_BY_ID:
        return {"name": name}
    reply = broker.quietly(
        "Metadata", 12, topics=[{"topic_id": bytes(16), "name": name}], allow_auto_topic_creation=False
    )
    found = reply["topics"][0]
    return {"topic_id": bytes(15) + b"\x63" if found["error_code"] else found["topic_id"]}


def fetch_offsets(broker: Broker, note: str, group: str) -> None:
    for stable in (False, True):
        asked = [{"name": "txn-offsets", "partition_indexes": [0, 1]}]
        fields = {"group_id": group, "topics": asked, "require_stable": stable}
        broker.call("OffsetFetch", 7, f"{note}, stable {stable}", **fields)


@scenario
def offsets_inside_of_transactions(broker: Broker) -> None:
    broker.prepare_topic("txn-offsets", partitions=2)
    for version in broker.versions("TxnOffsetCommit"):
        name, group = f"offsets-{version}", f"txn-group-{version}"
        prepare(broker, name)
        broker.wait_for_coordinator(group)
        producer = init(broker, 5, "begin", name)
        if version < ADDS_OFFSETS:
            commit_inside(broker, version, "not added", producer, 1)
            who = {"producer_id": producer["producer_id"], "producer_epoch": producer["producer_epoch"]}
            broker.call("AddOffsetsToTxn", 3, transactional_id=name, group_id=group, **who)
        commit_inside(broker, version, "added", producer, 1)
        commit_inside(broker, version, "added, another", producer, 2)
        commit_inside(broker, version, "no such topic", producer, 2, topic="txn-offsets-missing")
        commit_inside(broker, version, "no such partition", producer, 2, index=9)
        commit_inside(broker, version, "long metadata", producer, 2, index=1, committed_metadata="x" * 5000)
        commit_inside(broker, version, "no metadata", producer, 2, index=1, committed_metadata=None)
        commit_inside(broker, version, "no group", producer, 2, group_id="")
        older = {**producer, "producer_epoch": producer["producer_epoch"] - 1}
        commit_inside(broker, version, "an older epoch", older, 2)
        if version >= 3:
            unknown: dict[str, Any] = {
                "group_id": f"{group}-unknown",
                "generation_id_or_member_epoch": 4,
                "member_id": "m",
            }
            commit_inside(broker, version, "a generation of an unknown group", producer, 2, **unknown)
            commit_inside(broker, version, "a member without a generation", producer, 2, member_id="m")
        fetch_offsets(broker, "open", group)
        end(broker, V2 if version >= ADDS_OFFSETS else V1, "end", name, producer, version % 2 == 1)
        fetch_offsets(broker, "ended", group)

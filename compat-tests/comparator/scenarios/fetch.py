"""Fetch: versions, offsets, limits, and incremental sessions."""

from __future__ import annotations

from typing import Any

from harness.batches import GZIP, Batch, Record, batch

from comparator.broker import Broker
from comparator.registry import scenario

UNKNOWN_ID = b"\x01" * 16
DEFAULT_MAX_BYTES = 1 << 20


def partition(index: int, offset: int, **more: Any) -> dict[str, Any]:
    return {"partition": index, "fetch_offset": offset, "partition_max_bytes": DEFAULT_MAX_BYTES, **more}


def fetch(broker: Broker, version: int, note: str, topics: list[dict[str, Any]], **more: Any) -> Any:
    fields = {"max_wait_ms": 50, "min_bytes": 1, "topics": topics, **more}
    return broker.call("Fetch", version, note, **fields)


def one(topic: str, *partitions: dict[str, Any], topic_id: bytes = bytes(16)) -> list[dict[str, Any]]:
    return [{"topic": topic, "topic_id": topic_id, "partitions": list(partitions)}]


def prepare_log(broker: Broker, name: str, batches: int = 4, partitions: int = 1, **configs: str) -> bytes:
    """A topic whose partition 0 holds batches of three records each."""
    topic_id = broker.prepare_topic(name, partitions, **configs)
    for number in range(batches):
        values = [f"{number}-{i}".encode() * 20 for i in range(3)]
        data = [{"name": name, "partition_data": [{"index": 0, "records": batch(*values)}]}]
        reply = broker.quietly("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data)
        assert reply["responses"][0]["partition_responses"][0]["error_code"] == 0, reply
    return topic_id


@scenario
def every_version(broker: Broker) -> None:
    topic_id = prepare_log(broker, "fetch")
    for version in broker.versions("Fetch"):
        for offset, note in ((0, "the start"), (4, "inside a batch"), (9, "the last batch"), (12, "the end")):
            fetch(broker, version, note, one("fetch", partition(0, offset), topic_id=topic_id))
        fetch(broker, version, "past the end", one("fetch", partition(0, 13), topic_id=topic_id))
        fetch(broker, version, "negative", one("fetch", partition(0, -1), topic_id=topic_id))
        committed = one("fetch", partition(0, 0), topic_id=topic_id)
        fetch(broker, version, "read committed", committed, isolation_level=1)


@scenario
def topics_and_partitions_that_are_not_there(broker: Broker) -> None:
    topic_id = prepare_log(broker, "fetch-there")
    for version in (4, 11, 12):
        fetch(broker, version, "unknown topic", one("fetch-missing", partition(0, 0)))
        fetch(broker, version, "unknown partition", one("fetch-there", partition(9, 0)))
        fetch(broker, version, "negative partition", one("fetch-there", partition(-1, 0)))
        both = one("fetch-there", partition(0, 0)) + one("fetch-missing", partition(0, 0))
        fetch(broker, version, "one of two", both)
    for version in (13, 18):
        fetch(broker, version, "unknown id", one("", partition(0, 0), topic_id=UNKNOWN_ID))
        fetch(broker, version, "zero id", one("", partition(0, 0)))
        fetch(broker, version, "unknown partition", one("", partition(9, 0), topic_id=topic_id))
    for version in (4, 12, 18):
        fetch(broker, version, "no topics", [])


@scenario
def leader_epochs(broker: Broker) -> None:
    topic_id = prepare_log(broker, "fetch-epochs")
    for version in (9, 12, 18):
        for epoch in (0, 1, 99, -1):
            asked = one("fetch-epochs", partition(0, 0, current_leader_epoch=epoch), topic_id=topic_id)
            fetch(broker, version, f"current epoch {epoch}", asked)
    for last_epoch in (0, 1, -1):
        asked = one("fetch-epochs", partition(0, 3, last_fetched_epoch=last_epoch), topic_id=topic_id)
        fetch(broker, 12, f"last fetched epoch {last_epoch}", asked)
    asked = one("fetch-epochs", partition(0, 99, last_fetched_epoch=0), topic_id=topic_id)
    fetch(broker, 12, "diverging: past the end of its epoch", asked)


@scenario
def limits_of_bytes(broker: Broker) -> None:
    prepare_log(broker, "fetch-limits")
    for limit in (0, 1, 100, 400, 10_000):
        fetch(broker, 11, f"partition limit {limit}", one("fetch-limits", partition(0, 0, partition_max_bytes=limit)))
        fetch(broker, 11, f"request limit {limit}", one("fetch-limits", partition(0, 0)), max_bytes=limit)
    fetch(broker, 11, "negative limit", one("fetch-limits", partition(0, 0, partition_max_bytes=-1)))
    fetch(broker, 11, "negative request limit", one("fetch-limits", partition(0, 0)), max_bytes=-1)
    fetch(broker, 11, "minimum out of reach", one("fetch-limits", partition(0, 0)), min_bytes=1 << 20)
    fetch(broker, 11, "no minimum", one("fetch-limits", partition(0, 12)), min_bytes=0, max_wait_ms=5000)
    for level in (2, -1):
        fetch(broker, 11, f"isolation level {level}", one("fetch-limits", partition(0, 0)), isolation_level=level)
    fetch(broker, 11, "no wait", one("fetch-limits", partition(0, 12)), max_wait_ms=0)
    fetch(broker, 11, "negative wait", one("fetch-limits", partition(0, 12)), max_wait_ms=-1)


@scenario
def limits_over_several_partitions(broker: Broker) -> None:
    broker.prepare_topic("fetch-wide", partitions=3)
    for index in range(3):
        data = [{"name": "fetch-wide", "partition_data": [{"index": index, "records": batch(b"x" * 1000)}]}]
        broker.quietly("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data)
    asked = one("fetch-wide", *(partition(index, 0) for index in range(3)))
    for limit in (1, 1100, 2500, 10_000):
        fetch(broker, 11, f"limit {limit}", asked, max_bytes=limit)
    narrow = one("fetch-wide", *(partition(index, 0, partition_max_bytes=10) for index in range(3)))
    fetch(broker, 11, "narrow partitions", narrow)


@scenario
def after_records_were_deleted(broker: Broker) -> None:
    prepare_log(broker, "fetch-trimmed")
    trimmed = [{"name": "fetch-trimmed", "partitions": [{"partition_index": 0, "offset": 4}]}]
    broker.quietly("DeleteRecords", 2, topics=trimmed, timeout_ms=10_000)
    for offset in (0, 3, 4, 5):
        fetch(broker, 11, f"offset {offset}", one("fetch-trimmed", partition(0, offset)))


@scenario
def compressed_batches_stay_whole(broker: Broker) -> None:
    broker.prepare_topic("fetch-gzip")
    records = Batch(records=[Record(value=b"x" * 100)] * 10, codec=GZIP).encode()
    data = [{"name": "fetch-gzip", "partition_data": [{"index": 0, "records": records}]}]
    broker.quietly("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data)
    for version in (4, 10, 11):
        fetch(broker, version, "inside", one("fetch-gzip", partition(0, 7)))


@scenario
def a_replica_that_is_none(broker: Broker) -> None:
    topic_id = prepare_log(broker, "fetch-replica")
    for version in (4, 12):
        fetch(broker, version, "as replica 1", one("fetch-replica", partition(0, 0)), replica_id=1)
        fetch(broker, version, "as replica 99", one("fetch-replica", partition(0, 0)), replica_id=99)
        fetch(broker, version, "as a debugger", one("fetch-replica", partition(0, 0)), replica_id=-2)
    state = {"replica_id": 99, "replica_epoch": 0}
    fetch(broker, 15, "as replica 99", one("", partition(0, 0), topic_id=topic_id), replica_state=state)


@scenario
def a_cluster_id_that_is_not_ours(broker: Broker) -> None:
    prepare_log(broker, "fetch-cluster")
    fetch(broker, 12, "another cluster", one("fetch-cluster", partition(0, 0)), cluster_id="another")


@scenario
def a_parked_fetch_wakes_up(broker: Broker) -> None:
    topic_id = broker.prepare_topic("fetch-parked")
    for version in (4, 12, 18):
        asked = one("fetch-parked", partition(0, _end(broker, "fetch-parked")), topic_id=topic_id)
        fields = {"max_wait_ms": 20_000, "min_bytes": 1, "topics": asked}
        parked = broker.begin("Fetch", version, "woken by a produce", broker.connect(), **fields)
        data = [{"name": "fetch-parked", "partition_data": [{"index": 0, "records": batch(b"wake up")}]}]
        broker.quietly("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data)
        parked.reply()


@scenario
def sessions(broker: Broker) -> None:
    topic_id = prepare_log(broker, "session", partitions=2)
    for version in (7, 12, 13, 18):
        asked = one("session", partition(0, 0), partition(1, 0), topic_id=topic_id)
        opened = fetch(broker, version, "open", asked, session_epoch=0)
        session = opened["session_id"]

        def go_on(note: str, epoch: int, topics: list[dict[str, Any]] | None = None, **more: Any) -> None:
            fetch(broker, version, note, topics or [], session_id=session, session_epoch=epoch, **more)  # noqa: B023

        go_on("the same data again", 1)
        go_on("an advance", 2, one("session", partition(0, 6), topic_id=topic_id))
        go_on("at the end", 3, one("session", partition(0, 12), topic_id=topic_id))
        go_on("nothing new", 4, max_wait_ms=0)
        forgotten = [{"topic": "session", "topic_id": topic_id, "partitions": [1]}]
        go_on("forget one", 5, forgotten_topics_data=forgotten, max_wait_ms=0)
        go_on("forget what is not there", 6, forgotten_topics_data=forgotten, max_wait_ms=0)
        go_on("an unknown partition joins", 7, one("session", partition(9, 0), topic_id=topic_id))
        go_on("a wrong epoch", 20)
        go_on("an epoch of the past", 3)
        go_on("close", -1, asked)
        go_on("closed", 8)
    fetch(broker, 12, "no such session", [], session_id=123456, session_epoch=4)
    fetch(broker, 12, "negative session", [], session_id=-5, session_epoch=4)
    fetch(broker, 12, "epoch without a session", one("session", partition(0, 0)), session_id=0, session_epoch=4)


@scenario
def a_session_with_an_unknown_topic(broker: Broker) -> None:
    topic_id = prepare_log(broker, "session-known")
    asked = one("session-known", partition(0, 0), topic_id=topic_id)
    for version in (12, 13):
        unknown = one("session-unknown", partition(0, 0), topic_id=UNKNOWN_ID)
        opened = fetch(broker, version, "open with an unknown topic", asked + unknown, session_epoch=0)
        session = opened["session_id"]
        fetch(broker, version, "go on", [], session_id=session, session_epoch=1, max_wait_ms=0)


@scenario
def a_session_does_not_change_between_names_and_ids(broker: Broker) -> None:
    topic_id = prepare_log(broker, "session-mixed")
    asked = one("session-mixed", partition(0, 0), topic_id=topic_id)
    by_name = fetch(broker, 12, "by name", asked, session_epoch=0)["session_id"]
    fetch(broker, 13, "then by id", asked, session_id=by_name, session_epoch=1)
    by_id = fetch(broker, 13, "by id", asked, session_epoch=0)["session_id"]
    fetch(broker, 12, "then by name", asked, session_id=by_id, session_epoch=1)


def _end(broker: Broker, topic: str) -> int:
    latest = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    reply = broker.quietly("ListOffsets", 7, replica_id=-1, topics=latest)
    offset: int = reply["topics"][0]["partitions"][0]["offset"]
    return offset

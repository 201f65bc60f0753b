"""Fetch: whole batches, limits, waiting, and sessions."""

from __future__ import annotations

from typing import Any

import pytest
from harness.batches import GZIP, Batch, Record, batch

from conformance.wire.asking import (
    EARLIEST,
    TIMEOUT_MS,
    UNKNOWN_ID,
    Wire,
    end_offset,
    fetch,
    fetch_fields,
    list_offset,
    offsets,
    produce,
    produced,
    stored_batches,
)
from pybroker_protocol.errors import ErrorCode

BY_ID = 13
SESSIONS = 12
NEVER_MS = 30_000


# --- what is sent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, GZIP])
def test_an_offset_inside_a_batch_brings_the_whole_batch(wire: Wire, topic: str, codec: int) -> None:
    for _ in range(3):
        produce(wire, topic, Batch(records=[Record()] * 10, codec=codec).encode())
    for offset, first in ((0, 0), (1, 0), (9, 0), (10, 10), (15, 10), (29, 20)):
        assert offsets(wire, topic, offset)[0] == first


def test_the_first_batch_comes_however_large_it_is(wire: Wire, topic: str) -> None:
    for _ in range(2):
        produced(wire, topic, b"x" * 5000)
    for limits in ({"limit": 1}, {"max_bytes": 1}, {"limit": 1, "max_bytes": 1}):
        found = stored_batches(fetch(wire, topic, 1, **limits)["records"])
        assert [stored.base_offset for stored in found] == [1]
        assert len(found[0].records) > 5000


def test_only_the_first_partition_may_pass_the_limit(wire: Wire) -> None:
    topic = wire.topic(partitions=3)
    for index in range(3):
        produced(wire, topic, b"x" * 1000, index=index)
    asked = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for index in range(3)]
    fields = {"max_wait_ms": 0, "min_bytes": 1, "topics": [{"topic": topic, "partitions": asked}]}
    (replied,) = wire.ask("Fetch", 11, **fields, max_bytes=1)["responses"]
    brought = {found["partition_index"]: len(stored_batches(found["records"])) for found in replied["partitions"]}
    assert sorted(brought.values()) == [0, 0, 1]


def test_the_limit_of_a_partition_holds_behind_its_first_batch(wire: Wire, topic: str) -> None:
    for _ in range(4):
        produced(wire, topic, b"x" * 1000)
    size = len(batch(b"x" * 1000))
    assert offsets(wire, topic, limit=size) == [0]
    assert offsets(wire, topic, limit=2 * size) == [0, 1]
    assert offsets(wire, topic, limit=100 * size) == [0, 1, 2, 3]


def test_the_high_watermark_is_the_offset_of_the_next_record(wire: Wire, topic: str) -> None:
    assert fetch(wire, topic)["high_watermark"] == 0
    produced(wire, topic, b"1", b"2", b"3")
    found = fetch(wire, topic, 2)
    assert (found["high_watermark"], found["last_stable_offset"], found["log_start_offset"]) == (3, 3, 0)
    assert [stored.base_offset for stored in stored_batches(found["records"])] == [0]
    assert not fetch(wire, topic, 3)["records"]


def test_offsets_outside_of_the_log_are_out_of_range(wire: Wire, topic: str) -> None:
    produced(wire, topic, b"1", b"2")
    for offset, error in ((2, 0), (3, ErrorCode.OFFSET_OUT_OF_RANGE), (-1, ErrorCode.OFFSET_OUT_OF_RANGE)):
        assert fetch(wire, topic, offset)["error_code"] == error


def test_deleted_records_are_out_of_range(wire: Wire, topic: str) -> None:
    for _ in range(4):
        produced(wire, topic, b"v")
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}]
    (replied,) = wire.ask("DeleteRecords", 2, topics=asked, timeout_ms=TIMEOUT_MS)["topics"]
    assert replied["partitions"] == [{"partition_index": 0, "low_watermark": 2, "error_code": 0}]
    assert fetch(wire, topic, 1)["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(wire, topic, 2)["log_start_offset"] == 2
    assert list_offset(wire, topic, EARLIEST)["offset"] == 2
    assert end_offset(wire, topic) == 4


def test_a_stored_batch_carries_the_leaders_epoch(wire: Wire, topic: str) -> None:
    produce(wire, topic, Batch(partition_leader_epoch=7).encode())
    assert [found.leader_epoch for found in stored_batches(fetch(wire, topic)["records"])] == [0]


# --- who is asked ----------------------------------------------------------------------------------------------------


def test_topics_that_nobody_knows(wire: Wire, topic: str) -> None:
    assert fetch(wire, "missing-topic", version=12)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(wire, topic, version=12, index=9)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(wire, "", version=BY_ID, topic_id=UNKNOWN_ID)["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    topic_id = wire.topic_id(topic)
    assert fetch(wire, "", version=BY_ID, topic_id=topic_id)["error_code"] == ErrorCode.NONE
    beyond = fetch(wire, "", version=BY_ID, topic_id=topic_id, index=9)
    assert beyond["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_epoch_that_is_not_the_current_one_is_refused(wire: Wire, topic: str) -> None:
    produced(wire, topic, b"v")
    assert fetch(wire, topic, epoch=0)["error_code"] == ErrorCode.NONE
    assert fetch(wire, topic, epoch=99)["error_code"] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert list_offset(wire, topic, EARLIEST, epoch=99)["error_code"] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_end_of_a_leader_epoch_is_told(wire: Wire, topic: str) -> None:
    produced(wire, topic, b"1", b"2", b"3")

    def end_of(epoch: int) -> tuple[int, int]:
        asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}]
        fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": asked}]}
        found = wire.ask("OffsetForLeaderEpoch", 4, **fields)["topics"][0]["partitions"][0]
        return found["leader_epoch"], found["end_offset"]

    assert end_of(0) == (0, 3)
    assert end_of(99) == (-1, -1)


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_a_fetch_at_the_end_waits_for_data(wire: Wire, topic: str) -> None:
    waiting = wire.connect()
    waiting.send("ApiVersions", 0, {})
    waiting.receive("ApiVersions", 0)  # so that nothing overtakes its fetch before it is accepted
    waiting.send("Fetch", 11, fetch_fields(topic, max_wait_ms=NEVER_MS))
    wire.ask("ApiVersions", 0)  # so that the fetch, most likely, waits by now
    produced(wire, topic, b"awaited")
    (found,) = waiting.receive("Fetch", 11)["responses"][0]["partitions"]
    assert [stored.base_offset for stored in stored_batches(found["records"])] == [0]


def test_a_fetch_waits_for_as_much_as_it_wants(wire: Wire, topic: str) -> None:
    waiting = wire.connect()
    size = len(batch(b"x" * 100))
    waiting.send("Fetch", 11, fetch_fields(topic, max_wait_ms=NEVER_MS, min_bytes=3 * size))
    wire.ask("ApiVersions", 0)  # so that the fetch, most likely, waits by now
    for _ in range(3):
        produced(wire, topic, b"x" * 100)
    (found,) = waiting.receive("Fetch", 11)["responses"][0]["partitions"]
    assert [stored.base_offset for stored in stored_batches(found["records"])] == [0, 1, 2]


def test_a_fetch_that_wants_nothing_does_not_wait(wire: Wire, topic: str) -> None:
    hasty = wire.connect()
    hasty.send("Fetch", 11, fetch_fields(topic, max_wait_ms=NEVER_MS, min_bytes=0))
    assert not hasty.receive("Fetch", 11)["responses"][0]["partitions"][0]["records"]


def offsets_without_a_wait(wire: Wire, topic: str, **limits: int) -> list[int]:
    """What a Fetch brings that might wait for far longer than anybody's patience lasts."""
    hasty = wire.connect()
    hasty.send("Fetch", 11, fetch_fields(topic, max_wait_ms=10 * NEVER_MS, **limits))
    (found,) = hasty.receive("Fetch", 11)["responses"][0]["partitions"]
    return [stored.base_offset for stored in stored_batches(found["records"])]


def test_a_minimum_above_the_limit_is_no_more_than_the_limit(wire: Wire, topic: str) -> None:
    """Else a consumer with much to read waits for as long as it may with every fetch."""
    for _ in range(3):
        produced(wire, topic, b"x" * 1000)
    assert offsets_without_a_wait(wire, topic, min_bytes=1 << 20, max_bytes=len(batch(b"x" * 1000)) + 10) == [0]


def test_a_fetch_of_an_earlier_segment_does_not_wait(wire: Wire) -> None:
    """It ends with the segment, so that a wait would bring nothing."""
    topic = wire.topic(segment_bytes=str(1 << 20))
    for _ in range(2):
        produced(wire, topic, b"x" * 600_000)
    assert offsets_without_a_wait(wire, topic, min_bytes=1 << 24) == [0]


# --- sessions --------------------------------------------------------------------------------------------------------


class Session:
    """An incremental fetch session over the partitions of one topic."""

    def __init__(self, wire: Wire, topic: str, *indexes: int) -> None:
        self.wire = wire
        self.topic = topic
        self.epoch = 0
        self.session_id = 0
        reply = self.ask(*((index, 0) for index in indexes))
        assert reply["error_code"] == 0, reply
        self.session_id = reply["session_id"]
        self.first = self.told(reply)

    def ask(self, *positions: tuple[int, int], epoch: int | None = None, forget: int | None = None) -> Any:
        """Fetch on; positions that have changed are given as (partition, offset)."""
        asked = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for index, offset in positions
        ]
        fields = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 25,
            "session_id": self.session_id,
            "session_epoch": self.epoch if epoch is None else epoch,
            "topics": [{"topic": self.topic, "partitions": asked}] if asked else [],
            "forgotten_topics_data": [] if forget is None else [{"topic": self.topic, "partitions": [forget]}],
        }
        reply = self.wire.ask("Fetch", SESSIONS, **fields)
        if reply["error_code"] == 0:
            self.epoch += 1
        return reply

    @staticmethod
    def told(reply: Any) -> dict[int, int]:
        """The partitions that a reply speaks of, with the number of batches that came."""
        return {
            found["partition_index"]: len(stored_batches(found["records"]))
            for topic in reply["responses"]
            for found in topic["partitions"]
        }


def test_a_session_tells_only_what_is_new(wire: Wire) -> None:
    topic = wire.topic(partitions=3)
    produced(wire, topic, b"v", index=1)
    session = Session(wire, topic, 0, 1, 2)
    assert session.session_id > 0
    assert session.first == {0: 0, 1: 1, 2: 0}
    assert session.told(session.ask((1, 1))) == {}
    produced(wire, topic, b"v", index=2)
    assert session.told(session.ask()) == {2: 1}


def test_a_session_forgets_what_it_is_told_to_forget(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    session = Session(wire, topic, 0, 1)
    session.ask(forget=0)
    for index in range(2):
        produced(wire, topic, b"v", index=index)
    assert session.told(session.ask()) == {1: 1}


def test_a_session_goes_on_only_with_its_next_epoch(wire: Wire, topic: str) -> None:
    session = Session(wire, topic, 0)
    for epoch in (5, 2):
        assert session.ask(epoch=epoch)["error_code"] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert session.ask(epoch=1)["error_code"] == ErrorCode.NONE
    assert session.ask(epoch=1)["error_code"] == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_that_was_closed_is_not_there(wire: Wire, topic: str) -> None:
    session, other = Session(wire, topic, 0), Session(wire, topic, 0)
    assert session.session_id != other.session_id
    session.ask((0, 0), epoch=-1)
    assert session.ask(epoch=2)["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert other.ask()["error_code"] == ErrorCode.NONE

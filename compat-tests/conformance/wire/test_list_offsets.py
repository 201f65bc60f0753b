"""ListOffsets: the special timestamps, and those of records."""

from __future__ import annotations

from harness.batches import BASE_TIMESTAMP_MS

from conformance.wire.asking import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Wire,
    list_offset,
    produce,
    produced,
    timed_batch,
)
from pybroker_protocol.errors import ErrorCode

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
NEWEST = 11


def test_latest_and_earliest_are_the_ends_of_the_log(wire: Wire, topic: str) -> None:
    assert [list_offset(wire, topic, timestamp)["offset"] for timestamp in (LATEST, EARLIEST)] == [0, 0]
    produced(wire, topic, b"1", b"2", b"3")
    for version in (1, 7, NEWEST):
        found = [list_offset(wire, topic, timestamp, version) for timestamp in (LATEST, EARLIEST)]
        assert [each["offset"] for each in found] == [3, 0]
        assert [each["timestamp"] for each in found] == [-1, -1]


def test_a_timestamp_finds_the_first_record_that_is_not_older(wire: Wire, topic: str) -> None:
    produce(wire, topic, timed_batch(0, 10, 20))
    produce(wire, topic, timed_batch(100, 900, 1000))
    expected = {-1000: 0, 0: 0, 1: 1, 10: 1, 11: 2, 20: 2, 21: 3, 101: 4, 900: 4, 1000: 5}
    for delta, offset in expected.items():
        assert list_offset(wire, topic, BASE_TIMESTAMP_MS + delta)["offset"] == offset
    found = list_offset(wire, topic, BASE_TIMESTAMP_MS + 101)
    assert found["timestamp"] == BASE_TIMESTAMP_MS + 900


def test_a_timestamp_past_the_end_finds_nothing(wire: Wire, topic: str) -> None:
    produce(wire, topic, timed_batch(0, 10))
    found = list_offset(wire, topic, BASE_TIMESTAMP_MS + 11)
    assert (found["error_code"], found["offset"], found["timestamp"]) == (0, -1, -1)


def test_the_largest_timestamp_need_not_be_the_last(wire: Wire, topic: str) -> None:
    assert list_offset(wire, topic, MAX_TIMESTAMP)["offset"] == -1
    produce(wire, topic, timed_batch(0, 900, 50))
    produce(wire, topic, timed_batch(100, 200))
    found = list_offset(wire, topic, MAX_TIMESTAMP)
    assert (found["offset"], found["timestamp"]) == (1, BASE_TIMESTAMP_MS + 900)


def test_without_tiered_storage_nothing_is_tiered(wire: Wire, topic: str) -> None:
    produced(wire, topic, b"v")
    found = {stamp: list_offset(wire, topic, stamp, NEWEST) for stamp in (EARLIEST_LOCAL, LATEST_TIERED)}
    assert {stamp: (each["error_code"], each["offset"]) for stamp, each in found.items()} == {
        EARLIEST_LOCAL: (0, 0),
        LATEST_TIERED: (0, -1),
    }
    assert list_offset(wire, topic, EARLIEST_PENDING_UPLOAD, NEWEST)["offset"] == -1


def test_a_special_timestamp_is_refused_before_its_version(wire: Wire, topic: str) -> None:
    for timestamp, version in ((MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8)):
        assert list_offset(wire, topic, timestamp, version)["error_code"] == ErrorCode.UNSUPPORTED_VERSION
        assert list_offset(wire, topic, timestamp, version + 1)["error_code"] == ErrorCode.NONE


def test_a_partition_that_is_not_there(wire: Wire) -> None:
    found = list_offset(wire, "missing-topic", LATEST)
    assert (found["error_code"], found["offset"]) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_partition_asked_twice_is_refused(wire: Wire, topic: str) -> None:
    asked = [{"partition_index": 0, "timestamp": LATEST}, {"partition_index": 0, "timestamp": EARLIEST}]
    reply = wire.ask("ListOffsets", 7, replica_id=-1, topics=[{"name": topic, "partitions": asked}])
    assert {found["error_code"] for found in reply["topics"][0]["partitions"]} == {ErrorCode.INVALID_REQUEST}


def test_the_leader_epoch_of_an_offset_is_told_from_version_4(wire: Wire, topic: str) -> None:
    produced(wire, topic, b"v")
    for timestamp in (EARLIEST, LATEST, BASE_TIMESTAMP_MS):
        assert list_offset(wire, topic, timestamp, 4)["leader_epoch"] == 0

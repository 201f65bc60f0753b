"""Framing and order on a connection, whatever the API."""

from __future__ import annotations

from harness.batches import batch

from comparator.broker import Broker
from comparator.registry import scenario


@scenario
def lengths_that_no_frame_can_have(broker: Broker) -> None:
    for note, length in {"negative": -1, "zero": 0, "most negative": -(2**31), "far too long": 2**31 - 1}.items():
        broker.call_raw(f"a {note} length", length.to_bytes(4, "big", signed=True))
    broker.check_alive("a new connection works")


@scenario
def replies_leave_in_the_order_of_requests(broker: Broker) -> None:
    broker.prepare_topic("ordered")
    data = [{"name": "ordered", "partition_data": [{"index": 0, "records": batch(b"ordered")}]}]
    parked = [{"topic": "ordered", "partitions": [{"partition": 0, "fetch_offset": 9, "partition_max_bytes": 1000}]}]
    at_end = [{"topic": "ordered", "partitions": [{"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1000}]}]
    pending = [
        broker.begin("Produce", 9, acks=-1, timeout_ms=5000, topic_data=data),
        broker.begin("Fetch", 11, "waits a while", max_wait_ms=300, min_bytes=1, topics=at_end),
        broker.begin("Metadata", 9, topics=[{"name": "ordered"}], allow_auto_topic_creation=False),
        broker.begin("Fetch", 11, "out of range", max_wait_ms=300, min_bytes=1, topics=parked),
        broker.begin("Produce", 9, acks=1, timeout_ms=5000, topic_data=data),
        broker.begin("Heartbeat", 3, group_id="nobody-here", generation_id=1, member_id="m"),
    ]
    for request in pending:
        request.reply()


@scenario
def a_hundred_requests_at_once(broker: Broker) -> None:
    broker.prepare_topic("flood")
    data = [{"name": "flood", "partition_data": [{"index": 0, "records": batch(b"flood")}]}]
    pending = [broker.begin("Produce", 9, acks=-1, timeout_ms=5000, topic_data=data) for _ in range(100)]
    for request in pending:
        request.reply()


@scenario
def correlation_and_client_ids_of_any_kind(broker: Broker) -> None:
    for note, header in {
        "null client id": b"\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff",
        "empty client id": b"\x00\x12\x00\x00\x00\x00\x00\x07\x00\x00",
        "negative correlation id": b"\x00\x12\x00\x00\xff\xff\xff\xff\x00\x01a",
        "client id that is not UTF-8": b"\x00\x12\x00\x00\x00\x00\x00\x07\x00\x02\xff\xfe",
        "client id of length -2": b"\x00\x12\x00\x00\x00\x00\x00\x07\xff\xfe",
    }.items():
        broker.call_frame(note, header)
    unknown_tag = b"\x01\x05\x02ab"
    body = b"\x02a\x02b\x00"
    broker.call_frame("an unknown tag in the header", b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x01a" + unknown_tag + body)
    lying_tag = b"\x01\x05\x7fab"
    broker.call_frame("a tag longer than the frame", b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x01a" + lying_tag + body)
    broker.check_alive("a new connection works")

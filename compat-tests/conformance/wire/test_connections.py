"""Frames, headers, the order of replies, and ApiVersions."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from comparator.wire import CLOSED, Connection
from harness.batches import batch

from conformance.wire.asking import Wire, fetch, fetch_fields, offsets, produce, produce_fields
from pybroker_protocol.errors import ErrorCode

API_VERSIONS, METADATA, PRODUCE = 18, 3, 0
# Metadata v0 for all topics, and ApiVersions v0: requests without a single tagged field.
BARE_REQUESTS = {METADATA: bytes(4), API_VERSIONS: b""}
WAIT_MS = 300


def send_bare(connection: Connection, api_key: int, correlation_id: int) -> None:
    connection.send_frame(struct.pack(">hhih", api_key, 0, correlation_id, -1) + BARE_REQUESTS[api_key])


def correlation_id_of(payload: bytes | None) -> int:
    assert payload is not None, "the connection was closed"
    return int.from_bytes(payload[:4], "big", signed=True)


def api_versions(wire: Wire, version: int) -> Any:
    software = {"client_software_name": "wire", "client_software_version": "1.0"}
    return wire.ask("ApiVersions", version, **(software if version >= 3 else {}))


def announced_in(payload: bytes, version: int) -> tuple[int, list[tuple[int, ...]]]:
    """(error, (key, lowest, highest version) of each API) of an ApiVersions reply, taken apart by hand."""
    (error,) = struct.unpack_from(">h", payload, 4)
    if version >= 3:
        count, entries, entry_bytes = payload[6] - 1, 7, 7  # a compact array of structs with a count of tagged fields
        assert count < 127
    else:
        count, entries, entry_bytes = *struct.unpack_from(">i", payload, 6), 10, 6
    return error, [struct.unpack_from(">hhh", payload, entries + at * entry_bytes) for at in range(count)]


def is_alive(connection: Connection) -> bool:
    send_bare(connection, API_VERSIONS, 1)
    return connection.receive_payload() is not None


def test_what_is_produced_is_fetched(wire: Wire, lone_topic: str) -> None:
    topic = lone_topic
    """The canary: a broker that fails here is not one with a bug, but none at all."""
    for value in (b"one", b"two", b"three"):
        assert produce(wire, topic, batch(value), version=3, acks=1)["error_code"] == 0
    assert fetch(wire, topic, version=4)["records"][: len(batch(b"one"))].endswith(b"one\0")


# --- headers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("correlation_id", [0, 7, -1, -(2**31), 2**31 - 1])
def test_a_reply_carries_the_correlation_id_of_its_request(wire: Wire, correlation_id: int) -> None:
    connection = wire.connect()
    send_bare(connection, METADATA, correlation_id)
    send_bare(connection, API_VERSIONS, correlation_id)
    assert [correlation_id_of(connection.receive_payload()) for _ in range(2)] == [correlation_id] * 2


@pytest.mark.parametrize("version", range(5))
def test_the_header_of_an_api_versions_reply_has_no_tagged_fields(wire: Wire, version: int) -> None:
    connection = wire.connect()
    body = b"\x05wire\x021\0" if version >= 3 else b""
    connection.send_bytes(API_VERSIONS, version, body, flexible=version >= 3)
    payload = connection.receive_payload()
    assert payload is not None
    error, announced = announced_in(payload, version)
    assert error == 0
    assert METADATA in [key for key, _, _ in announced]


def test_tagged_fields_that_nobody_knows_are_skipped(wire: Wire) -> None:
    connection = wire.connect()
    unknown = b"\x01\x7e\x02ab"  # one field, of tag 126 and two bytes
    connection.send_frame(struct.pack(">hhih", API_VERSIONS, 3, 7, -1) + unknown + b"\x05wire\x021" + unknown)
    payload = connection.receive_payload()
    assert payload is not None
    assert payload[:6] == b"\0\0\0\x07\0\0"


def test_a_client_id_may_be_null_or_empty(wire: Wire) -> None:
    for length in (-1, 0):
        connection = wire.connect()
        connection.send_frame(struct.pack(">hhih", API_VERSIONS, 0, 7, length))
        assert correlation_id_of(connection.receive_payload()) == 7


# --- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [-1, -(2**31), 104_857_601, 2**31 - 1])
def test_a_length_that_no_frame_can_have_closes_the_connection(wire: Wire, length: int) -> None:
    connection = wire.connect()
    # Nothing follows the length: a broker that believes it waits for the rest.
    connection.send_raw(struct.pack(">i", length))
    assert connection.receive_payload() is None
    assert is_alive(wire.connect())


def test_bytes_behind_the_last_field_are_ignored(wire: Wire) -> None:
    connection = wire.connect()
    connection.send_bytes(METADATA, 1, bytes(4) + b"more", flexible=False)
    assert connection.receive_payload() is not None
    assert is_alive(connection)


def test_a_request_that_ends_too_early_closes_the_connection(wire: Wire) -> None:
    connection = wire.connect()
    connection.send_bytes(METADATA, 1, b"\0\0\0\x09", flexible=False)
    assert connection.receive_payload() is None


# --- order -----------------------------------------------------------------------------------------------------------


def test_no_reply_overtakes_one_that_waits(wire: Wire, topic: str) -> None:
    connection = wire.connect()
    connection.send("Fetch", 11, fetch_fields(topic, max_wait_ms=WAIT_MS))
    connection.send("Metadata", 9, {"topics": [], "allow_auto_topic_creation": False})
    connection.send("Produce", 9, produce_fields(topic, batch(b"late")))
    connection.send("ApiVersions", 0, {})
    replies = [connection.receive_payload() for _ in range(4)]
    assert [correlation_id_of(payload) for payload in replies] == [1, 2, 3, 4]


def test_many_requests_at_once_are_answered_in_order(wire: Wire, topic: str) -> None:
    connection = wire.connect()
    for number in range(60):
        connection.send("Produce", 9, produce_fields(topic, batch(b"%d" % number)))
        if number % 20 == 19:
            connection.send("ApiVersions", 0, {})
    payloads = [connection.receive_payload() for _ in range(63)]
    assert [correlation_id_of(payload) for payload in payloads] == list(range(1, 64))
    assert offsets(wire, topic) == list(range(60))


def test_a_request_without_acks_is_not_answered(wire: Wire, lone_topic: str) -> None:
    topic = lone_topic
    connection = wire.connect()
    for _ in range(3):
        connection.send("Produce", 9, produce_fields(topic, batch(), acks=0))
    send_bare(connection, API_VERSIONS, 77)
    assert correlation_id_of(connection.receive_payload()) == 77
    assert offsets(wire, topic) == [0, 1, 2]


def test_what_is_asked_behind_a_write_without_acks_sees_what_was_written(wire: Wire, lone_topic: str) -> None:
    topic = lone_topic
    connection = wire.connect()
    connection.send("Produce", 9, produce_fields(topic, batch(b"x" * 1_000_000), acks=0))
    connection.send("Fetch", 11, fetch_fields(topic))
    assert connection.receive("Fetch", 11)["responses"][0]["partitions"][0]["high_watermark"] == 1


def test_an_error_without_acks_closes_the_connection(wire: Wire, topic: str) -> None:
    connection = wire.connect()
    connection.send("Produce", 9, produce_fields(topic, batch(), acks=0, index=9))
    # The connection may be closed by now; a broker that keeps it open answers.
    with contextlib.suppress(OSError):
        send_bare(connection, API_VERSIONS, 77)
    assert connection.receive_payload() is None


# --- ApiVersions -----------------------------------------------------------------------------------------------------


def test_api_versions_of_the_future_is_told_in_version_0_which_ones_there_are(wire: Wire) -> None:
    served = next(entry for entry in api_versions(wire, 3)["api_keys"] if entry["api_key"] == API_VERSIONS)
    connection = wire.connect()
    connection.send_bytes(API_VERSIONS, 99, b"\x05wire\x021\0", flexible=True)
    payload = connection.receive_payload()
    assert payload is not None
    versions = (API_VERSIONS, 0, served["max_version"])
    assert served["max_version"] >= 4
    assert announced_in(payload, 0) == (ErrorCode.UNSUPPORTED_VERSION, [versions])
    assert is_alive(connection)


def test_produce_is_announced_from_0_but_served_from_3(wire: Wire) -> None:
    announced = {entry["api_key"]: entry for entry in api_versions(wire, 3)["api_keys"]}
    assert (announced[PRODUCE]["min_version"], announced[PRODUCE]["max_version"]) == (0, 13)
    connection = wire.connect()
    connection.send_bytes(PRODUCE, 2, b"\x00\x01\x00\x00\x03\xe8\x00\x00\x00\x00", flexible=False)
    assert connection.receive_payload() is None


@pytest.mark.parametrize(("api_key", "version"), [(METADATA, 99), (1, 3), (9999, 0), (-1, 0)])
def test_what_is_not_served_closes_the_connection(wire: Wire, api_key: int, version: int) -> None:
    connection = wire.connect()
    connection.send_bytes(api_key, version, bytes(64), flexible=False)
    assert connection.receive_payload() is None


def test_features_that_begin_at_0_are_left_out_below_version_4(wire: Wire) -> None:
    for version, from_zero in ((3, False), (4, True)):
        supported = {feature["name"]: feature for feature in api_versions(wire, version)["supported_features"]}
        assert "metadata.version" in supported
        assert any(feature["min_version"] == 0 for feature in supported.values()) is from_zero
        assert ("transaction.version" in supported) is from_zero


def test_finalized_features_say_which_protocols_are_served(wire: Wire) -> None:
    reply = api_versions(wire, 4)
    finalized = {feature["name"]: feature["max_version_level"] for feature in reply["finalized_features"]}
    assert finalized["transaction.version"] == 2
    assert finalized["group.version"] == 1
    assert reply["finalized_features_epoch"] >= 0


def test_a_client_software_name_has_a_form(wire: Wire) -> None:
    for name, error in (("ok.name-1", ErrorCode.NONE), ("has space", ErrorCode.INVALID_REQUEST)):
        asked = {"client_software_name": name, "client_software_version": "1.0"}
        assert wire.ask("ApiVersions", 3, **asked)["error_code"] == error


def test_telemetry_is_not_announced_without_a_subscription(wire: Wire) -> None:
    announced = {entry["api_key"] for entry in api_versions(wire, 4)["api_keys"]}
    assert not announced & {71, 72}


def test_a_closed_connection_takes_no_other_with_it(wire: Wire, topic: str) -> None:
    other = wire.connect()
    wire.connect().send_raw(struct.pack(">i", -1))
    other.send("Produce", 9, produce_fields(topic, batch()))
    assert other.receive("Produce", 9) != CLOSED

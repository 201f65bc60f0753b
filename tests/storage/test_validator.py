"""What Produce accepts: every rule of a batch's header and records, with Kafka's error code."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c
from harness.virtual_world import START_MS, VirtualWorld

from pybroker import storage_limits
from pybroker.storage.log.log import Log
from pybroker.storage.results import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
    AppendResult,
)
from pybroker.storage.rules import record_validator
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import is_intact, read_batch_header
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage, read

NOW = START_MS


def outcome(log: Log, world: VirtualWorld, **fields: Any) -> AppendResult:
    """The result of an append, on the loop or by the thread."""
    client = Client(log)
    result = client.send(**fields)
    if result is None:
        world.run()
        (result,) = client.later
    return result


@pytest.mark.parametrize(
    ("data", "error_code"),
    [
        (bytearray(), INVALID_RECORD),
        (bytearray(16), INVALID_RECORD),
        (bytearray(61), CORRUPT_MESSAGE),
        (batch()[:-1], INVALID_RECORD),
        (batch() + batch(), INVALID_RECORD),
        (batch(magic=1), INVALID_RECORD),
        (batch(magic=3), CORRUPT_MESSAGE),
        (batch(crc=1), CORRUPT_MESSAGE),
        (batch(base_offset=1), INVALID_RECORD),
        (batch(count=2), INVALID_RECORD),
        (batch(count=0), INVALID_RECORD),
        (batch(count=-1, last_offset_delta=-2), INVALID_RECORD),
        (batch([], count=0, last_offset_delta=-1), INVALID_RECORD),
        (batch(attributes=0x20), INVALID_RECORD),
        (batch(attributes=0x08), INVALID_TIMESTAMP),
        (batch(attributes=0x05), INVALID_RECORD),
        (batch(producer_id=1, producer_epoch=0, sequence=-1), INVALID_RECORD),
        (batch([bytes(3000)]), MESSAGE_TOO_LARGE),
        (batch(timestamp=NOW + 3_600_001), INVALID_TIMESTAMP),
    ],
)
def test_bad_batch_is_refused_with_kafkas_code(storage: Storage, data: bytearray, error_code: int) -> None:
    log = storage.log(max_message_bytes=2000)
    result = Client(log).send_now(data)
    assert result.error_code == error_code
    assert (result.base_offset, log.log_end_offset) == (-1, 0)
    assert result.error_message


def test_too_short_length_is_corrupt(storage: Storage) -> None:
    data = batch()
    data[8:12] = (13).to_bytes(4, "big")
    assert Client(storage.log()).send_now(data).error_code == CORRUPT_MESSAGE
    data[8:12] = (20).to_bytes(4, "big")
    assert Client(storage.log()).send_now(data).error_code == CORRUPT_MESSAGE


def test_every_truncation_of_a_batch_is_refused(storage: Storage) -> None:
    data = batch([b"value"] * 3)
    client = Client(storage.log())
    for length in range(len(data)):
        assert client.send_now(data[:length]).error_code in {CORRUPT_MESSAGE, INVALID_RECORD}


def test_every_flipped_bit_under_the_checksum_is_refused(storage: Storage) -> None:
    client = Client(storage.log())
    good = batch()
    for at in range(17, len(good)):
        data = bytearray(good)
        data[at] ^= 0x10
        assert client.send_now(data).error_code != 0
    assert client.log.log_end_offset == 0


def test_zstd_needs_produce_7(storage: Storage) -> None:
    client = Client(storage.log())
    assert client.send_now(batch(attributes=4), version=6).error_code == UNSUPPORTED_COMPRESSION_TYPE
    assert client.send_now(batch(attributes=4), version=7).error_code == 0


def test_timestamps_past_the_limit_name_their_records(storage: Storage) -> None:
    result = Client(storage.log()).send_now(
        values=[b"a", b"b", b"c"], timestamps=[NOW, NOW + 3_600_001, NOW + 4_000_000]
    )
    assert result.error_code == INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == [1, 2]


def test_old_timestamps_are_refused_only_where_a_limit_is_set(storage: Storage) -> None:
    fields: dict[str, Any] = {"values": [b"a", b"b"], "timestamps": [NOW - 5001, NOW]}
    assert Client(storage.log("free")).send_now(**fields).error_code == 0
    limited = Client(storage.log("limited", message_timestamp_before_max_ms=5000)).send_now(**fields)
    assert limited.error_code == INVALID_TIMESTAMP
    assert [index for index, _ in limited.record_errors] == [0]


def test_compacted_topic_refuses_records_without_key_one_by_one(storage: Storage) -> None:
    client = Client(storage.log(cleanup_policy=frozenset({"compact"})))
    result = client.send_now(values=[(b"k", b"v"), (None, b"v"), (b"k", None), (None, None)])
    assert result.error_code == INVALID_RECORD
    assert [index for index, _ in result.record_errors] == [1, 3]
    assert client.send_now(values=[(b"k", b"v"), (b"k", None)]).error_code == 0


def test_damaged_records_of_a_compacted_topic_are_refused(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(cleanup_policy=frozenset({"compact", "delete"}))
    assert outcome(log, world, values=[(b"k", b"v")], count=2, last_offset_delta=1).error_code == INVALID_RECORD


def test_log_append_time_stamps_the_batch_and_renews_its_checksum(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0)
    result = Client(log).send_now(values=[b"a", b"b"], timestamp=world.clock.now_ms() + 10_000_000)
    assert (result.error_code, result.log_append_time_ms) == (0, world.clock.now_ms())
    stored = read(log, 0)[0][2]
    assert {record.timestamp_ms for record in decode_records(stored)} == {world.clock.now_ms()}
    assert log.active.max_timestamp == world.clock.now_ms()


@pytest.mark.parametrize(
    ("target", "codec"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)]
)
@pytest.mark.parametrize("source", [0, 1])
def test_compression_type_of_the_topic_is_applied(storage: Storage, target: str, codec: int, source: int) -> None:
    log = storage.log(f"{target}-{source}", compression_type=target)
    result = Client(log).send_now(
        values=[b"a", b"b"], attributes=source, producer_id=5, producer_epoch=1, sequence=0, timestamps=[NOW, NOW + 7]
    )
    assert (result.error_code, result.last_offset) == (0, 1)
    stored = read(log, 0)[0][2]
    assert stored[22] & 7 == codec
    records = list(decode_records(stored))
    assert [(record.offset, record.value, record.timestamp_ms) for record in records] == [
        (0, b"a", NOW),
        (1, b"b", NOW + 7),
    ]
    assert stored[43:57] == batch(producer_id=5, producer_epoch=1, sequence=0)[43:57]


def test_changed_settings_count_from_the_next_append(storage: Storage) -> None:
    log = storage.log()
    client = Client(log)
    assert client.send_now(values=[bytes(1000)]).error_code == 0
    from tests.storage.logs import small_config

    log.update_config(small_config(max_message_bytes=500))
    assert client.send_now(values=[bytes(1000)]).error_code == MESSAGE_TOO_LARGE


def test_large_batch_is_decoded_in_the_thread_and_keeps_its_place(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(cleanup_policy=frozenset({"compact"}), internal_segment_bytes=1 << 24)
    client = Client(log)
    assert client.send(values=[(b"k", bytes(70_000))]) is None
    assert client.send(values=[(b"k", bytes(200_000))]) is None
    assert client.send(values=[(None, bytes(70_000))]) is None
    assert client.send(values=[(b"k", b"small")]) is None
    world.run()
    assert [(result.error_code, result.base_offset) for result in client.later] == [
        (0, 0),
        (0, 1),
        (INVALID_RECORD, -1),
        (0, 2),
    ]
    assert client.send_now(values=[(b"k", b"v")]).base_offset == 3


def test_large_batch_is_rewritten_in_the_thread(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(compression_type="gzip", internal_segment_bytes=1 << 24, message_timestamp_type="LogAppendTime")
    client = Client(log)
    assert client.send(values=[bytes(100_000), b"v"]) is None
    world.run()
    (result,) = client.later
    assert (result.error_code, result.last_offset, result.log_append_time_ms) == (0, 1, world.clock.now_ms())
    stored = read(log, 0)[0][2]
    assert len(stored) < 1000
    assert [record.timestamp_ms for record in decode_records(stored)] == [world.clock.now_ms()] * 2


@pytest.mark.parametrize("size", [1000, 100_000])
def test_batch_that_the_codec_of_the_topic_makes_too_large_is_refused(
    storage: Storage, world: VirtualWorld, size: int
) -> None:
    """As in Kafka: some hundred bytes of a producer could otherwise become a batch that no setting allows."""
    log = storage.log(compression_type="uncompressed", max_message_bytes=900, internal_segment_bytes=1 << 24)
    fields: dict[str, Any] = {"attributes": 1, "producer_id": 5, "producer_epoch": 0}
    result = outcome(log, world, values=[bytes(size)], sequence=0, **fields)
    assert (result.error_code, result.base_offset) == (MESSAGE_TOO_LARGE, -1)
    assert "max.message.bytes of 900" in (result.error_message or "")
    result = outcome(log, world, values=[bytes(800)], sequence=0, **fields)
    assert (result.error_code, result.base_offset) == (0, 0)
    assert [len(piece) for _, _, piece in read(log, 0)] == [len(batch([bytes(800)]))]


@pytest.mark.parametrize(
    ("values", "codec"),
    [
        ([(b"k", bytes(storage_limits.INLINE_DECODE_BYTES_MAX))], 1),
        ([(b"k", b"")] * (record_validator.INLINE_DECODE_RECORDS_MAX + 1), 0),
    ],
    ids=["large once it is decompressed", "of many records"],
)
def test_small_batch_that_takes_long_to_decode_is_decoded_in_the_thread(
    storage: Storage, world: VirtualWorld, values: list[Any], codec: int
) -> None:
    log = storage.log(cleanup_policy=frozenset({"compact"}), internal_segment_bytes=1 << 24)
    client = Client(log)
    assert len(batch(values, attributes=codec)) < storage_limits.INLINE_DECODE_BYTES_MAX
    assert client.send(values=values, attributes=codec) is None
    assert client.send(values=[(b"k", b"behind it")]) is None
    world.run()
    assert [(result.error_code, result.base_offset) for result in client.later] == [(0, 0), (0, len(values))]


def test_records_at_fault_of_a_large_batch_are_looked_for_in_the_thread(storage: Storage, world: VirtualWorld) -> None:
    client = Client(storage.log(internal_segment_bytes=1 << 24))
    values = [b"in time", bytes(storage_limits.INLINE_DECODE_BYTES_MAX)]
    assert client.send(values=values, timestamps=[NOW, NOW + 4_000_000]) is None
    world.run()
    (result,) = client.later
    assert (result.error_code, [index for index, _ in result.record_errors]) == (INVALID_TIMESTAMP, [1])
    assert result.error_message == "One or more records have been rejected due to invalid timestamp", "as Kafka says it"


@pytest.mark.parametrize("shift_ms", [-4_000_000, -1, 1, 4_000_000])
@pytest.mark.parametrize("settings", [{"cleanup_policy": frozenset({"compact"})}, {"pybroker_validate_records": True}])
def test_header_that_claims_another_maximum_than_its_records_have_is_corrected(
    storage: Storage, settings: dict[str, Any], shift_ms: int
) -> None:
    log = storage.log(**settings)
    assert Client(log).send_now(claiming(NOW + shift_ms)).error_code == 0
    stored = read(log, 0)[0][2]
    assert is_intact(stored)
    assert read_batch_header(stored).max_timestamp == log.active.max_timestamp == NOW


def test_header_that_claims_too_late_a_maximum_is_corrected_in_any_topic(storage: Storage) -> None:
    log = storage.log()
    assert Client(log).send_now(claiming(NOW + 4_000_000)).error_code == 0
    assert log.active.max_timestamp == NOW


def claiming(max_timestamp: int) -> bytearray:
    data = batch([(b"k", b"v")], timestamp=NOW)
    struct.pack_into(">q", data, 35, max_timestamp)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data

"""Records inside of batches, against kafka-python's builder and reader, and against hostile bytes."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from pybroker_protocol import codec
from pybroker_protocol.compression import Compression
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.records_control import EndTxnMarker
from pybroker_protocol.primitives import varint
from pybroker_protocol.record_codec import (
    ControlRecordType,
    NewRecord,
    Record,
    build_batch,
    control_key,
    control_type,
    decode_records,
    end_transaction_batch,
    end_transaction_marker,
)
from pybroker_protocol.records import HEADER_BYTES, is_intact, read_batch_header

CODECS = list(Compression)
HEADERS = [("name", b"value"), ("none", None), ("name", b""), ("grüße", b"\x00\xff")]

contents = st.one_of(st.none(), st.binary(max_size=200))
new_records = st.builds(
    NewRecord,
    key=contents,
    value=contents,
    headers=st.lists(st.tuples(st.text(max_size=10), contents), max_size=3),
    timestamp_ms=st.one_of(st.none(), st.integers(0, 2**42)),
)


@settings(max_examples=60, deadline=None, database=None)
@given(new=st.lists(new_records, min_size=1, max_size=70), compression=st.sampled_from(CODECS))
def test_built_batch_is_decoded_again_by_us_and_by_kafka_python(new: list[NewRecord], compression: int) -> None:
    batch = build_batch(new, timestamp_ms=1_700_000_000_000, base_offset=40, compression=compression)
    assert is_intact(batch)
    expected = [
        Record(
            40 + i,
            1_700_000_000_000 if r.timestamp_ms is None else r.timestamp_ms,
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            list(r.headers),
        )
        for i, r in enumerate(new)
    ]
    assert [record._replace(headers=list(record.headers)) for record in decode_records(batch)] == expected
    (theirs,) = MemoryRecords(batch)
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == expected
    assert read_batch_header(batch).max_timestamp == max(record.timestamp_ms for record in expected)


@pytest.mark.parametrize("compression", CODECS)
def test_batch_of_kafka_python_is_decoded(compression: int) -> None:
    builder: Any = MemoryRecordsBuilder(magic=2, compression_type=compression, batch_size=1 << 20, offset=0)
    for i in range(100):
        assert builder.append(timestamp=1000 + i, key=b"k%d" % i, value=None if i % 7 else b"v" * i, headers=HEADERS)
    builder.close()
    assert list(decode_records(memoryview(builder.buffer()))) == [
        Record(i, 1000 + i, b"k%d" % i, None if i % 7 else b"v" * i, HEADERS) for i in range(100)
    ]


def test_uncompressed_batch_is_the_same_as_kafka_pythons() -> None:
    builder: Any = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20, offset=0)
    builder.append(timestamp=1000, key=b"key", value=b"v" * 300, headers=HEADERS)
    builder.append(timestamp=900, key=None, value=None, headers=[])
    builder.close()
    ours = build_batch(
        [NewRecord(b"key", b"v" * 300, HEADERS), NewRecord(None, None, timestamp_ms=900)], timestamp_ms=1000
    )
    theirs = bytes(builder.buffer())
    # kafka-python has another partition leader epoch, which the checksum does not cover.
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


def test_batch_without_records_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        build_batch([], timestamp_ms=1)


@pytest.mark.parametrize(("commit", "kind"), [(True, ControlRecordType.COMMIT), (False, ControlRecordType.ABORT)])
def test_end_of_a_transaction_is_a_control_batch(commit: bool, kind: ControlRecordType) -> None:
    batch = end_transaction_batch(
        commit=commit, coordinator_epoch=17, producer_id=4, producer_epoch=2, timestamp_ms=1000
    )
    (record,) = decode_records(batch)
    assert control_type(record.key) == kind
    assert end_transaction_marker(record.value) == 17
    assert record.key == pack(">hh", 0, kind)
    assert record.value == pack(">h", 0) + codec.encode(EndTxnMarker(coordinator_epoch=17), 0)
    (theirs,) = MemoryRecords(batch)
    assert theirs.is_transactional
    assert theirs.is_control_batch


def test_control_records_have_kafkas_numbers() -> None:
    numbers = {"ABORT": 0, "COMMIT": 1, "LEADER_CHANGE": 2, "SNAPSHOT_HEADER": 3, "SNAPSHOT_FOOTER": 4}
    assert {kind.name: kind.value for kind in ControlRecordType} == numbers | {"KRAFT_VERSION": 5, "KRAFT_VOTERS": 6}
    assert control_key(ControlRecordType.COMMIT) == b"\x00\x00\x00\x01"


def test_control_record_that_is_cut_off_is_refused() -> None:
    assert control_type(control_key(ControlRecordType.LEADER_CHANGE) + b"newer") == 2
    for key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"):
        with pytest.raises(ProtocolError):
            control_type(key)
    for value in (None, b"", b"\x00\x00\x00"):
        with pytest.raises(ProtocolError):
            end_transaction_marker(value)


def with_payload(payload: bytes, count: int) -> bytes:
    """A batch whose header is right and whose records section is ``payload``."""
    head = bytearray(build_batch([(None, None)], timestamp_ms=1)[:HEADER_BYTES])
    head[8:12] = (HEADER_BYTES - 12 + len(payload)).to_bytes(4, "big")
    head[57:61] = count.to_bytes(4, "big", signed=True)
    return bytes(head) + payload


RECORD_BODY = b"\x00" + varint(0) + varint(0) + varint(1) + b"k" + varint(1) + b"v" + varint(0)


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"", 1),
        (varint(len(RECORD_BODY)) + RECORD_BODY, 2),
        (varint(len(RECORD_BODY)) + RECORD_BODY, 0),
        (varint(len(RECORD_BODY)) + RECORD_BODY + b"\x00", 1),
        (varint(len(RECORD_BODY) + 1) + RECORD_BODY, 1),
        (varint(len(RECORD_BODY) - 1) + RECORD_BODY, 1),
        (varint(len(RECORD_BODY) + 1) + RECORD_BODY + b"\x00", 1),
        (varint(-1), 1),
        (varint(8) + b"\x00\x00\x00" + varint(2**31 - 1), 1),
        (varint(6) + b"\x00\x00\x00" + varint(-1) + varint(-1) + varint(3), 1),
        (varint(7) + b"\x00\x00\x00" + varint(-1) + varint(-1) + varint(1) + varint(-1), 1),
        (varint(9) + b"\x00\x00\x00" + varint(-1) + varint(-1) + varint(1) + varint(1) + b"\xff" + varint(-1), 1),
    ],
)
def test_damaged_record_is_refused(payload: bytes, count: int) -> None:
    with pytest.raises(ProtocolError):
        list(decode_records(with_payload(payload, count)))


def test_record_that_ends_behind_the_batch_is_not_handed_out() -> None:
    records = decode_records(with_payload(varint(len(RECORD_BODY) + 1) + RECORD_BODY[:-3] + varint(9) + b"v", 1))
    with pytest.raises(ProtocolError, match="a record of"):
        next(records)


def test_record_of_the_damaged_ones_is_whole_without_the_damage() -> None:
    (record,) = decode_records(with_payload(varint(len(RECORD_BODY)) + RECORD_BODY, 1))
    assert (record.key, record.value) == (b"k", b"v")


@pytest.mark.parametrize("compression", CODECS)
def test_mutated_batch_is_decoded_or_refused(compression: int) -> None:
    random = Random(compression)
    new = [NewRecord(b"k%d" % i, b"value" * i, HEADERS) for i in range(20)]
    batch = build_batch(new, timestamp_ms=1000, compression=compression)
    for _ in range(300):
        damaged = bytearray(batch)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        with suppress(ProtocolError):
            list(decode_records(damaged[: random.choice((len(damaged), random.randrange(len(damaged))))], 1 << 20))

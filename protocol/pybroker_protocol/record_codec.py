"""The records inside of a batch: decoding, encoding, and building whole batches.

Owns: the varint encoding of records and their headers, batches made from scratch (by coordinators, tools and tests),
and control records.  Owns no rewriting of a batch (``storage/cleaner``).

Invariant: decoding never reads or allocates beyond what the batch's bytes can hold; damaged bytes are a
``ProtocolError``.  Timestamps are milliseconds, offsets absolute.

Kafka counterpart: org.apache.kafka.common.record.DefaultRecord, MemoryRecordsBuilder and ControlRecordType.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as FormatError
from typing import NamedTuple

from pybroker_protocol.checksum import crc32c
from pybroker_protocol.compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_varint, read_varlong, varint
from pybroker_protocol.records import (
    CONTROL_FLAG,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    read_batch_header,
)
from pybroker_protocol.schema import Buffer

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record of a batch, as it was decoded."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record to be built into a batch; ``timestamp_ms`` None stands for the batch's."""

    key: Buffer | None
    value: Buffer | None
    headers: Headers = ()
    timestamp_ms: int | None = None


class ControlRecordType(IntEnum):
    """What a control record says, by the number in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_CONTROL_KEY = Struct(">hh")  # version, type
_END_TXN_MARKER = Struct(">hi")  # version, coordinator epoch
_UNCOVERED = Struct(">qiibI")  # the batch header up to its checksum
_COVERED = Struct(">hiqqqhii")  # and behind it
_NULL = varint(-1)
_SMALL_MAX = 256  # varints below are kept encoded: lengths of what coordinators write, and most deltas


def decode_records(batch: Buffer, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Decode the records of the batch at the start of ``batch``, one by one.

    Raises ProtocolError, possibly after some records, where the bytes do not hold what the header says.
    The checksum is not looked at.
    """
    header = read_batch_header(batch)
    if header.magic != CURRENT_MAGIC or not HEADER_BYTES <= header.size_bytes <= len(batch):
        raise ProtocolError("not a whole record batch of magic 2")
    section = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    # Records are cut out of bytes, which is cheaper than out of a view.
    data = bytes(decompress(header.compression, section, decompressed_bytes_max))
    batch_time = header.max_timestamp if header.is_log_append_time else None
    pos = 0
    try:
        for _ in range(header.records_count):
            end, offset_delta, timestamp_delta, key, value, headers = _decode_record(data, pos)
            time = header.base_timestamp + timestamp_delta if batch_time is None else batch_time
            yield Record(header.base_offset + offset_delta, time, key, value, headers)
            pos = end
    except (UnicodeDecodeError, IndexError) as error:
        raise ProtocolError(f"a record is damaged: {error}") from error
    if pos != len(data):
        raise ProtocolError(f"{len(data) - pos} bytes after the last record")


def _decode_record(data: bytes, pos: int) -> tuple[int, int, int, bytes | None, bytes | None, Headers]:
    """The record at ``pos``: its end, offset delta, timestamp delta, key, value and headers.

    Most numbers of a record take one byte, and calls cost more than all the rest: so each is tried inline first.
    """
    length = data[pos] >> 1
    if data[pos] & 0x81:
        length, pos = read_varint(data, pos)
    else:
        pos += 1
    end = pos + length
    if length < 0 or end > len(data):
        raise ProtocolError(f"a record of {length} bytes")
    pos += 1  # one byte of attributes, of which none is in use
    timestamp_delta = data[pos] >> 1
    if data[pos] & 0x81:
        timestamp_delta, pos = read_varlong(data, pos)
    else:
        pos += 1
    offset_delta = data[pos] >> 1
    if data[pos] & 0x81:
        offset_delta, pos = read_varint(data, pos)
    else:
        pos += 1
    key, pos = _decode_bytes(data, pos, end)
    value, pos = _decode_bytes(data, pos, end)
    headers: Headers = ()
    if data[pos]:
        headers, pos = _decode_headers(data, pos, end)
    else:
        pos += 1
    if pos != end:
        raise ProtocolError("a record is not as long as it says")
    return end, offset_delta, timestamp_delta, key, value, headers


def _decode_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length = data[pos] >> 1
    if data[pos] & 0x81:
        length, pos = read_varint(data, pos)
        if length < 0:
            return None, pos
    else:
        pos += 1
    if length > end - pos:
        raise ProtocolError("a record's key, value or header ends behind the record")
    return data[pos : pos + length], pos + length


def _decode_headers(data: bytes, pos: int, end: int) -> tuple[Headers, int]:
    count, pos = read_varint(data, pos)
    if not 0 <= count <= (end - pos) // 2:  # a header takes two bytes at least
        raise ProtocolError(f"a record with {count} headers")
    headers = []
    for _ in range(count):
        name, pos = _decode_bytes(data, pos, end)
        if name is None:
            raise ProtocolError("a record header without a key")
        value, pos = _decode_bytes(data, pos, end)
        headers.append((name.decode(), value))
    return headers, pos


def build_batch(
    records: Iterable[NewRecord | tuple[Buffer | None, Buffer | None]],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    compression: int = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Build one batch of ``records``, given as ``NewRecord`` or as (key, value).

    ``timestamp_ms`` is the time of the records that have none of their own.  ValueError without any record.
    """
    first_time: int | None = None
    max_time = NO_TIMESTAMP
    section: list[bytes] = []
    for record in records:
        headers: Headers = ()
        time = timestamp_ms
        if isinstance(record, NewRecord):
            key, value, headers, own_time = record
            if own_time is not None:
                time = own_time
        else:
            key, value = record
        if first_time is None:
            first_time = max_time = time
        elif time > max_time:
            max_time = time
        if headers or time != first_time or key is None or value is None:
            section.append(_encode_record(len(section), time - first_time, key, value, headers))
        else:
            section.append(_encode_plain_record(len(section), key, value))
    if first_time is None:
        raise ValueError("a batch needs a record")
    attributes = compression | (TRANSACTIONAL_FLAG if is_transactional else 0) | (CONTROL_FLAG if is_control else 0)
    return _assemble(
        base_offset,
        partition_leader_epoch,
        compress(compression, b"".join(section)) if compression else b"".join(section),
        _COVERED.pack(
            attributes,
            len(section) - 1,
            first_time,
            max_time,
            producer_id,
            producer_epoch,
            base_sequence,
            len(section),
        ),
    )


def _assemble(base_offset: int, partition_leader_epoch: int, payload: bytes, covered: bytes) -> bytes:
    """Put the parts together; ``covered`` is what the checksum covers of the header, and the payload comes after."""
    length = HEADER_BYTES - LOG_OVERHEAD + len(payload)
    crc = crc32c(payload, crc32c(covered))
    return _UNCOVERED.pack(base_offset, length, partition_leader_epoch, CURRENT_MAGIC, crc) + covered + payload


def _encode_plain_record(offset_delta: int, key: Buffer, value: Buffer) -> bytes:
    """A record at the batch's first time, without headers: what coordinators write by the million."""
    try:
        body = b"".join((b"\0\0", _SMALL[offset_delta], _SMALL[len(key)], key, _SMALL[len(value)], value, b"\0"))
        return _SMALL[len(body)] + body
    except IndexError:
        return _encode_record(offset_delta, 0, key, value, ())


def _encode_record(
    offset_delta: int, timestamp_delta: int, key: Buffer | None, value: Buffer | None, headers: Headers
) -> bytes:
    body = b"".join(
        (
            b"\x00",
            _SMALL[timestamp_delta] if 0 <= timestamp_delta < _SMALL_MAX else varint(timestamp_delta),
            _SMALL[offset_delta] if offset_delta < _SMALL_MAX else varint(offset_delta),
            *_sized(key),
            *_sized(value),
            _encode_headers(headers) if headers else b"\x00",
        )
    )
    return _length(len(body)) + body


def _encode_headers(headers: Headers) -> bytes:
    parts: list[Buffer] = [_length(len(headers))]
    for name, data in headers:
        parts += (*_sized(name.encode()), *_sized(data))
    return b"".join(parts)


def _sized(data: Buffer | None) -> tuple[bytes, Buffer]:
    """A length and what has it."""
    return (_NULL, b"") if data is None else (_length(len(data)), data)


def _length(length: int) -> bytes:
    return _SMALL[length] if length < _SMALL_MAX else varint(length)


_SMALL = [varint(value) for value in range(_SMALL_MAX)]


def end_transaction_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
) -> bytes:
    """The control batch that ends a producer's transaction in a partition."""
    key = control_key(ControlRecordType.COMMIT if commit else ControlRecordType.ABORT)
    return build_batch(
        [(key, _END_TXN_MARKER.pack(0, coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def control_key(kind: ControlRecordType) -> bytes:
    """The key of a control record."""
    return _CONTROL_KEY.pack(0, kind)


def control_type(key: bytes | None) -> int:
    """The number of a control record's type, by its key; newer keys may be longer, and types unknown."""
    try:
        version, number = _CONTROL_KEY.unpack_from(key or b"")
    except FormatError as error:
        raise ProtocolError("the key of a control record is too short") from error
    if version < 0:
        raise ProtocolError(f"the key of a control record has version {version}")
    return int(number)


def end_transaction_marker(value: bytes | None) -> int:
    """The coordinator epoch in the value of a commit or abort marker."""
    try:
        _, coordinator_epoch = _END_TXN_MARKER.unpack_from(value or b"")
    except FormatError as error:
        raise ProtocolError("the value of a transaction marker is too short") from error
    return int(coordinator_epoch)

"""The records inside of a batch: decoding, encoding, and building whole batches.

Owns: the varint encoding of records and their headers, batches made from scratch (by coordinators, tools and tests)
and the cleaner's rewriting of a batch with fewer records, and control records.

Invariant: decoding never reads or allocates beyond what the batch's bytes can hold; damaged bytes are a
``ProtocolError``.  Timestamps are milliseconds, offsets absolute.

Kafka counterpart: org.apache.kafka.common.record.DefaultRecord, MemoryRecordsBuilder and ControlRecordType.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as FormatError
from typing import NamedTuple

from crc32c import crc32c

from pybroker_protocol.compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_varint, read_varlong, varint
from pybroker_protocol.records import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    CRC_AT,
    CURRENT_MAGIC,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
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
_CRC = Struct(">I")
_NULL = varint(-1)
_SMALL_MAX = 64  # a zigzag varint below is one byte, twice the number


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
    pos = 0
    try:
        for _ in range(header.records_count):
            record, pos = _decode_record(data, pos, header)
            yield record
    except (UnicodeDecodeError, IndexError) as error:
        raise ProtocolError(f"a record is damaged: {error}") from error
    if pos != len(data):
        raise ProtocolError(f"{len(data) - pos} bytes after the last record")


def _decode_record(data: bytes, pos: int, header: BatchHeader) -> tuple[Record, int]:
    length, pos = read_varint(data, pos)
    end = pos + length
    if length < 0 or end > len(data):
        raise ProtocolError(f"a record of {length} bytes")
    timestamp_delta, pos = read_varlong(data, pos + 1)  # one byte of attributes, of which none is in use
    offset_delta, pos = read_varint(data, pos)
    key, pos = _decode_bytes(data, pos, end)
    value, pos = _decode_bytes(data, pos, end)
    headers, pos = _decode_headers(data, pos, end)
    if pos != end:
        raise ProtocolError("a record is not as long as it says")
    timestamp_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers), pos


def _decode_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(data, pos)
    if length < 0:
        return None, pos
    if length > end - pos:
        raise ProtocolError("a record's key, value or header ends behind the record")
    return data[pos : pos + length], pos + length


def _decode_headers(data: bytes, pos: int, end: int) -> tuple[Headers, int]:
    count, pos = read_varint(data, pos)
    if not count:
        return (), pos
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
    new = [NewRecord(*record) for record in records]
    if not new:
        raise ValueError("a batch needs a record")
    times = [timestamp_ms if record.timestamp_ms is None else record.timestamp_ms for record in new]
    attributes = compression | (TRANSACTIONAL_FLAG if is_transactional else 0) | (CONTROL_FLAG if is_control else 0)
    section = b"".join(
        [
            _encode_record(delta, time - times[0], record.key, record.value, record.headers)
            for delta, (time, record) in enumerate(zip(times, new, strict=True))
        ]
    )
    header = BatchHeader(
        base_offset,
        0,
        partition_leader_epoch,
        CURRENT_MAGIC,
        0,
        attributes,
        len(new) - 1,
        times[0],
        max(times),
        producer_id,
        producer_epoch,
        base_sequence,
        len(new),
    )
    return _assemble(header, section)


def rebuild_batch(header: BatchHeader, records: Sequence[Record]) -> bytes:
    """Write a batch again with only these of its records, as compaction does.

    Offsets, sequence numbers, timestamps and attributes stay as they were: the result covers the same range of
    offsets.  ``records`` may be empty; such a batch keeps a producer's last sequence number.
    """
    times = [record.timestamp_ms for record in records]
    section = b"".join(
        [
            _encode_record(
                record.offset - header.base_offset,
                # Under LogAppendTime the records' own deltas say nothing: all share the batch's time.
                0 if header.is_log_append_time else record.timestamp_ms - header.base_timestamp,
                record.key,
                record.value,
                record.headers,
            )
            for record in records
        ]
    )
    max_timestamp = header.max_timestamp if header.is_log_append_time else max(times, default=NO_TIMESTAMP)
    return _assemble(header._replace(max_timestamp=max_timestamp, records_count=len(records)), section)


def _assemble(header: BatchHeader, section: bytes) -> bytes:
    """Compress the section, and put the header with the right length and checksum before it."""
    payload = compress(header.compression, section) if header.compression else section
    length = HEADER_BYTES - LOG_OVERHEAD + len(payload)
    head = bytearray(HEADER.pack(*header._replace(batch_length=length)))
    _CRC.pack_into(head, CRC_AT, crc32c(payload, crc32c(head[ATTRIBUTES_AT:])))
    return bytes(head) + payload


def _encode_record(
    offset_delta: int, timestamp_delta: int, key: Buffer | None, value: Buffer | None, headers: Headers
) -> bytes:
    body = b"".join(
        (
            b"\x00",
            _small_varint(timestamp_delta),
            _small_varint(offset_delta),
            _encode_bytes(key),
            _encode_bytes(value),
            _small_varint(len(headers)),
            b"".join(_encode_bytes(name.encode()) + _encode_bytes(data) for name, data in headers) if headers else b"",
        )
    )
    return varint(len(body)) + body


def _small_varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < _SMALL_MAX else varint(value)


def _encode_bytes(data: Buffer | None) -> bytes:
    return _NULL if data is None else _small_varint(len(data)) + data


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

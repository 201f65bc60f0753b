"""Record batches built by hand, sound or broken on purpose.

Owns: the bytes of a record batch v2, independent of pybroker's own codecs, so that a mistake there cannot hide here.
Every field can be set, also to something that no client would send.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import cramjam
import lz4.frame
from crc32c import crc32c

BASE_TIMESTAMP_MS = 1_700_000_000_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG, CONTROL_FLAG = 0x08, 0x10, 0x20

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_OFFSET, _CRC_END = 17, 21


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record; ``timestamp_delta_ms`` counts from the batch's base timestamp."""

    key: bytes | None = None
    value: bytes | None = b"value"
    timestamp_delta_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The header of one batch; what is ``None`` is computed as a sound client would."""

    records: Sequence[Record] = (Record(),)
    base_offset: int = 0
    base_timestamp_ms: int = BASE_TIMESTAMP_MS
    max_timestamp_ms: int | None = None
    partition_leader_epoch: int = -1
    magic: int = 2
    codec: int = NONE
    flags: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_offset_delta: int | None = None
    record_count: int | None = None
    batch_length: int | None = None
    crc: int | None = None

    def encode(self, *, section: bytes | None = None, payload: bytes | None = None) -> bytes:
        """The whole batch, header and (compressed) records.

        ``section`` stands in the records' place before it is compressed, ``payload`` in that of what is compressed.
        """
        section = records_section(self.records) if section is None else section
        body = compress(section, self.codec) if payload is None else payload
        count = len(self.records)
        max_delta = max((record.timestamp_delta_ms for record in self.records), default=0)
        max_timestamp = self.base_timestamp_ms + max_delta if self.max_timestamp_ms is None else self.max_timestamp_ms
        header = _HEADER.pack(
            self.base_offset,
            len(body) + _HEADER.size - 12 if self.batch_length is None else self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            0,
            self.codec | self.flags,
            count - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.base_timestamp_ms,
            max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            count if self.record_count is None else self.record_count,
        )
        batch = header + body
        crc = crc32c(batch[_CRC_END:]) if self.crc is None else self.crc
        return batch[:_CRC_OFFSET] + crc.to_bytes(4, "big") + batch[_CRC_END:]


def batch(*values: bytes | None, key: bytes | None = None, **header: int) -> bytes:
    """A sound batch with one record per value, unless ``header`` says otherwise."""
    records = [Record(key=key, value=value) for value in values or (b"value",)]
    return Batch(records=records, **header).encode()


def end_marker(producer_id: int, producer_epoch: int, commit: bool = True, coordinator_epoch: int = 0) -> bytes:
    """The control batch that ends a transaction, as only a transaction coordinator may write it."""
    marker = Record(key=struct.pack(">hh", 0, int(commit)), value=struct.pack(">hi", 0, coordinator_epoch))
    flags = CONTROL_FLAG | TRANSACTIONAL_FLAG
    return Batch(records=[marker], flags=flags, producer_id=producer_id, producer_epoch=producer_epoch).encode()


def legacy_message_set(magic: int) -> bytes:
    """One message of the format before record batches; clients of that age no longer reach Produce 3."""
    payload = struct.pack(">bb", magic, 0) + (struct.pack(">q", BASE_TIMESTAMP_MS) if magic == 1 else b"")
    message = b"\0\0\0\0" + payload + struct.pack(">i", -1) + struct.pack(">i", 5) + b"value"
    return struct.pack(">qi", 0, len(message)) + message


def records_section(records: Sequence[Record]) -> bytes:
    """The records of a batch, one behind the other, not compressed."""
    return b"".join(_record(index, record) for index, record in enumerate(records))


def _record(offset_delta: int, record: Record) -> bytes:
    body = b"\0" + varint(record.timestamp_delta_ms) + varint(offset_delta)
    body += _nullable_bytes(record.key) + _nullable_bytes(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += _nullable_bytes(name.encode()) + _nullable_bytes(value)
    return varint(len(body)) + body


def _nullable_bytes(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def varint(value: int) -> bytes:
    """Zigzag, then seven bits to a byte."""
    remaining = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


def compress(body: bytes, codec: int) -> bytes:
    """The bytes in one of the codecs."""
    match codec:
        case 1:
            return gzip.compress(body, mtime=0)
        case 2:
            return bytes(cramjam.snappy.compress_raw(body))
        case 3:
            return bytes(lz4.frame.compress(body))
        case 4:
            return bytes(cramjam.zstd.compress(body))
    return body

"""Record batches for tests, built by hand from the format's description, apart from the code under test."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence

from crc32c import crc32c

Record = tuple[bytes | None, bytes | None]


def varint(value: int) -> bytes:
    """A zig-zag varint."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_record(delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """One record of format 2 without headers."""
    body = b"\0" + varint(timestamp_delta) + varint(delta)
    for field in (key, value):
        body += varint(-1) if field is None else varint(len(field)) + field
    body += varint(0)
    return varint(len(body)) + body


def batch(
    values: Sequence[bytes | Record] = (b"value",),
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    timestamp: int = 1_700_000_000_000,
    timestamps: Sequence[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    count: int | None = None,
    last_offset_delta: int | None = None,
    magic: int = 2,
    crc: int | None = None,
) -> bytearray:
    """One batch, as a producer would send it; the keyword arguments may make it a bad one."""
    stamps = list(timestamps) if timestamps is not None else [timestamp] * len(values)
    records = b""
    for i, item in enumerate(values):
        key, value = item if isinstance(item, tuple) else (None, item)
        records += encode_record(i, stamps[i] - stamps[0], key, value)
    if attributes & 7 == 1:
        records = gzip.compress(records)
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        len(values) - 1 if last_offset_delta is None else last_offset_delta,
        stamps[0] if stamps else timestamp,
        max(stamps) if stamps else timestamp,
        producer_id,
        producer_epoch,
        sequence,
        len(values) if count is None else count,
    )
    tail += records
    checksum = crc32c(tail) if crc is None else crc
    return bytearray(struct.pack(">qiibI", base_offset, 9 + len(tail), leader_epoch, magic, checksum) + tail)


def end_marker(producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int = 0) -> bytearray:
    """The control batch that ends a transaction."""
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, coordinator_epoch)
    return batch([(key, value)], attributes=0x30, producer_id=producer_id, producer_epoch=producer_epoch)


def parse(data: bytes | memoryview) -> list[tuple[int, int, bytes]]:
    """(base offset, last offset, bytes) of the batches in ``data``, which must hold whole ones with good CRCs."""
    data = bytes(data)
    found = []
    position = 0
    while position < len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        piece = data[position : position + 12 + length]
        assert len(piece) == 12 + length, "the last batch is cut"
        assert crc32c(piece[21:]) == struct.unpack_from(">I", piece, 17)[0]
        found.append((base_offset, base_offset + struct.unpack_from(">i", piece, 23)[0], piece))
        position += 12 + length
    return found

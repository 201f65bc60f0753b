"""Record batches for tests of logs, which take values or (key, value) and want buffers that can be stamped.

The format is ``harness.batches``', apart from the code under test.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c
from harness import batches
from harness.batches import Batch

_CODEC_MASK = 7

Record = tuple[bytes | None, bytes | None]


def batch(
    values: Sequence[bytes | Record] = (b"value",),
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    timestamp: int = 1_700_000_000_000,
    timestamps: Sequence[int] | None = None,
    max_timestamp: int | None = None,
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
    first = stamps[0] if stamps else timestamp
    pairs = [item if isinstance(item, tuple) else (None, item) for item in values]
    made = Batch(
        records=[
            batches.Record(key=key, value=value, timestamp_delta_ms=stamp - first)
            for (key, value), stamp in zip(pairs, stamps, strict=True)
        ],
        base_offset=base_offset,
        base_timestamp_ms=first,
        max_timestamp_ms=max_timestamp,
        partition_leader_epoch=leader_epoch,
        magic=magic,
        codec=attributes & _CODEC_MASK,
        flags=attributes & ~_CODEC_MASK,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        last_offset_delta=last_offset_delta,
        record_count=count,
        crc=crc,
    )
    return bytearray(made.encode())


def end_marker(producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int = 0) -> bytearray:
    """The control batch that ends a transaction."""
    return bytearray(batches.end_marker(producer_id, producer_epoch, commit, coordinator_epoch))


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

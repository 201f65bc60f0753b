"""Record batches for tests, built by kafka-python: an independent encoder."""

from __future__ import annotations

from kafka.record.default_records import DefaultRecordBatchBuilder

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NOW_MS = 1_700_000_000_000


def batch(
    *values: bytes,
    key: bytes | None = b"k",
    codec: str = "none",
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch of magic 2 with a record per value; the n-th is ``n`` ms younger than the first."""
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], False, producer_id, producer_epoch, base_sequence, 1 << 24)
    for index, value in enumerate(values):
        builder.append(index, timestamp_ms + index, key, value, [])
    return bytes(builder.build())

"""Compacted logs for tests: keyed batches in, surviving records out, rounds of cleaning in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from harness.virtual_world import VirtualWorld

from pybroker.storage.cleaner.cleaner_jobs import CleaningJob, SourceSegment
from pybroker.storage.log.log import Log
from pybroker_protocol.record_codec import NewRecord, build_batch, decode_records, end_transaction_batch
from pybroker_protocol.records import (
    batches,
    read_batch_header,
    set_base_offset,
    set_partition_leader_epoch,
)
from tests.storage.logs import Storage, read_all

BACKOFF_MS = 1000
TIME_MS = 1_700_000_000_000


class Survivor(NamedTuple):
    """One data record of a log."""

    offset: int
    key: bytes | None
    value: bytes | None


def compacted(storage: Storage, **attributes: Any) -> Log:
    """A compacted log that any dirt makes due."""
    fields: dict[str, Any] = {
        "cleanup_policy": frozenset({"compact"}),
        "min_cleanable_dirty_ratio": 0.0,
        "file_delete_delay_ms": 100,
    }
    return storage.log(**(fields | attributes))


def put(log: Log, *records: tuple[bytes, bytes | None], **fields: Any) -> int:
    """Append one batch; its base offset.  The high watermark follows."""
    fields.setdefault("timestamp_ms", log.environment.now_ms())
    return append(log, build_batch([NewRecord(key, value) for key, value in records], **fields))


def append(log: Log, batch: bytes) -> int:
    """Append a batch as a follower does, so that no rule for clients gets in the way; its base offset."""
    placed = bytearray(batch)
    base_offset = log.log_end_offset
    set_base_offset(placed, base_offset)
    set_partition_leader_epoch(placed, 0)
    assert log.append_as_follower(memoryview(placed)).error_code == 0
    log.update_high_watermark(log.log_end_offset)
    return base_offset


def end_transaction(log: Log, producer_id: int, *, commit: bool, producer_epoch: int = 0) -> int:
    """Append an end marker; its offset."""
    marker = end_transaction_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=log.environment.now_ms(),
    )
    return append(log, marker)


def clean(world: VirtualWorld, rounds: int = 1) -> None:
    """Let the cleaner look, and everything that it finds be cleaned."""
    world.advance(rounds * (BACKOFF_MS + 500))


def all_batches(log: Log) -> list[tuple[Any, bytes]]:
    """(header, bytes) of every batch."""
    return [(header, data) for _, _, data in read_all(log) for _, header in batches(data)]


def survivors(log: Log) -> list[Survivor]:
    """The data records that are left, in the order of the log."""
    return [
        Survivor(record.offset, record.key, record.value)
        for header, data in all_batches(log)
        if not header.is_control
        for record in decode_records(data)
    ]


def markers(log: Log) -> list[int]:
    """The offsets of the control records that are left."""
    return [record.offset for header, data in all_batches(log) if header.is_control for record in decode_records(data)]


def file_names(log: Log) -> set[str]:
    """What lies in the log's directory."""
    return {path.name for path in log.path.glob("*")}


def job_over(directory: Path, batches: list[bytes], **fields: Any) -> CleaningJob:
    """A round over one segment of these batches, which lie one behind the other; ``fields`` of the job may differ."""
    offset, data = 0, bytearray()
    for batch in batches:
        placed = bytearray(batch)
        set_base_offset(placed, offset)
        data += placed
        offset = read_batch_header(placed).next_offset
    (directory / f"{0:020d}.log").write_bytes(data)
    job = CleaningJob(
        directory=str(directory),
        segments=[SourceSegment(0, len(data))],
        later_aborted=[],
        producers={},
        first_dirty_offset=0,
        first_uncleanable_offset=offset,
        now_ms=TIME_MS,
        delete_retention_ms=1,
        segment_bytes=1 << 30,
        index_bytes_max=1 << 20,
        index_interval_bytes=4096,
        offset_map_bytes=8 << 20,
        offset_map_load_factor=0.9,
        io_buffer_bytes=1 << 16,
        bytes_per_second=1e15,
        sync=False,
    )
    return job._replace(**fields)

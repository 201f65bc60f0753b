"""Reading the files of Apache Kafka's KRaft metadata log.

Owns: finding the newest snapshot and the log behind it in ``__cluster_metadata-0``, and yielding the data records of
both in order.  Nothing is written: the directory stays as Kafka left it.

Invariants:
- Control batches are skipped.
- The log ends before the first batch of the last segment that is cut off or damaged, as in Kafka's own recovery. A
  write was torn when the broker was killed.
- Damage anywhere else is an error.

Counterpart in Kafka: ``KafkaMetadataLog`` and ``RecordsSnapshotReader``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pybroker.cluster.store.metadata_store import StoreError
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import batches, is_intact

LOG_SUFFIX: Final = ".log"
SNAPSHOT_SUFFIX: Final = ".checkpoint"
_OFFSET_DIGITS: Final = 20


def read_values(log_dir: str) -> Iterator[bytes]:
    """The values of all data records, the newest snapshot's first; StoreError where something is missing or damaged."""
    folder = Path(log_dir)
    offset = 0
    snapshot = _newest_snapshot(folder)
    if snapshot is not None:
        offset = _offset_of(snapshot)
        yield from _snapshot_values(snapshot)
    segments = sorted(path for path in folder.glob(f"*{LOG_SUFFIX}") if _is_offset(path.name[:_OFFSET_DIGITS]))
    for position, segment in enumerate(segments):
        last = position == len(segments) - 1
        if not last and _offset_of(segments[position + 1]) <= offset:
            continue  # the snapshot has all of it
        for next_offset, values in _batches_from(segment, offset, last=last):
            yield from values
            offset = next_offset


def _newest_snapshot(folder: Path) -> Path | None:
    """Snapshots are called <end offset>-<epoch>.checkpoint, both zero-padded; the end offset is not part of them."""
    return max(
        (path for path in folder.glob(f"*-*{SNAPSHOT_SUFFIX}") if _is_offset(path.name[:_OFFSET_DIGITS])), default=None
    )


def _is_offset(text: str) -> bool:
    return len(text) == _OFFSET_DIGITS and text.isascii() and text.isdigit()


def _offset_of(path: Path) -> int:
    return int(path.name[:_OFFSET_DIGITS])


def _snapshot_values(path: Path) -> Iterator[bytes]:
    data = _read(path)
    end = 0
    try:
        for pos, header in batches(data):
            if not is_intact(data, pos):
                raise StoreError(f"the metadata snapshot {path} is damaged at byte {pos}")
            end = pos + header.size_bytes
            if not header.is_control:
                yield from _values(data[pos:end])
    except ProtocolError as error:
        raise StoreError(f"the metadata snapshot {path} is damaged: {error}") from error
    if end != len(data):
        raise StoreError(f"the metadata snapshot {path} is cut off")


def _batches_from(path: Path, offset: int, *, last: bool) -> Iterator[tuple[int, list[bytes]]]:
    """(next offset, values) of each batch at or behind ``offset``."""
    data = _read(path)
    end = 0
    try:
        for pos, header in batches(data):
            if not is_intact(data, pos):
                break
            end = pos + header.size_bytes
            if header.next_offset <= offset:
                continue
            if header.base_offset > offset:
                raise StoreError(f"the metadata log misses the records from offset {offset} on: {path}")
            yield header.next_offset, [] if header.is_control else _values(data[pos:end])
            offset = header.next_offset
    except ProtocolError as error:
        if not last:
            raise StoreError(f"the metadata log {path} is damaged: {error}") from error
    if end != len(data) and not last:
        raise StoreError(f"the metadata log {path} is damaged at byte {end}")


def _values(batch: memoryview) -> list[bytes]:
    return [record.value for record in decode_records(batch) if record.value is not None]


def _read(path: Path) -> memoryview:
    try:
        return memoryview(path.read_bytes())
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}") from error

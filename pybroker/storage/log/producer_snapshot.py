"""The ``.snapshot`` files of producer state, in Kafka's format (ProducerSnapshot.json, version 1).

Owns the format and the files' names:
- int16 version, uint32 CRC-32C of what follows, int32 count.
- Per producer: int64 id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp,
  int32 coordinator epoch, int64 first offset of the open transaction.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from pybroker.storage.files import os_file
from pybroker.storage.rules.producer_state import BatchFields, BatchMetadata, ProducerStateEntry
from pybroker_protocol.checksum import crc32c

SNAPSHOT_SUFFIX = ".snapshot"
_VERSION = 1
_NO_BATCH: BatchFields = (-1, -1, -1, -1, -1)
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_START = 6
_LAST_SEQUENCE = (1 << 31) - 1


def snapshot_path(directory: Path, offset: int) -> Path:
    """The snapshot of the state of everything below ``offset``."""
    return directory / f"{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offsets(directory: Path) -> list[int]:
    """The offsets of the snapshots in a partition's directory, rising."""
    return sorted(
        int(name[:20])
        for name in os_file.names_in(directory)
        if name.endswith(SNAPSHOT_SUFFIX) and name[:20].isdigit() and len(name) == 20 + len(SNAPSHOT_SUFFIX)
    )


def encode_snapshot(producers: dict[int, ProducerStateEntry]) -> bytes:
    """The bytes of a snapshot file."""
    parts = []
    for producer_id, entry in producers.items():
        last = BatchMetadata._make(entry.batches[-1] if entry.batches else _NO_BATCH)
        parts.append(
            _ENTRY.pack(
                producer_id,
                entry.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.base_offset,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        )
    body = len(parts).to_bytes(4, "big") + b"".join(parts)
    return _VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(data: bytes) -> dict[int, ProducerStateEntry] | None:
    """The producers of a snapshot file; ``None`` when it is torn, corrupt or of an unknown version."""
    if len(data) < _HEADER.size:
        return None
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION or crc32c(data[_CRC_START:]) != crc or len(data) != _HEADER.size + count * _ENTRY.size:
        return None
    producers = {}
    for fields in _ENTRY.iter_unpack(data[_HEADER.size :]):
        producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, txn_first = fields
        batches: tuple[BatchFields, ...] = ()
        if last_offset >= 0:
            first_sequence = (last_sequence - offset_delta) & _LAST_SEQUENCE if last_sequence >= 0 else last_sequence
            batches = ((first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp),)
        producers[producer_id] = ProducerStateEntry(epoch, batches, timestamp, coordinator_epoch, txn_first)
    return producers


def write_snapshot(directory: Path, offset: int, producers: dict[int, ProducerStateEntry], sync: bool) -> None:
    """Write the snapshot for ``offset``; with ``sync`` it survives power loss."""
    path, data = snapshot_path(directory, offset), encode_snapshot(producers)
    if not os_file.holds(path, data):
        os_file.replace_file(path, data, sync)


def latest_snapshot(directory: Path, offset_max: int) -> tuple[int, dict[int, ProducerStateEntry]] | None:
    """(offset, producers) of the last good snapshot at or below ``offset_max``; corrupt ones are removed."""
    for offset in reversed(snapshot_offsets(directory)):
        if offset > offset_max:
            continue
        path = snapshot_path(directory, offset)
        producers = decode_snapshot(os_file.read_bytes(path))
        if producers is not None:
            return offset, producers
        os_file.unlink_if_exists(path)
    return None


def delete_snapshots(directory: Path, below: int = 0, above: int | None = None) -> None:
    """Remove the snapshots at offsets below ``below`` and above ``above``."""
    for offset in snapshot_offsets(directory):
        if offset < below or (above is not None and offset > above):
            os_file.unlink_if_exists(snapshot_path(directory, offset))

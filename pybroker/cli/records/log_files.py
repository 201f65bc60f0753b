"""The files of a log directory, one generator of entries per kind of file.

Owns: which file is of which kind, and what must hold inside it.  A generator yields one flat document per entry and
raises ``CorruptFile`` where the file stops making sense.  Prints nothing and changes nothing.

Kafka counterpart: DumpLogSegments, and the checkpoint files' readers.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pybroker.cli.records.record_decoders import RecordDecoder
from pybroker_protocol.checksum import crc32c
from pybroker_protocol.compression import Compression
from pybroker_protocol.construct_forms import (
    OFFSET_INDEX_ENTRY,
    PRODUCER_SNAPSHOT_FILE,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
)
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import (
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    compute_crc,
    read_batch_header,
)

Entry = dict[str, Any]


class CorruptFile(Exception):
    """The file does not hold what its kind must hold; the message says where."""


def map_file(path: Path) -> memoryview:
    """The file's bytes, read on demand; the map lives as long as the view."""
    with path.open("rb") as stream:
        if path.stat().st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def read_log(path: Path, decoder: RecordDecoder | None) -> Iterator[Entry]:
    """Every batch of a segment, or of a KRaft snapshot; with a decoder its records too, under ``records``."""
    view = map_file(path)
    position = 0
    next_offset = 0
    while position < len(view):
        rest = len(view) - position
        header = read_batch_header(view, position) if rest >= HEADER_BYTES else None
        if header is None or header.batch_length < HEADER_BYTES - LOG_OVERHEAD or header.size_bytes > rest:
            raise CorruptFile(f"{rest} bytes from position {position} on are no whole batch")
        if header.magic != CURRENT_MAGIC:
            raise CorruptFile(f"the batch at position {position} has magic {header.magic}")
        if header.base_offset < next_offset:
            raise CorruptFile(f"offset {header.base_offset} at position {position} goes back from {next_offset}")
        entry = describe_batch(header, position)
        entry["crc_valid"] = compute_crc(view, position) == header.crc
        if decoder is not None and entry["crc_valid"]:
            entry["records"] = read_records(view[position : position + header.size_bytes], header, decoder)
        yield entry
        if not entry["crc_valid"]:
            raise CorruptFile(f"the batch of offset {header.base_offset} at position {position} has a wrong CRC")
        position += header.size_bytes
        next_offset = header.next_offset


def describe_batch(header: BatchHeader, position: int) -> Entry:
    """What a batch's header says."""
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "size_bytes": header.size_bytes,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "compression": compression_name(header.compression),
        "partition_leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
    }


def compression_name(number: int) -> str:
    """A codec's name in lower case, or its number when it is unknown."""
    try:
        return Compression(number).name.lower()
    except ValueError:
        return str(number)


def read_records(batch: memoryview, header: BatchHeader, decoder: RecordDecoder) -> list[Entry]:
    """The records of one intact batch; raises ``CorruptFile`` when they are not what the header says."""
    try:
        return [decoder(record, is_control=header.is_control) for record in decode_records(batch)]
    except ProtocolError as error:
        raise CorruptFile(f"the records of offset {header.base_offset}: {error}") from error


def index_entries(path: Path, form: Any) -> Iterator[Entry]:
    """The entries of an index that a broker may have preallocated: the zeros behind the last entry are none."""
    data = path.read_bytes()
    size = form.sizeof()
    if len(data) % size:
        raise CorruptFile(f"{len(data)} bytes are no whole number of entries of {size} bytes")
    used = -(-len(data.rstrip(b"\0")) // size) * size
    for start in range(0, used, size):
        parsed = form.parse(data[start : start + size])
        yield {name: value for name, value in parsed.items() if not name.startswith("_")}


def base_offset_of(path: Path) -> int:
    """The offset in a segment file's name."""
    digits = path.name.partition(".")[0]
    if not digits.isdigit():
        raise CorruptFile("the name is no offset")
    return int(digits)


def read_offset_index(path: Path) -> Iterator[Entry]:
    """Offset index: offsets and positions grow, and each position holds the batch of its offset."""
    base_offset = base_offset_of(path)
    segment = path.with_name(path.name.replace(".index", ".log"))
    log = map_file(segment) if segment.exists() else None
    last = (-1, -1)
    for entry in index_entries(path, OFFSET_INDEX_ENTRY):
        offset, position = base_offset + entry["relative_offset"], entry["position"]
        if offset <= last[0] or position <= last[1]:
            raise CorruptFile(f"the entry of offset {offset} at position {position} goes back")
        if log is not None:
            require_batch(log, offset, position)
        last = (offset, position)
        yield {"offset": offset, "position": position}


def require_batch(log: memoryview, offset: int, position: int) -> None:
    """Raise ``CorruptFile`` unless the batch at ``position`` holds ``offset``."""
    if position + HEADER_BYTES > len(log):
        raise CorruptFile(f"offset {offset} points behind the segment, to position {position}")
    header = read_batch_header(log, position)
    if not header.base_offset <= offset <= header.last_offset:
        raise CorruptFile(f"offset {offset} points to the batch of {header.base_offset} at position {position}")


def read_time_index(path: Path) -> Iterator[Entry]:
    """Time index: timestamps and offsets grow."""
    base_offset = base_offset_of(path)
    last = (-1, -1)
    for entry in index_entries(path, TIME_INDEX_ENTRY):
        timestamp, offset = entry["timestamp"], base_offset + entry["relative_offset"]
        if timestamp <= last[0] or offset < last[1]:
            raise CorruptFile(f"the entry of time {timestamp} and offset {offset} goes back")
        last = (timestamp, offset)
        yield {"timestamp": timestamp, "offset": offset}


def read_transaction_index(path: Path) -> Iterator[Entry]:
    """Transaction index: one entry per aborted transaction, in the order of their markers."""
    last_marker = base_offset_of(path) - 1
    for entry in index_entries(path, TRANSACTION_INDEX_ENTRY):
        if entry["version"] != 0 or entry["last_offset"] < entry["first_offset"]:
            raise CorruptFile(f"no entry of a transaction: {entry}")
        if entry["last_offset"] <= last_marker:
            raise CorruptFile(f"the marker at offset {entry['last_offset']} does not come after offset {last_marker}")
        last_marker = entry["last_offset"]
        yield entry


def read_producer_snapshot(path: Path) -> Iterator[Entry]:
    """Producer snapshot: one entry per producer id, under one checksum."""
    data = path.read_bytes()
    try:
        parsed = PRODUCER_SNAPSHOT_FILE.parse(data)
    except Exception as error:
        # construct raises a family of errors of its own for bytes that do not fit.
        raise CorruptFile(f"no producer snapshot: {type(error).__name__}") from error
    if crc32c(data[6:]) != parsed.crc:
        raise CorruptFile("the checksum is wrong")
    for producer in parsed.producers:
        yield {name: value for name, value in producer.items() if not name.startswith("_")}


def checkpoint_rows(path: Path) -> Iterator[list[str]]:
    """The rows of a checkpoint: version 0, their number, then themselves."""
    lines = path.read_text().splitlines()
    if len(lines) < 2 or lines[0] != "0" or not lines[1].isdigit():
        raise CorruptFile("no checkpoint of version 0")
    if int(lines[1]) != len(lines) - 2:
        raise CorruptFile(f"{lines[1]} entries were promised, {len(lines) - 2} are there")
    for line in lines[2:]:
        yield line.split(" ")


def read_offset_checkpoint(path: Path) -> Iterator[Entry]:
    """Recovery point, log start, replication and cleaner checkpoints: topic, partition, offset."""
    for row in checkpoint_rows(path):
        if len(row) != 3 or not row[1].isdigit() or not row[2].isdigit():
            raise CorruptFile(f"no topic, partition and offset: {' '.join(row)!r}")
        yield {"topic": row[0], "partition": int(row[1]), "offset": int(row[2])}


def read_leader_epochs(path: Path) -> Iterator[Entry]:
    """Leader epoch checkpoint: epochs and their start offsets grow."""
    last = (-1, -1)
    for row in checkpoint_rows(path):
        if len(row) != 2 or not row[0].isdigit() or not row[1].isdigit():
            raise CorruptFile(f"no epoch and offset: {' '.join(row)!r}")
        epoch, start_offset = int(row[0]), int(row[1])
        if epoch <= last[0] or start_offset < last[1]:
            raise CorruptFile(f"epoch {epoch} at offset {start_offset} goes back")
        last = (epoch, start_offset)
        yield {"epoch": epoch, "start_offset": start_offset}


def read_properties(path: Path) -> Iterator[Entry]:
    """partition.metadata and meta.properties: names and values."""
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.replace(": ", "=", 1).partition("=")
            yield {"name": name, "value": value}


BY_SUFFIX: dict[str, Callable[[Path], Iterator[Entry]]] = {
    ".index": read_offset_index,
    ".timeindex": read_time_index,
    ".txnindex": read_transaction_index,
    ".snapshot": read_producer_snapshot,
}
BY_NAME: dict[str, Callable[[Path], Iterator[Entry]]] = {
    "leader-epoch-checkpoint": read_leader_epochs,
    "recovery-point-offset-checkpoint": read_offset_checkpoint,
    "log-start-offset-checkpoint": read_offset_checkpoint,
    "replication-offset-checkpoint": read_offset_checkpoint,
    "cleaner-offset-checkpoint": read_offset_checkpoint,
    "partition.metadata": read_properties,
    "meta.properties": read_properties,
}
# A .checkpoint is a KRaft snapshot: record batches, like a segment.
LOG_SUFFIXES = (".log", ".checkpoint")


# What a cleaner writes, what takes the place of a segment at once, and what is left to be removed.
PASSING_SUFFIXES = (".cleaned", ".swap", ".deleted")


def kind_of(path: Path) -> str:
    """The suffix that tells what a file holds: ``.log`` of ``0.log`` and of ``0.log.cleaned``."""
    return Path(path.stem).suffix if path.suffix in PASSING_SUFFIXES else path.suffix


def is_known(path: Path) -> bool:
    """Whether ``read_entries`` can read a file of this name."""
    return kind_of(path) in (*LOG_SUFFIXES, *BY_SUFFIX) or path.name in BY_NAME


def is_live(path: Path) -> bool:
    """Whether a file belongs to the log as it stands: those that a cleaner writes may end anywhere."""
    return is_known(path) and path.suffix not in PASSING_SUFFIXES


def read_entries(path: Path, decoder: RecordDecoder | None) -> Iterator[Entry]:
    """The entries of a file, by what its name says it is; ``ValueError`` for a name that is not ``is_known``."""
    if kind_of(path) in LOG_SUFFIXES:
        return read_log(path, decoder)
    reader = BY_NAME.get(path.name) or BY_SUFFIX.get(kind_of(path))
    if reader is None:
        raise ValueError(f"{path.name} is no file of a log")
    return reader(path)

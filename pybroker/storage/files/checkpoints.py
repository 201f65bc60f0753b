"""Kafka's small text files: offset checkpoints of a log directory, ``meta.properties``, ``partition.metadata``.

Owns the formats.  A checkpoint is a line with version 0, a line with the number of entries, one line per entry.  All
files are replaced atomically; a file that cannot be read right is an error naming it, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pybroker.storage.files import os_file
from pybroker.storage.results import StorageError, TopicPartition
from pybroker_protocol.uuids import uuid_bytes, uuid_text

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"


def read_entries(path: Path, columns: int) -> list[list[str]]:
    """The entries of a checkpoint file, each split into ``columns``; none if there is no file.

    Raises StorageError when the file is not what it should be.
    """
    try:
        lines = os_file.read_lines(path)
    except FileNotFoundError:
        return []
    if not lines:
        return []  # Kafka takes an empty file, which a full disk leaves behind, for one without entries.
    rows = [line.split() for line in lines[2:] if line]
    if lines[0] != "0" or len(lines) < 2 or lines[1] != str(len(rows)) or any(len(row) != columns for row in rows):
        raise StorageError(f"The checkpoint file {path} is malformed")
    return rows


def write_entries(path: Path, entries: list[str], sync: bool) -> None:
    """Replace a checkpoint file."""
    os_file.replace_file(path, encode_entries(entries), sync)


def encode_entries(entries: list[str]) -> bytes:
    """What a checkpoint file holds."""
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode()


def read_offset_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Offsets by (topic, partition)."""
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in read_entries(path, 3)}
    except ValueError as error:
        raise StorageError(f"The checkpoint file {path} is malformed: {error}") from None


def write_offset_checkpoint(path: Path, offsets: dict[TopicPartition, int], sync: bool) -> None:
    """Replace an offset checkpoint."""
    write_entries(path, [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()], sync)


def read_partition_metadata(directory: Path) -> bytes | None:
    """The topic id in a partition's directory, ``None`` if it has no ``partition.metadata``."""
    path = directory / PARTITION_METADATA
    try:
        fields = dict(line.split(": ", 1) for line in os_file.read_lines(path) if line)
        if fields.get("version") != "0":
            raise StorageError(f"{path} has an unknown version")
        return uuid_bytes(fields["topic_id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        raise StorageError(f"{path} is malformed") from None


def write_partition_metadata(directory: Path, topic_id: bytes) -> None:
    """Write ``partition.metadata``; the next flush makes it last, as it does the first data."""
    text = f"version: 0\ntopic_id: {uuid_text(topic_id)}"
    os_file.replace_file(directory / PARTITION_METADATA, text.encode(), sync=False)


class MetaProperties:
    """``meta.properties``, version 1: whose log directory this is."""

    __slots__ = ("cluster_id", "directory_id", "node_id")

    def __init__(self, cluster_id: str, node_id: int, directory_id: bytes) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.directory_id = directory_id


def read_meta_properties(directory: Path) -> dict[str, str] | None:
    """The properties as they stand in the file, ``None`` if there is none.  Version 0 has ``broker.id``."""
    path = directory / META_PROPERTIES
    try:
        lines = os_file.read_lines(path)
    except FileNotFoundError:
        return None
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "!")))
    # Java escapes ':' and '=' in the values of properties files.
    properties = {key.strip(): value.strip().replace("\\", "") for key, value in pairs}
    if properties.get("version") not in {"0", "1"}:
        raise StorageError(f"{path} has an unknown version")
    return properties


def directory_id_of(directory: Path, properties: dict[str, str]) -> bytes:
    """The id of the log directory that these are the properties of, which have one; StorageError if it is none."""
    try:
        return uuid_bytes(properties["directory.id"])
    except ValueError as error:
        raise StorageError(f"{directory / META_PROPERTIES}: {error}") from None


def write_meta_properties(directory: Path, meta: MetaProperties) -> None:
    """Write ``meta.properties``, synced."""
    lines: Iterable[str] = (
        f"cluster.id={meta.cluster_id}",
        "version=1",
        f"node.id={meta.node_id}",
        f"directory.id={uuid_text(meta.directory_id)}",
        "",
    )
    os_file.replace_file(directory / META_PROPERTIES, "\n".join(lines).encode(), sync=True)

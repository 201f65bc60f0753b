"""What DescribeLogDirs tells of the log directories.

Owns: the sizes of volumes and partitions, also of partitions whose log nobody has opened.  Counterpart in Kafka:
``ReplicaManager.describeLogDirs``.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pybroker.storage.log_loader import segment_files

if TYPE_CHECKING:
    from pybroker.storage.log import Log
    from pybroker.storage.log_dir import LogDir
    from pybroker.storage.partition_places import PartitionPlaces
    from pybroker.storage.results import TopicPartition

logger = logging.getLogger("pybroker.storage")


class PartitionDescription:
    """One partition in DescribeLogDirs."""

    __slots__ = ("index", "offset_lag", "size_bytes", "topic")

    def __init__(self, topic: str, index: int, size_bytes: int, offset_lag: int) -> None:
        self.topic = topic
        self.index = index
        self.size_bytes = size_bytes
        self.offset_lag = offset_lag


class LogDirDescription:
    """One log directory in DescribeLogDirs; ``total_bytes`` and ``usable_bytes`` are its volume's, -1 if unknown."""

    __slots__ = ("offline", "partitions", "path", "total_bytes", "usable_bytes")

    def __init__(self, directory: LogDir) -> None:
        self.path = str(directory.path)
        self.offline = directory.offline
        self.partitions: list[PartitionDescription] = []
        self.total_bytes = self.usable_bytes = -1
        if self.offline:
            return
        try:
            usage = shutil.disk_usage(directory.path)
        except OSError as error:
            logger.warning("The volume of %s cannot be asked for its size: %s", directory.path, error)
        else:
            self.total_bytes, self.usable_bytes = usage.total, usage.free


def describe(
    directories: Sequence[LogDir],
    places: PartitionPlaces,
    logs: Mapping[TopicPartition, Log],
) -> list[LogDirDescription]:
    """Every directory with the partitions in it; ``logs`` are those that are in use."""
    described = {id(directory): LogDirDescription(directory) for directory in directories}
    for key in places:
        state = places[key]
        if state.directory.offline:
            continue
        log = logs.get(key)
        if log is not None and log.is_open:
            size, lag = log.size_bytes, max(log.log_end_offset - log.high_watermark, 0)
        else:
            size, lag = sum(file[1] for file in segment_files(state.path_of(key))), 0
        described[id(state.directory)].partitions.append(PartitionDescription(key[0], key[1], size, lag))
    return list(described.values())

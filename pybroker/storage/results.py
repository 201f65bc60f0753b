"""What appends and reads answer with, what a marker says, and the storage layer's own failure.

Owns the shapes that cross the boundary to the layers above.  Errors travel as Kafka's error codes inside them;
``StorageError`` is only for what a start cannot go on with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pybroker_protocol.errors import ErrorCode

# Plain numbers: an IntEnum's member costs more to compare and to pack.
NONE = int(ErrorCode.NONE)
OFFSET_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
CORRUPT_MESSAGE = int(ErrorCode.CORRUPT_MESSAGE)
MESSAGE_TOO_LARGE = int(ErrorCode.MESSAGE_TOO_LARGE)
RECORD_LIST_TOO_LARGE = int(ErrorCode.RECORD_LIST_TOO_LARGE)
INVALID_TIMESTAMP = int(ErrorCode.INVALID_TIMESTAMP)
OUT_OF_ORDER_SEQUENCE_NUMBER = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
DUPLICATE_SEQUENCE_NUMBER = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
INVALID_PRODUCER_EPOCH = int(ErrorCode.INVALID_PRODUCER_EPOCH)
INVALID_TXN_STATE = int(ErrorCode.INVALID_TXN_STATE)
TRANSACTION_COORDINATOR_FENCED = int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
INVALID_REPLICA_ASSIGNMENT = int(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
KAFKA_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
LOG_DIR_NOT_FOUND = int(ErrorCode.LOG_DIR_NOT_FOUND)
REPLICA_NOT_AVAILABLE = int(ErrorCode.REPLICA_NOT_AVAILABLE)
UNSUPPORTED_COMPRESSION_TYPE = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
INVALID_RECORD = int(ErrorCode.INVALID_RECORD)

# None of Kafka's: a follower's log lacks the end of a transaction, and has to begin anew.
LACKS_MARKER = -2

EMPTY = memoryview(b"")

# (topic, partition index)
TopicPartition = tuple[str, int]
# One of Kafka's codes for each partition that was asked for, 0 where all is well.
PartitionErrors = dict[TopicPartition, int]


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The indexes of each topic's partitions, in the order given."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return by_topic


class StorageError(Exception):
    """The disk, or what lies on it, does not allow what was asked: the directory goes offline or the start fails."""


class TransactionMarker(NamedTuple):
    """The end of one transaction, as it is written into each of its partitions.

    ``producer_epoch`` is the epoch of the marker, which from transaction version 2 on is newer than that of the data.
    ``transaction_version`` is the transaction's own (0 to 2): at 2 the partition insists on the newer epoch.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int


class AbortedTransaction(NamedTuple):
    """One aborted transaction; ``last_offset`` is that of its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Hole(NamedTuple):
    """Where a recovery found that a log has lost something, and has what came behind it.

    ``is_certain``: what is missing was not cleaned away, and what came behind it was never acknowledged.  Else
    Kafka, or an older version, may have cleaned it, or a run may have acknowledged before it synced.
    """

    offset: int
    is_certain: bool


class AppendResult:
    """The fate of one append; offsets are -1 where ``error_code`` is not 0.

    ``log_append_time_ms`` is -1 unless the topic stamps LogAppendTime.  ``record_errors`` holds (index in the batch,
    message) of records that were rejected one by one.  A repeated idempotent batch is answered with the
    original's offsets.
    """

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "last_offset",
        "leader_epoch",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        error_code: int,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        leader_epoch: int,
        record_errors: Sequence[tuple[int, str]] = (),
        error_message: str | None = None,
    ) -> None:
        self.error_code = error_code
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.leader_epoch = leader_epoch
        self.record_errors = record_errors
        self.error_message = error_message

    def __repr__(self) -> str:
        return f"AppendResult(error_code={self.error_code}, offsets={self.base_offset}..{self.last_offset})"


class ReadResult:
    """Whole record batches as they lie in the log, from the one that holds the asked offset on; or an error code."""

    __slots__ = ("error_code", "records")

    def __init__(self, error_code: int, records: memoryview) -> None:
        self.error_code = error_code
        self.records = records

    def __repr__(self) -> str:
        return f"ReadResult(error_code={self.error_code}, {len(self.records)} bytes)"


class TimestampOffset:
    """A record found by its timestamp, or why the search failed; ``leader_epoch`` is -1 where it is not known."""

    __slots__ = ("error_code", "leader_epoch", "offset", "timestamp")

    def __init__(self, timestamp: int, offset: int, leader_epoch: int, error_code: int = NONE) -> None:
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.error_code = error_code

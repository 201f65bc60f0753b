"""What the coordinators need of the layers above and beside them.

Owns: ``PartitionWriter`` and ``PartitionReader``, by which a coordinator reaches the log of its internal topic.
Owns no implementation: the replication layer has one, tests have another.

Counterpart in Kafka: ``PartitionWriter`` and ``CoordinatorLoader`` of coordinator-common.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pybroker.storage.results import TransactionMarker

# done(error_code, last_offset): last_offset is -1 when error_code is not 0.
AppendDone = Callable[[int, int], None]
# done(error_code, records): whole record batches; the view is valid only during the call.
ReadDone = Callable[[int, memoryview], None]


class TransactionalProducer(NamedTuple):
    """Whose transaction it is."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class PartitionWriter(Protocol):
    """Appends batches that a coordinator built to a partition that this broker leads."""

    def append(self, topic: str, partition: int, batch: bytes, done: AppendDone) -> None:
        """Append one record batch, without waiting for replication.

        ``done`` runs exactly once, inside this call or later on the loop, as soon as the batch lies in the leader's
        log or is known not to.  Errors are Kafka's codes (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
        KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, ...), never exceptions.
        """
        ...

    def verify_transaction(
        self,
        topic: str,
        partition: int,
        producer: TransactionalProducer,
        api_version: int,
        done: Callable[[int], None],
    ) -> None:
        """Make sure that the partition is part of the producer's open transaction, before a batch of it is appended.

        ``api_version`` is that of the TxnOffsetCommit request.  ``done(error_code)`` runs exactly once, inside this
        call or later on the loop.
        """
        ...

    def append_end_transaction(
        self, topic: str, partition: int, batch: bytes, marker: TransactionMarker, done: AppendDone
    ) -> None:
        """Append the control batch of a marker; as ``append``, and INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED for one that comes too late."""
        ...

    def high_watermark(self, topic: str, partition: int) -> int:
        """The partition's high watermark, or -1 when this broker does not lead it.

        Every later advance goes to ``GroupCoordinator.on_high_watermark``.
        """
        ...


class PartitionReader(Protocol):
    """Reads a partition that this broker leads, committed or not, from its start to its end."""

    def log_range(self, topic: str, partition: int) -> tuple[int, int] | None:
        """(log_start_offset, log_end_offset), both 0 when nothing was ever appended; None when there is no log here
        that could be read, which says nothing of what it holds."""
        ...

    def read(self, topic: str, partition: int, offset: int, max_bytes: int, done: ReadDone) -> None:
        """Hand whole batches from the one that holds ``offset`` on to ``done``: about ``max_bytes``, at least one.

        ``done`` runs exactly once, inside this call or later on the loop.
        """
        ...

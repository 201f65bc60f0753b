"""What replication needs of the coordinators beside it.

Owns: ``TransactionPartitions``, by which a partition asks whose transaction it belongs to, and ``EndOfTransaction``,
the shape of a marker that it is told to write.  Owns no implementation: the transaction coordinator has one, tests
have another.

Counterpart in Kafka: ``AddPartitionsToTxnManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

# (topic, partition index)
TopicPartition = tuple[str, int]
PartitionErrors = dict[TopicPartition, int]


class TransactionPartitions(Protocol):
    """The transaction coordinator, wherever it is."""

    def add_partitions_for(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        verify_only: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        """Add the partitions to the producer's open transaction, or ask whether they are in it (KIP-890).

        ``done`` runs exactly once, inside the call or later on the loop, with one of Kafka's error codes for each
        partition, 0 where it belongs to the transaction.
        """
        ...


class EndOfTransaction(Protocol):
    """How a transaction ends: ``coordinators.transaction.ports.TransactionMarker`` has this shape."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def coordinator_epoch(self) -> int: ...

    @property
    def commit(self) -> bool: ...

    @property
    def transaction_version(self) -> int: ...

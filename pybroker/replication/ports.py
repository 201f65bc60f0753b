"""What replication needs of the coordinators beside it.

Owns: ``TransactionPartitions``, by which a partition asks whose transaction it belongs to.  Owns no implementation: the
transaction coordinator has one, tests have another.

Counterpart in Kafka: ``AddPartitionsToTxnManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pybroker.storage.results import PartitionErrors, TopicPartition


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

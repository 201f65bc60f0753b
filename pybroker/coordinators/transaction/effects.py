"""What a shard wants done outside of its partition.

Owns: the values that name it, and ``Effects``, the port by which the shard says it.  An effect is handed over like a
response, so it happens only once everything that was written before it is committed.

Counterpart in Kafka: the callbacks between ``TransactionCoordinator`` and ``TransactionMarkerChannelManager``.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pybroker.coordinators.transaction.transaction_metadata import TransactionMetadata


class OpenTransaction(NamedTuple):
    """One transaction of an id, by which it differs from those before and after it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Effects(Protocol):
    """Each is called on the loop, inside the operation that causes it or later; none may raise."""

    def write_markers(self, partition: int, txn: TransactionMetadata) -> None:
        """End the transaction in all its partitions, then have ``TransactionCoordinatorShard.complete`` run."""
        ...

    def write_markers_later(self, partition: int, txn: TransactionMetadata) -> None:
        """It is not known when the decision will be committed: have the shard's ``resume`` run later."""
        ...

    def abort(self, partition: int, transaction: OpenTransaction) -> None:
        """The transaction has been open for too long: have ``TransactionCoordinatorShard.abort`` run."""
        ...

"""What replication needs of the coordinators beside it, and of the controller.

Owns: ``TransactionPartitions``, by which a partition asks whose transaction it belongs to, and ``IsrChanger``, by which
a leader asks for another ISR.  Owns no implementation: the transaction coordinator and the channel to the controller
have one each, tests have others.

Counterpart in Kafka: ``AddPartitionsToTxnManager``, ``AlterPartitionManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

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


class AlteredPartition(NamedTuple):
    """A partition as the controller has it after AlterPartition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class IsrChanger(Protocol):
    """The controller, wherever it is, as far as leaders ask it (AlterPartition)."""

    def alter_partition(
        self,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        new_isr: tuple[tuple[int, int], ...],
        done: Callable[[int, AlteredPartition | None], None],
    ) -> None:
        """Make ``new_isr`` (broker ids with their epochs, -1 where one is not known) the partition's ISR.

        The controller does so if both epochs are those that it has, and every replica may be in an ISR.  ``done`` runs
        exactly once, later on the loop: with 0 and the state that the partition has then, or with one of Kafka's error
        codes and None.  Any code but those that speak of the partition's state is taken for one that may pass, and is
        tried again: so is NETWORK_EXCEPTION, where nobody knows whether it was done.
        """
        ...

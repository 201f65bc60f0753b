"""One transactional id, its producer and its transaction, as a value; and the steps from one value to the next.

Owns: the states of a transaction and what each step changes.  Whether a step may be taken is decided in
``decisions.py``; how a value is written is in ``transaction_records.py``.

Epochs: the client of transaction version 2 gets a new epoch with every end of a transaction. So ``PrepareCommit`` and
``PrepareAbort`` already carry the epoch of the next transaction, which is the epoch of the markers too. An id whose
epochs are used up keeps its next producer id in ``next_producer_id`` until the markers are written, and goes on with it
from epoch 0.

Counterpart in Kafka: ``TransactionMetadata`` and ``TransactionState``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from pybroker.storage.results import TopicPartition, indexes_by_topic

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
EPOCH_MAX: Final = 0x7FFF
# An epoch that no client is given: with it the coordinator can always fence the producer that has the one before.
LAST_EPOCH_OF_CLIENTS: Final = EPOCH_MAX - 1

# From this level of the feature transaction.version on the end of a transaction raises the epoch (KIP-890).
EPOCH_BUMP_VERSION: Final = 2
NO_TRANSACTION_VERSION: Final = 0


class TransactionState(IntEnum):
    """Kafka's states, with the numbers that are in the log; ``DEAD`` and ``PREPARE_EPOCH_FENCE`` never are."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that clients see."""
        return self.name.title().replace("_", "")


BY_TITLE: Final = {state.title: state for state in TransactionState}
# The end of the transaction is decided, its markers are being written.
PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETED: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
# No transaction is open: an id may expire.
IDLE: Final = COMPLETED | {TransactionState.EMPTY}


class TransactionMetadata(NamedTuple):
    """Everything about one transactional id.

    ``previous_producer_id`` is the producer id before the latest step, the same one unless it was exchanged.
    ``last_producer_epoch`` is the epoch before the latest raise that the producer itself asked for, -1 when there was
    none; the log does not keep it.
    ``start_timestamp_ms`` is -1 until there was a first transaction.
    ``client_version`` is the level of transaction.version by which the client worked in the latest step.
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_timestamp_ms: int
    last_update_ms: int
    client_version: int

    def partitions_by_topic(self) -> list[tuple[str, list[int]]]:
        """Each topic with the indexes of its partitions, both in order.

        There may be a hundred thousand: sorting them as pairs takes five times as long.
        """
        by_topic = indexes_by_topic(self.partitions)
        return [(topic, sorted(by_topic[topic])) for topic in sorted(by_topic)]

    @property
    def epoch_is_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH_OF_CLIENTS

    @property
    def is_committing(self) -> bool:
        return self.state == TransactionState.PREPARE_COMMIT

    def times_out(self, now_ms: int) -> bool:
        """Whether its transaction has been open for longer than its producer wanted."""
        return self.state == TransactionState.ONGOING and self.start_timestamp_ms + self.timeout_ms < now_ms


def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """A new id, or one whose holder expired."""
    return TransactionMetadata(
        transactional_id,
        producer_id,
        previous_producer_id=producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=0,
        last_producer_epoch=NO_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_ms=now_ms,
        client_version=NO_TRANSACTION_VERSION,
    )


def initialized(
    txn: TransactionMetadata, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """The id goes on, without a transaction, under this producer id and epoch."""
    return txn._replace(
        producer_id=producer_id,
        previous_producer_id=txn.producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_ms=now_ms,
    )


def with_partitions(
    txn: TransactionMetadata, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
) -> TransactionMetadata:
    """The transaction has these partitions too; one that was not open is open now."""
    is_open = txn.state == TransactionState.ONGOING
    return txn._replace(
        previous_producer_id=txn.producer_id,
        state=TransactionState.ONGOING,
        partitions=txn.partitions.union(partitions) if is_open else frozenset(partitions),
        start_timestamp_ms=txn.start_timestamp_ms if is_open else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def prepared(
    txn: TransactionMetadata, commit: bool, client_version: int, next_producer_id: int, now_ms: int
) -> TransactionMetadata:
    """The end is decided: from here on the transaction can only be completed."""
    raises_epoch = client_version >= EPOCH_BUMP_VERSION
    return txn._replace(
        previous_producer_id=txn.producer_id,
        next_producer_id=next_producer_id,
        producer_epoch=min(txn.producer_epoch + 1, EPOCH_MAX) if raises_epoch else txn.producer_epoch,
        last_producer_epoch=txn.producer_epoch if raises_epoch else txn.last_producer_epoch,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        # From version 2 on a transaction without partitions may be aborted: it has no time of its own.
        start_timestamp_ms=txn.start_timestamp_ms if txn.state == TransactionState.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def fenced(txn: TransactionMetadata, server_version: int, next_producer_id: int, now_ms: int) -> TransactionMetadata:
    """An abort that the coordinator decides: the producer's epoch is raised whatever version it speaks."""
    if server_version >= EPOCH_BUMP_VERSION:
        return prepared(txn, False, server_version, next_producer_id, now_ms)
    aborted = prepared(txn, False, NO_TRANSACTION_VERSION, NO_PRODUCER_ID, now_ms)
    epoch = min(txn.producer_epoch + 1, EPOCH_MAX)
    return aborted._replace(producer_epoch=epoch, last_producer_epoch=NO_EPOCH)


def completed(txn: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """All markers are written."""
    assert txn.state in PREPARED
    exchanged = txn.client_version >= EPOCH_BUMP_VERSION and txn.next_producer_id != NO_PRODUCER_ID
    return txn._replace(
        producer_id=txn.next_producer_id if exchanged else txn.producer_id,
        previous_producer_id=txn.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=0 if exchanged else txn.producer_epoch,
        state=TransactionState.COMPLETE_COMMIT if txn.is_committing else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )

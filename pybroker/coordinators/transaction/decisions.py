"""What may be done with a transactional id in which state.

Owns: the rules of InitProducerId, AddPartitionsToTxn and EndTxn, of both protocols. A decision is a value: the metadata
to write next, the error code to answer, or that a new producer id is needed first. The code is NONE when there is
nothing to write. The epochs of the present one are used up then.

Between two steps of one id nothing else happens to it, so Kafka's "pending state" is the prepared one here. Until the
markers are written every request but a verification is to come again, before it is asked whose it is.

PrepareX already carries the next epoch in the second transaction version.

Counterpart in Kafka: ``TransactionCoordinator.prepareInitProducerIdTransit`` and ``endTransaction``.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from pybroker.coordinators.transaction.transaction_metadata import (
    COMPLETED,
    EPOCH_BUMP_VERSION,
    LAST_EPOCH_OF_CLIENTS,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TransactionMetadata,
    TransactionState,
    created,
    fenced,
    initialized,
    prepared,
    with_partitions,
)
from pybroker.storage.results import PartitionErrors, TopicPartition
from pybroker_protocol.errors import ErrorCode


class Missing(Enum):
    """What a decision cannot be made without."""

    PRODUCER_ID = "a new producer id"


Decision = TransactionMetadata | ErrorCode | Missing


# --- InitProducerId ------------------------------------------------------------------------------------------------


def initialize(
    txn: TransactionMetadata | None,
    transactional_id: str,
    timeout_ms: int,
    expected: tuple[int, int] | None,
    new_producer_id: int | None,
    server_version: int,
    now_ms: int,
    first_producer_id: int = 0,
) -> Decision:
    """A producer begins, or goes on after an error (``expected``: the producer id and epoch that it had, KIP-360).

    An open transaction is aborted first: the metadata is that of the abort then, and the client has to come again.
    A producer id below ``first_producer_id`` may be one of another cluster, too, whose topics are mirrored here: it is
    exchanged.
    """
    if txn is None:
        if new_producer_id is None:
            return Missing.PRODUCER_ID
        return created(transactional_id, new_producer_id, timeout_ms, now_ms)
    if txn.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _may_go_on(txn, *expected):
        return ErrorCode.PRODUCER_FENCED
    if txn.state == TransactionState.ONGOING:
        return fence(txn, new_producer_id, server_version, now_ms)
    keeps_id = not txn.epoch_is_exhausted and txn.producer_id >= first_producer_id
    return _next_epoch(txn, timeout_ms, None if expected is None else expected[1], keeps_id, new_producer_id, now_ms)


def _may_go_on(txn: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """Whether it is the current producer, or the one before that has not heard yet of its new producer id."""
    before = producer_id == txn.previous_producer_id and epoch >= LAST_EPOCH_OF_CLIENTS
    return producer_id == txn.producer_id or before


def _next_epoch(
    txn: TransactionMetadata,
    timeout_ms: int,
    expected_epoch: int | None,
    keeps_id: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    epoch = txn.producer_epoch
    last_epoch = NO_EPOCH if expected_epoch is None else epoch
    if expected_epoch in {None, epoch}:
        if keeps_id:
            return initialized(txn, txn.producer_id, epoch + 1, last_epoch, timeout_ms, now_ms)
        if new_producer_id is None:
            return Missing.PRODUCER_ID
        return initialized(txn, new_producer_id, 0, last_epoch, timeout_ms, now_ms)
    if expected_epoch == txn.last_producer_epoch:
        # A repeated request: its first answer was lost.
        return initialized(txn, txn.producer_id, epoch, txn.last_producer_epoch, timeout_ms, now_ms)
    return ErrorCode.PRODUCER_FENCED


def fence(
    txn: TransactionMetadata, new_producer_id: int | None, server_version: int, now_ms: int
) -> TransactionMetadata | Missing:
    """Abort the open transaction, and let its producer never write again."""
    assert txn.state == TransactionState.ONGOING
    if server_version < EPOCH_BUMP_VERSION or not txn.epoch_is_exhausted:
        return fenced(txn, server_version, NO_PRODUCER_ID, now_ms)
    if new_producer_id is None:
        return Missing.PRODUCER_ID
    return fenced(txn, server_version, new_producer_id, now_ms)


# --- AddPartitionsToTxn, AddOffsetsToTxn ---------------------------------------------------------------------------


def add_partitions(
    txn: TransactionMetadata | None,
    producer_id: int,
    epoch: int,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """Make the partitions part of the producer's transaction, which begins with the first."""
    if txn is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if txn.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = _refused(txn, producer_id, epoch)
    if error:
        return error
    if txn.state == TransactionState.ONGOING and txn.partitions.issuperset(partitions):
        return ErrorCode.NONE
    return with_partitions(txn, partitions, client_version, now_ms)


def verify_partitions(
    txn: TransactionMetadata | None, producer_id: int, epoch: int, partitions: Collection[TopicPartition]
) -> PartitionErrors:
    """One error code per partition: whether it is part of the producer's transaction."""
    error = ErrorCode.INVALID_PRODUCER_ID_MAPPING if txn is None else _refused(txn, producer_id, epoch)
    if error or txn is None:
        return dict.fromkeys(partitions, error)
    present = txn.partitions
    return {
        partition: ErrorCode.NONE if partition in present else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def _refused(txn: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    if txn.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if txn.producer_epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    if txn.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


# --- EndTxn --------------------------------------------------------------------------------------------------------


def end(
    txn: TransactionMetadata | None,
    producer_id: int,
    epoch: int,
    commit: bool,
    client_version: int,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """Commit or abort the producer's transaction."""
    if txn is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if client_version < EPOCH_BUMP_VERSION:
        return _end_v1(txn, producer_id, epoch, commit, now_ms)
    if txn.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS  # before ids and epochs are looked at, unlike for older clients
    return _end_v2(txn, producer_id, epoch, commit, client_version, new_producer_id, now_ms)


def _end_v1(txn: TransactionMetadata, producer_id: int, epoch: int, commit: bool, now_ms: int) -> Decision:
    error = _refused(txn, producer_id, epoch)
    if error:
        return error
    if txn.state == TransactionState.ONGOING:
        return prepared(txn, commit, 0, NO_PRODUCER_ID, now_ms)
    # The epoch does not tell a repeated request from a new one, so what was asked before is granted again.
    return _repeated(txn, commit)


def _end_v2(
    txn: TransactionMetadata,
    producer_id: int,
    epoch: int,
    commit: bool,
    client_version: int,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """Every end raises the epoch, so a repeated request comes with the epoch before, or with the producer id before."""
    raised = txn.producer_epoch == epoch + 1
    exchanged = txn.previous_producer_id == producer_id and epoch == LAST_EPOCH_OF_CLIENTS and txn.producer_epoch == 0
    if txn.producer_id != producer_id and not exchanged:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if txn.state in COMPLETED and (raised or exchanged):
        return _repeated(txn, commit)
    if txn.producer_epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    if commit and txn.state != TransactionState.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    if not txn.epoch_is_exhausted:
        return prepared(txn, commit, client_version, NO_PRODUCER_ID, now_ms)
    if new_producer_id is None:
        return Missing.PRODUCER_ID
    return prepared(txn, commit, client_version, new_producer_id, now_ms)


def _repeated(txn: TransactionMetadata, commit: bool) -> ErrorCode:
    decided = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    return ErrorCode.NONE if txn.state == decided else ErrorCode.INVALID_TXN_STATE

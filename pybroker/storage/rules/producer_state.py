"""What a log remembers of its producers: idempotence and open transactions.  Kafka's ProducerStateManager.

Owns the last five batches of every producer id, the rules of epochs and sequence numbers, the first offset of every
transaction that is open.  Does not own the snapshot files (``producer_snapshot.py``) nor the log's offsets.

Invariants: the state is that of all batches below ``map_end_offset``; an entry is replaced, never changed, so that a
failed append can put the former one back.

A new producer may begin with any sequence, except while its first batch is known to have been refused.
``ongoing_txns`` is in the order of offsets, so its first key is the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pybroker.storage.results import (
    DUPLICATE_SEQUENCE_NUMBER,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
)
from pybroker.storage.rules.refused_batches import RefusedBatches
from pybroker.storage.rules.verification_state import Verification, VerificationStates

BATCHES_RETAINED = 5
NO_OFFSET = -1
# From here on a producer id has the mark of the cluster that has given it; below it two clusters may give the same.
MARKED_PRODUCER_IDS = 1 << 32
_SEQUENCES = 1 << 31  # sequence numbers wrap from 2**31 - 1 to 0
_LAST_SEQUENCE = _SEQUENCES - 1
_LAST_EPOCH = (1 << 15) - 1
# From this transaction version on (KIP-890) a marker carries a larger epoch than the records of its transaction.
EPOCH_BUMPING_TRANSACTION_VERSION = 2


class BatchMetadata(NamedTuple):
    """What is remembered of a producer's batch."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp: int


# The same as the bare tuple that an append makes: it has no time for more, and the collector need not look at it.
BatchFields = tuple[int, int, int, int, int]


class ProducerStateEntry:
    """One producer: its epoch, its last batches (oldest first) and where its open transaction began (-1: none).

    Every append makes a new entry.  ``seen_ms`` is when an entry was first looked at for its expiry, by the clock.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "seen_ms",
    )

    def __init__(
        self,
        producer_epoch: int,
        batches: tuple[BatchFields, ...],
        last_timestamp: int,
        coordinator_epoch: int = -1,
        current_txn_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_epoch = producer_epoch
        self.batches = batches
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = current_txn_first_offset
        self.seen_ms = 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 where none is remembered."""
        return self.batches[-1][1] if self.batches else -1

    @property
    def last_offsets(self) -> tuple[int, ...]:
        """The offset of the last record of each batch that is remembered."""
        return tuple(BatchMetadata._make(batch).last_offset for batch in self.batches)


# What an append of a producer replaces: (producer id, its entry, the verification that the append has used up).
FormerState = tuple[int, ProducerStateEntry | None, Verification | None]


class SequenceError:
    """Why a batch was refused: Kafka's error code and a message for the client."""

    __slots__ = ("error_code", "message")

    def __init__(self, error_code: int, message: str) -> None:
        self.error_code = error_code
        self.message = message


class ProducerStateManager:
    """The producers of one partition."""

    __slots__ = (
        "expiration_ms",
        "map_end_offset",
        "ongoing_txns",
        "producers",
        "refused",
        "unreplicated_txns",
        "verifications",
    )

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        self.ongoing_txns: dict[int, int] = {}  # first offset -> producer id, in order of first offset
        self.unreplicated_txns: dict[int, int] = {}  # first offset -> marker's offset: decided, not replicated yet
        self.map_end_offset = 0
        self.verifications = VerificationStates()
        self.refused = RefusedBatches()

    def clear(self, map_end_offset: int) -> None:
        """Forget everything; the state is that of an empty log which begins at ``map_end_offset``."""
        self.producers.clear()
        self.ongoing_txns.clear()
        self.unreplicated_txns.clear()
        self.refused.clear()
        self.map_end_offset = map_end_offset

    def load(self, entries: dict[int, ProducerStateEntry], map_end_offset: int, now_ms: int) -> None:
        """Start from a snapshot, without the producers that have expired."""
        self.clear(map_end_offset)
        for producer_id, entry in entries.items():
            if not self._expired(entry, now_ms):
                self.producers[producer_id] = entry
                if entry.current_txn_first_offset >= 0:
                    self.ongoing_txns[entry.current_txn_first_offset] = producer_id
        self.ongoing_txns = dict(sorted(self.ongoing_txns.items()))

    # Client appends ---------------------------------------------------------------------------------------------------

    def check(
        self, producer_id: int, producer_epoch: int, base_sequence: int, last_offset_delta: int, transactional: int
    ) -> BatchFields | SequenceError | None:
        """``None`` if the batch is next in line, the original's metadata if it is a repeat, else why it is refused."""
        entry = self.producers.get(producer_id)
        if transactional:
            return self._check_transactional(entry, producer_id, producer_epoch, base_sequence, last_offset_delta)
        if entry is None:
            return (
                self._check_beginning(producer_id, producer_epoch, base_sequence) if self.refused.by_producer else None
            )
        outcome = self._check_sequence(entry, producer_id, producer_epoch, base_sequence, last_offset_delta)
        if outcome is None and entry.current_txn_first_offset >= 0:
            return SequenceError(INVALID_TXN_STATE, f"Producer {producer_id} has an open transaction here")
        return outcome

    def _check_beginning(self, producer_id: int, producer_epoch: int, base_sequence: int) -> SequenceError | None:
        """A producer without state may begin anywhere, and would otherwise begin with the second of the batches that it
        has in flight, the first of which was refused."""
        beginning = self.refused.beginning_of(producer_id, producer_epoch)
        if beginning in (None, base_sequence):
            return None
        return SequenceError(
            OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Sequence {base_sequence} of producer {producer_id} came before its first batch, of sequence {beginning}",
        )

    def answer_behind(
        self, error: SequenceError, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int
    ) -> SequenceError:
        """What a batch that ``check`` refuses is answered: ``error``, or that of the batch which is missing before it,
        if that was refused a moment ago. The first such answer begins the moment (``refused_batches``).
        """
        if not self.refused.by_producer or error.error_code != OUT_OF_ORDER_SEQUENCE_NUMBER:
            return error
        error_code = self.refused.lend_error(producer_id, producer_epoch, base_sequence, now_ms)
        return SequenceError(error_code, f"{error.message}; what is missing was refused") if error_code else error

    def _check_sequence(
        self,
        entry: ProducerStateEntry,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_offset_delta: int,
    ) -> BatchFields | SequenceError | None:
        batches = entry.batches
        if entry.producer_epoch == producer_epoch:
            if base_sequence == ((batches[-1][1] + 1) & _LAST_SEQUENCE if batches else 0):
                return None
            last_sequence = (base_sequence + last_offset_delta) & _LAST_SEQUENCE
            for batch in batches:
                if batch[0] == base_sequence and batch[1] == last_sequence:
                    return batch
            return self._out_of_order(producer_id, base_sequence, last_sequence, batches)
        if producer_epoch < entry.producer_epoch:
            return _old_epoch(producer_id, producer_epoch, entry)
        if base_sequence != 0 and entry.producer_epoch >= 0:
            return SequenceError(
                OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} begins its epoch {producer_epoch} with sequence {base_sequence}, not 0",
            )
        return None

    def _check_transactional(
        self,
        entry: ProducerStateEntry | None,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_offset_delta: int,
    ) -> BatchFields | SequenceError | None:
        """As ``check``; the first batch of a transaction must have been verified (KIP-890)."""
        outcome = None
        if entry is not None:
            outcome = self._check_sequence(entry, producer_id, producer_epoch, base_sequence, last_offset_delta)
        if isinstance(outcome, tuple) or self.has_ongoing_transaction(producer_id, producer_epoch):
            return outcome
        if entry is not None and producer_epoch < entry.producer_epoch:
            return outcome
        verification = self.verifications.of(producer_id)
        if verification is None or verification.verified_epoch != producer_epoch:
            return SequenceError(INVALID_TXN_STATE, "The record was not part of an ongoing transaction")
        is_new = entry is None or not entry.batches
        if base_sequence > (0 if is_new and verification.supports_epoch_bump else verification.lowest_sequence):
            return SequenceError(
                OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Sequence {base_sequence} of producer {producer_id} comes before what has to precede it",
            )
        return outcome

    @staticmethod
    def _out_of_order(
        producer_id: int, base_sequence: int, last_sequence: int, batches: tuple[BatchFields, ...]
    ) -> SequenceError:
        if not batches:
            return SequenceError(
                OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} begins its epoch with sequence {base_sequence}, not 0",
            )
        # Older than what is remembered: it was appended once, where is forgotten.  In wrapping arithmetic "older" is
        # the half of the circle behind the oldest remembered batch.
        behind = (batches[0][0] - 1 - last_sequence) & _LAST_SEQUENCE
        if len(batches) == BATCHES_RETAINED and behind < _SEQUENCES // 2:
            return SequenceError(
                DUPLICATE_SEQUENCE_NUMBER,
                f"Sequence {base_sequence} of producer {producer_id} was appended before what is remembered",
            )
        return SequenceError(
            OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Sequence {base_sequence} of producer {producer_id} does not follow its last sequence {batches[-1][1]}",
        )

    # The coordinators' appends ----------------------------------------------------------------------------------------

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has an open transaction here that it began, or went on with, in this epoch."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.producer_epoch == producer_epoch

    def check_epoch(self, producer_id: int, producer_epoch: int) -> SequenceError | None:
        """Why the producer may not write in this epoch any more, if it may not."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            return _old_epoch(producer_id, producer_epoch, entry)
        return None

    def check_unsequenced(self, producer_id: int, producer_epoch: int, transactional: int) -> SequenceError | None:
        """Why a batch is refused that a coordinator writes for a producer (the offsets of a transaction)."""
        refused = self.check_epoch(producer_id, producer_epoch)
        if refused is not None or not transactional or self.has_ongoing_transaction(producer_id, producer_epoch):
            return refused
        verification = self.verifications.of(producer_id)
        if verification is None or verification.verified_epoch != producer_epoch:
            return SequenceError(INVALID_TXN_STATE, "The record was not part of an ongoing transaction")
        return None

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> SequenceError | None:
        """Why an end marker is refused, if it is.

        In transaction version 2 the marker's epoch must be larger than that of the records. One with the same epoch
        repeats a marker that is there already, or is the last that the producer id has (KAFKA-19999).
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return None
        epoch, bumps = entry.producer_epoch, transaction_version >= EPOCH_BUMPING_TRANSACTION_VERSION
        repeats = entry.current_txn_first_offset < 0 or epoch == _LAST_EPOCH
        if producer_epoch < epoch or (producer_epoch == epoch and bumps and not repeats):
            return _old_epoch(producer_id, producer_epoch, entry)
        if coordinator_epoch < entry.coordinator_epoch:
            return SequenceError(
                TRANSACTION_COORDINATOR_FENCED,
                f"The transaction coordinator's epoch {coordinator_epoch} is older than {entry.coordinator_epoch}",
            )
        return None

    # All appends ------------------------------------------------------------------------------------------------------

    def update(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        transactional: int,
    ) -> FormerState:
        """Take a data batch into account; returns the producer's former state, for ``take_back``."""
        former = self.producers.get(producer_id)
        last_sequence = (
            (base_sequence + last_offset - base_offset) & _LAST_SEQUENCE if base_sequence >= 0 else base_sequence
        )
        batch = (base_sequence, last_sequence, base_offset, last_offset, max_timestamp)
        coordinator_epoch, txn_first_offset = -1, NO_OFFSET
        batches: tuple[BatchFields, ...] = (batch,)
        if former is not None:
            coordinator_epoch, txn_first_offset = former.coordinator_epoch, former.current_txn_first_offset
            if former.producer_epoch == producer_epoch:
                batches = (*former.batches[1 - BATCHES_RETAINED :], batch)
        verification = None
        if transactional:
            verification = self.verifications.take(producer_id)
            if txn_first_offset < 0:
                txn_first_offset = base_offset
                self.ongoing_txns[base_offset] = producer_id
        self.producers[producer_id] = ProducerStateEntry(
            producer_epoch, batches, max_timestamp, coordinator_epoch, txn_first_offset
        )
        if self.refused.by_producer:
            self.refused.forget(producer_id)
        return producer_id, former, verification

    def complete_transaction(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, marker_offset: int, timestamp: int
    ) -> tuple[int, int] | None:
        """Take an end marker into account; returns (first offset, last stable offset) of the transaction it ends."""
        former = self.producers.get(producer_id)
        first_offset = former.current_txn_first_offset if former is not None else NO_OFFSET
        batches = former.batches if former is not None and former.producer_epoch == producer_epoch else ()
        self.producers[producer_id] = ProducerStateEntry(producer_epoch, batches, timestamp, coordinator_epoch)
        self.verifications.forget(producer_id)
        if first_offset < 0:
            return None
        del self.ongoing_txns[first_offset]
        self.unreplicated_txns[first_offset] = marker_offset
        return first_offset, next(iter(self.ongoing_txns), marker_offset + 1)

    def take_back(self, formers: Sequence[FormerState]) -> None:
        """Undo the last ``update``s, whose batches were not written; ``formers`` are what they returned, in order."""
        for state in reversed(formers):
            self._restore(*state)

    def _restore(self, producer_id: int, former: ProducerStateEntry | None, verification: Verification | None) -> None:
        if verification is not None:
            self.verifications.put_back(producer_id, verification)
        current = self.producers.pop(producer_id, None)
        if former is not None:
            self.producers[producer_id] = former
        if current is not None and current.last_sequence >= 0:
            self.refused.note(producer_id, current.producer_epoch, current.batches[-1][0], KAFKA_STORAGE_ERROR)
        if current is not None and current.current_txn_first_offset >= 0:
            former_first = former.current_txn_first_offset if former is not None else NO_OFFSET
            if former_first != current.current_txn_first_offset:
                self.ongoing_txns.pop(current.current_txn_first_offset, None)

    # Housekeeping -----------------------------------------------------------------------------------------------------

    def first_unstable_offset(self) -> int:
        """The first offset that belongs to a transaction which is open, or decided but not replicated; -1 if none."""
        if not self.ongoing_txns and not self.unreplicated_txns:
            return NO_OFFSET
        return min(next(iter(self.ongoing_txns), 1 << 63), min(self.unreplicated_txns, default=1 << 63))

    def has_completed_transactions(self) -> bool:
        """Whether a marker has ended a transaction of any of the producers that are remembered."""
        return any(entry.coordinator_epoch >= 0 for entry in self.producers.values())

    def forget_former(self, offset: int) -> None:
        """Forget what another cluster's producers have left below ``offset``: one of ours may have the same id.

        A transaction that is open stays, until its marker has come.  What has no batch counts as the other cluster's.
        """
        for producer_id, entry in list(self.producers.items()):
            if producer_id >= MARKED_PRODUCER_IDS or entry.current_txn_first_offset >= 0:
                continue
            batches = tuple(batch for batch in entry.batches if BatchMetadata._make(batch).base_offset >= offset)
            if not batches:
                del self.producers[producer_id]
            elif len(batches) < len(entry.batches):
                self.producers[producer_id] = ProducerStateEntry(
                    entry.producer_epoch, batches, entry.last_timestamp, entry.coordinator_epoch
                )

    def forget_replicated(self, high_watermark: int) -> None:
        """Drop the decided transactions whose marker is below the high watermark."""
        if self.unreplicated_txns:
            self.unreplicated_txns = {f: m for f, m in self.unreplicated_txns.items() if m >= high_watermark}

    def remove_expired(self, now_ms: int) -> None:
        """Forget the producers that have not written for ``producer.id.expiration.ms``."""
        expired = [producer_id for producer_id, entry in self.producers.items() if self._expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        self.verifications.remove_expired(now_ms - self.expiration_ms)
        self.refused.remove_expired(now_ms, self.expiration_ms)

    def _expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        """Whether the producer has been idle for long enough, by the clock and by the timestamps of its records.

        Kafka goes by the records' timestamps alone, so that a producer of old events is forgotten while it writes, or
        at a restart, and its retries are appended twice.  Here a producer is kept for as long again after a restart.
        """
        if entry.current_txn_first_offset >= 0:
            return False
        entry.seen_ms = entry.seen_ms or now_ms
        return now_ms - max(entry.seen_ms, entry.last_timestamp) >= self.expiration_ms


def _old_epoch(producer_id: int, producer_epoch: int, entry: ProducerStateEntry) -> SequenceError:
    return SequenceError(
        INVALID_PRODUCER_EPOCH,
        f"Epoch {producer_epoch} of producer {producer_id} is older than its epoch {entry.producer_epoch}",
    )

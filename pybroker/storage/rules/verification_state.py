"""Transactions whose partition is being verified with the transaction coordinator (KIP-890).

Owns, for one partition: which producers ask their coordinator whether this partition belongs to their transaction, and
who knows that it does.  Does not ask (``replication.transaction_verification`` does), and does not judge
sequence numbers or epochs of batches that need no verification (``producer_state`` does).

Invariants:
- The first batch of a transaction is appended only after its verification has succeeded. It is refused if the partition
  has seen data or a marker of that transaction since the verification began. Both forget the entry, so that an answer
  which arrives after the transaction's marker allows nothing.

A log is not shut while a verification is open.

Kafka counterpart: VerificationStateEntry, VerificationGuard.
"""

from __future__ import annotations

# Producers of one partition that wait for the transaction coordinator's word at once, or could not be given it: each
# costs an entry until ``producer.id.expiration.ms`` is over, and producer ids are the client's to invent.
TRANSACTION_VERIFICATIONS_PER_PARTITION = 10_000


_NOT_VERIFIED = -1
ANY_SEQUENCE = (1 << 31) - 1


class Verification:
    """One verification under way; its identity is Kafka's guard.

    ``lowest_sequence`` blocks a batch that would overtake one which could not be verified at first and is tried again.
    """

    __slots__ = ("epoch", "lowest_sequence", "started_ms", "supports_epoch_bump", "verified_epoch")

    def __init__(self, epoch: int, sequence: int, supports_epoch_bump: bool, started_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.supports_epoch_bump = supports_epoch_bump
        self.started_ms = started_ms
        self.verified_epoch = _NOT_VERIFIED

    def join(self, epoch: int, sequence: int) -> None:
        """One more batch of the producer waits for the coordinator."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class VerificationStates:
    """The verifications of one partition, by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def begin(
        self, producer_id: int, producer_epoch: int, sequence: int, supports_epoch_bump: bool, now_ms: int
    ) -> Verification:
        """The producer's verification, begun by an earlier batch or now.  The oldest goes where there are too many."""
        verification = self._by_producer.get(producer_id)
        if verification is None:
            if len(self._by_producer) >= TRANSACTION_VERIFICATIONS_PER_PARTITION:
                del self._by_producer[next(iter(self._by_producer))]
            verification = Verification(producer_epoch, sequence, supports_epoch_bump, now_ms)
            self._by_producer[producer_id] = verification
        else:
            verification.join(producer_epoch, sequence)
        return verification

    def succeed(self, producer_id: int, verification: Verification, producer_epoch: int) -> None:
        """The coordinator said yes; nothing happens if the transaction has moved on since ``begin``."""
        if self._by_producer.get(producer_id) is verification:
            verification.verified_epoch = producer_epoch

    def of(self, producer_id: int) -> Verification | None:
        """The producer's verification, if one is under way or has not been used yet."""
        return self._by_producer.get(producer_id)

    def forget(self, producer_id: int) -> None:
        """Data or a marker of the producer's transaction lies in the log now, or it is known that none will."""
        self._by_producer.pop(producer_id, None)

    def clear(self) -> None:
        """The log was cut: it has another leader now, and only a leader verifies."""
        self._by_producer.clear()

    def take(self, producer_id: int) -> Verification | None:
        """``forget`` for an append that may fail: then ``put_back`` gets what this returns."""
        return self._by_producer.pop(producer_id, None) if self._by_producer else None

    def put_back(self, producer_id: int, verification: Verification) -> None:
        """The data that it was taken for does not lie in the log."""
        self._by_producer.setdefault(producer_id, verification)

    def remove_expired(self, started_before_ms: int) -> None:
        """Forget what was not asked for again."""
        expired = [key for key, entry in self._by_producer.items() if entry.started_ms <= started_before_ms]
        for producer_id in expired:
            del self._by_producer[producer_id]

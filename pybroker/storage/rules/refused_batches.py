"""Batches that were next in a producer's sequence and were refused for a reason that passes.

Owns, for one partition: the first such batch of each producer, and what the batches are answered that were sent behind
it.  Owns no producer's state, and no reason: who refuses a batch names the error.

A client with several batches in flight has sent the second before it hears of the first. Each of them is out of order
until the first is there. librdkafka answers OUT_OF_ORDER_SEQUENCE_NUMBER with a new epoch, in which it numbers anew all
that is in flight. That includes what another partition's leader had stored before it died: a duplicate. So what comes
behind a refused batch is refused with the same error, and the client sends all of them again in order.

Invariants:
- A note ends with the next batch that the producer writes, or after ``producer.id.expiration.ms``, and counts for one
  epoch only.
- There are at most ``UNWRITTEN_PRODUCERS_MAX``.
- A note lends its error for ``REFUSED_BATCH_REMEMBERED_MS`` from the first batch that was refused for its sake. So a
  client that has given the first one up hears then that its sequence has a gap.
- A producer without state hears of its gap for as long as one with state does.
- Both begin anew with another epoch.

Kafka: none.  There whatever comes behind a refused batch is out of order.
"""

from __future__ import annotations

# Producers per partition whose next batch was refused and is waited for: they come back within their time-outs.
UNWRITTEN_PRODUCERS_MAX = 10_000
# What was sent behind such a batch is refused with its error for so long: clients pause for a second at most before
# they send it again, and one that has given the batch up has to hear of the gap before its own time-outs end.
REFUSED_BATCH_REMEMBERED_MS = 10_000


_SEQUENCES = 1 << 31  # sequence numbers wrap from 2**31 - 1 to 0


class RefusedBatch:
    """One note: the epoch and first sequence of the batch, and the error code that it was refused with.

    ``seen_ms`` is when it was first looked at for its expiry, by the clock.
    """

    __slots__ = ("base_sequence", "error_code", "lent_since_ms", "producer_epoch", "seen_ms")

    def __init__(self, producer_epoch: int, base_sequence: int, error_code: int) -> None:
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.error_code = error_code
        self.lent_since_ms = 0  # when another was first refused for its sake, by the clock
        self.seen_ms = 0

    def is_before(self, producer_epoch: int, base_sequence: int) -> bool:
        """Whether a batch was sent behind this one, which is missing."""
        ahead = (base_sequence - self.base_sequence) % _SEQUENCES
        return producer_epoch == self.producer_epoch and 0 < ahead < _SEQUENCES // 2


class RefusedBatches:
    """The notes of one partition: ``by_producer``, which is empty as a rule, and is looked at by each append."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, RefusedBatch] = {}

    def clear(self) -> None:
        """Forget all of them."""
        self.by_producer.clear()

    def note(self, producer_id: int, producer_epoch: int, base_sequence: int, error_code: int) -> None:
        """A batch was refused that was the producer's next; one that is missing before it stays the one to wait for."""
        earlier = self.by_producer.get(producer_id)
        if earlier is not None and earlier.is_before(producer_epoch, base_sequence):
            return
        self.by_producer.pop(producer_id, None)
        while len(self.by_producer) >= UNWRITTEN_PRODUCERS_MAX:
            del self.by_producer[next(iter(self.by_producer))]
        self.by_producer[producer_id] = RefusedBatch(producer_epoch, base_sequence, error_code)

    def forget(self, producer_id: int) -> None:
        """The producer has written a batch: nothing is missing."""
        self.by_producer.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget what was refused so long ago that its producer would be forgotten, too."""
        for producer_id, refused in list(self.by_producer.items()):
            refused.seen_ms = refused.seen_ms or now_ms
            if now_ms - refused.seen_ms >= expiration_ms:
                del self.by_producer[producer_id]

    def beginning_of(self, producer_id: int, producer_epoch: int) -> int | None:
        """The sequence with which a producer without state has to begin in this epoch; None if with any."""
        refused = self.by_producer.get(producer_id)
        return refused.base_sequence if refused is not None and refused.producer_epoch == producer_epoch else None

    def lend_error(self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int) -> int:
        """Answer a batch out of order with the error code of the batch that it was sent behind; 0 if there is none.

        The first such answer begins the time for which the error is lent.
        """
        refused = self.by_producer.get(producer_id)
        if refused is None or not refused.is_before(producer_epoch, base_sequence):
            return 0
        refused.lent_since_ms = refused.lent_since_ms or now_ms
        is_recent = 0 <= now_ms - refused.lent_since_ms < REFUSED_BATCH_REMEMBERED_MS
        return refused.error_code if is_recent else 0

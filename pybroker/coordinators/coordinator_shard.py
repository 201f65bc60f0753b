"""The pure state that the runtime drives: the contract of every coordinator's shard.

Owns nothing: it names what ``CoordinatorContext`` asks of a group coordinator's state, and of a transaction
coordinator's. A state has no I/O and no clock; all that it knows came by ``replay`` or as an argument.

Counterpart in Kafka: ``CoordinatorShard``.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from pybroker.coordinators.result import Result, TimerKey, Waiter


class CoordinatorShard(Protocol):
    """One partition's worth of a coordinator."""

    # The kinds of timers that may be set in any number, and whose work holds the loop for a slice of its time.
    long_timers: ClassVar[frozenset[str]]

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int, now_ms: int) -> None:
        """Apply one record.  ``producer_id`` is ``records.NO_PRODUCER_ID`` outside of a transaction.

        Kinds that this version does not know are no error: they stay in the log, the state passes them over.
        """
        ...

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply the marker that ends the producer's open transaction in this partition."""
        ...

    def on_loaded(self, now_ms: int) -> Result:
        """The log is replayed and requests are about to be served."""
        ...

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        """The timer ``key`` expired."""
        ...

    def on_unloaded(self, now_ms: int) -> list[Waiter]:
        """The partition is lost: give up all state; returns everybody who still waits."""
        ...

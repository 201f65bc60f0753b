"""A DeleteRecords that is done at the leader, and waits until every live replica has forgotten the records, too.

Owns: one such wait.  Does not own the log starts of followers (``followers``), nor who lives.

Invariants: it completes exactly once; whatever it ends with, the records stay deleted.

Kafka counterpart: DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.replication.purgatory import Purgatory


class DeletedFrom(Protocol):
    """The partition whose records are deleted."""

    gone: bool

    def low_watermark(self) -> int:
        """Where the last of the live replicas begins."""
        ...

    def stop_waiting(self, operation: DelayedDelete) -> None:
        """The operation waits no longer."""
        ...


class DelayedDelete:
    """``done(error code)`` is called once, later than ``start``."""

    __slots__ = ("_done", "_offset", "_partition", "_purgatory", "_tick")

    def __init__(self, partition: DeletedFrom, purgatory: Purgatory, offset: int, done: Callable[[int], None]) -> None:
        self._partition = partition
        self._purgatory = purgatory
        self._offset = offset
        self._done: Callable[[int], None] | None = done
        self._tick = -1

    def start(self, timeout_ms: int) -> None:
        """Wait for so long at most."""
        self._tick = self._purgatory.add(self, max(timeout_ms, 0))

    def try_complete(self, _: object) -> None:
        """A replica has said where it begins, or the partition has another role."""
        if self._partition.gone:
            self._complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self._partition.low_watermark() >= self._offset:
            self._complete(ErrorCode.NONE)

    def expire(self) -> None:
        """Its time is over."""
        self._complete(ErrorCode.REQUEST_TIMED_OUT)

    def _complete(self, error_code: int) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._purgatory.remove(self, self._tick)
            self._partition.stop_waiting(self)
            done(error_code)

"""A batch that is written, and whose producer waits until the high watermark has passed it (acks=all).

Owns: one such wait, and what it ends with.  Does not own the high watermark, nor who is in sync (``partition``).

Invariants: it completes exactly once.  Whatever it ends with, the batch stays written: an error says no more than that
its future is not certain.

It ends when any of these holds:
- The high watermark has passed the batch: with no error, or NOT_ENOUGH_REPLICAS_AFTER_APPEND where fewer replicas are
  in sync by then than the topic wants.
- Another broker leads the partition: NOT_LEADER_OR_FOLLOWER.
- Its time is over: REQUEST_TIMED_OUT.

Kafka counterpart: DelayedProduce, which waits for all partitions of a request; here each batch waits for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pybroker.storage.results import AppendResult
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.replication.purgatory import Purgatory


class ProducedTo(Protocol):
    """The partition that the batch was written to."""

    def acknowledgement(self, last_offset: int) -> int | None:
        """The error code that a batch up to ``last_offset`` is acknowledged with, 0 for none; None: not yet."""
        ...

    def stop_waiting(self, operation: DelayedProduce) -> None:
        """The operation waits no longer."""
        ...


class DelayedProduce:
    """``done(result)`` is called once, later than ``start``."""

    __slots__ = ("_done", "_partition", "_purgatory", "_result", "_tick")

    def __init__(
        self, partition: ProducedTo, purgatory: Purgatory, result: AppendResult, done: Callable[[AppendResult], None]
    ) -> None:
        self._partition = partition
        self._purgatory = purgatory
        self._result = result
        self._done: Callable[[AppendResult], None] | None = done
        self._tick = -1

    def start(self, timeout_ms: int) -> None:
        """Wait for so long at most."""
        self._tick = self._purgatory.add(self, max(timeout_ms, 0))

    def try_complete(self, _: object) -> None:
        """The high watermark, the leader or who is in sync has changed."""
        error_code = self._partition.acknowledgement(self._result.last_offset)
        if error_code is not None:
            self._complete(error_code)

    def expire(self) -> None:
        """Its time is over."""
        self._complete(ErrorCode.REQUEST_TIMED_OUT)

    def _complete(self, error_code: int) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        self._purgatory.remove(self, self._tick)
        self._partition.stop_waiting(self)
        done(_with_error(self._result, error_code) if error_code else self._result)


def _with_error(result: AppendResult, error_code: int) -> AppendResult:
    """The fate of a batch that is written and not acknowledged; its offsets are answered, as in Kafka."""
    return AppendResult(
        error_code,
        result.base_offset,
        result.last_offset,
        result.log_append_time_ms,
        result.log_start_offset,
        result.leader_epoch,
    )

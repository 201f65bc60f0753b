"""What this broker's leaders ask of the controller, many in one request.

Owns: ``IsrChanges``, the ``IsrChanger`` of a broker in a cluster: it gathers what is asked while a request is under
way, and gives each its part of the answer.  Owns no retry: the caller tries again.

Invariants: one request at a time, of ``ISR_CHANGES_AT_ONCE`` partitions at most; each question is
answered once.

Kafka counterpart: DefaultAlterPartitionManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

from pybroker.cluster.decisions.operations import InSyncChange, InSyncState
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.cluster.decisions.operations import InSyncResult, InSyncResults
    from pybroker.env import Cancellable, Timers

# Partitions whose ISR is asked for with one request.
ISR_CHANGES_AT_ONCE = 500

Done = Callable[[int, InSyncState | None], None]


class Channel(Protocol):
    """The way to the controller: ``cluster.membership.controller_channel``."""

    def alter_partitions(self, changes: Sequence[InSyncChange], done: Callable[[InSyncResults], None]) -> None: ...


class IsrChanges:
    def __init__(self, timers: Timers, channel: Channel) -> None:
        self._timers = timers
        self._channel = channel
        self._waiting: deque[tuple[InSyncChange, Done]] = deque()
        self._is_asking = False
        self._next: Cancellable | None = None

    def alter_partition(
        self,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        new_isr: tuple[tuple[int, int], ...],
        done: Done,
    ) -> None:
        """See ``IsrChanger.alter_partition``."""
        self._waiting.append((InSyncChange(topic_id, index, leader_epoch, partition_epoch, new_isr), done))
        self._ask_soon()

    def close(self) -> None:
        """Ask for nothing more, and answer no caller."""
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()

    def _ask_soon(self) -> None:
        """After this turn of the loop, with what else comes in it."""
        if self._waiting and not self._is_asking and self._next is None:
            self._next = self._timers.call_soon(self._ask)

    def _ask(self) -> None:
        self._next = None
        count = min(len(self._waiting), ISR_CHANGES_AT_ONCE)
        if not count:
            return
        asked = [self._waiting.popleft() for _ in range(count)]
        self._is_asking = True

        def answered(results: InSyncResults) -> None:
            self._is_asking = False
            self._ask_soon()
            by_place: Sequence[InSyncResult] = () if results.error_code else results.results
            for (_, done), result in zip_longest(asked, by_place[:count]):
                if result is None:
                    done(results.error_code or ErrorCode.UNKNOWN_SERVER_ERROR, None)
                elif result.error_code or result.state is None:
                    done(result.error_code or ErrorCode.UNKNOWN_SERVER_ERROR, None)
                else:
                    done(0, result.state)

        self._channel.alter_partitions([change for change, _ in asked], answered)

"""The gate before clients' requests: open for a time that is given again and again; else requests wait at it.

Owns: until when it is open, and the connections that wait. Does not own why it is shut
(``cluster/failure_detection/stall_guard``), nor the bytes of who waits (``connection``). It is open for good unless a
guard says otherwise; then its cost is one comparison for each turn of a connection.

Invariant: a connection that waits is served when the gate opens, in the order in which they came.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

log = logging.getLogger(__name__)

_FOR_GOOD: Final = 1 << 63


class Waiting(Protocol):
    """A connection."""

    def go_on(self) -> None:
        """Serve what waits."""
        ...


class RequestGate:
    """The gate of one broker, an implementation of ``stall_guard.RequestGate``; ``open_until_ns`` is of its clock."""

    __slots__ = ("_now_ns", "_waiting", "on_shut", "open_until_ns")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.open_until_ns = _FOR_GOOD
        self.on_shut: Callable[[], None] = lambda: None
        self._waiting: dict[Waiting, None] = {}

    def wait(self, connection: Waiting) -> None:
        """The connection came when the gate was no longer open."""
        self._waiting[connection] = None
        self.on_shut()

    def forget(self, connection: Waiting) -> None:
        """It waits no longer, if it did."""
        self._waiting.pop(connection, None)

    def open_for(self, duration_ms: int) -> None:
        self.open_until_ns = self._now_ns() + duration_ms * 1_000_000
        self._let_in()

    def shut(self) -> None:
        self.open_until_ns = -1

    def leave_open(self) -> None:
        self.open_until_ns = _FOR_GOOD
        self._let_in()

    def _let_in(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                try:
                    connection.go_on()
                except Exception:  # the others wait, too
                    log.exception("a connection could not go on")

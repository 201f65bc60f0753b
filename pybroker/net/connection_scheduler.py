"""Which connection is served next: those with short turns at once, the others by the time that they have used.

Owns: the share of each turn of the loop that connections with long turns get, and the order in which they get it.
``TimeSlice`` is how long the turns of one connection take, from bytes to replies, and what it has had. Does not own
what is done in a turn (``connection`` says when it begins and ends).

The rule. A connection whose turns have been short lately (``limits.SHORT_SLICE_NS``) is served as soon as its bytes are
there, and costs this module nothing. The others have ``limits.TIME_SLICE_NS`` of each turn of the loop between them,
and one request at least; what does not fit waits, least time used first. So a small request waits for one long one as a
rule, however many clients ask for those. Clients that ask for long ones get the same time each, however long each
request is. Of equals the one whose turns are shorter goes first. A new connection, of which nothing is known, is served
before those that are known to take long, but for every second turn.

Invariants: no connection starves, because the time that one has used counts from what those that wait have had by now
(fair queueing). A connection gains nothing for time in which it asked for nothing. One that had the broker for itself
owes nothing for that. New connections without end get one turn in two.

Kafka has no counterpart: its request queue is served in the order of arrival, by several threads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

from pybroker import limits

log = logging.getLogger(__name__)

_AVERAGE_SHIFT = 2  # the last turn counts for a quarter
_NEW_CONNECTION_SLICE_NS = limits.SHORT_SLICE_NS + 1  # its turns are unknown yet: one short turn is trusted


class TimeSlice:
    """The turns of one connection, by the clock ``now_ns``.  ``ConnectionScheduler`` keeps ``is_awaited`` and
    ``used_ns``."""

    __slots__ = ("_ends_ns", "_now_ns", "average_ns", "is_awaited", "is_cut_short", "is_new", "used_ns")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.is_new = True  # until its first turn: what it asks for is unknown
        self.average_ns = _NEW_CONNECTION_SLICE_NS  # what a turn has taken on the average of the last few
        self.is_awaited = False
        self.used_ns = 0
        self.is_cut_short = False  # frames were left when the turn was over
        self._ends_ns = 0

    def begin(self) -> int:
        """Bytes are here to be served; gives back the time, for ``end``."""
        now_ns = self._now_ns  # to call ``self._now_ns()`` takes twice as long: a slot is no method
        begun_ns = now_ns()
        self._ends_ns = begun_ns + limits.TIME_SLICE_NS
        self.is_cut_short = False
        return begun_ns

    def is_over(self) -> bool:
        """Whether its time is used up: what is left of the requests has to wait."""
        now_ns = self._now_ns
        return now_ns() > self._ends_ns

    def cut_short(self) -> None:
        """It is over, and requests are left."""
        self.is_cut_short = True

    def end(self, begun_ns: int, has_served: bool) -> int:
        """The ns that it took; it does not count where nothing was served: the pieces of a frame are no turns."""
        now_ns = self._now_ns
        used_ns = now_ns() - begun_ns
        if has_served:
            self.average_ns += (used_ns - self.average_ns) >> _AVERAGE_SHIFT
            self.is_new = False
        return used_ns


class ScheduledConnection(Protocol):
    """What has turns: a connection."""

    @property
    def time_slice(self) -> TimeSlice: ...

    def run_slice(self) -> int:
        """Its turn has come: serve what waits; gives back what that took in ns."""
        ...

    def abort(self) -> None:
        """Its turn failed."""
        ...


class ConnectionScheduler:
    """``call_soon`` runs a callback in the next turn of the loop."""

    __slots__ = (
        "_begun",
        "_call_soon",
        "_new_connections",
        "_passed_over",
        "_prefers_new",
        "_used_ns",
        "_virtual_ns",
        "_waited",
        "_waiting",
        "is_full",
    )

    def __init__(self, call_soon: Callable[..., Any]) -> None:
        self.is_full = False  # no further long turn fits into this turn of the loop
        self._call_soon = call_soon
        self._begun = False
        self._passed_over = False
        self._used_ns = 0  # of this turn of the loop
        self._virtual_ns = 0  # the time that each of those that wait has had, at least
        self._waiting: list[tuple[int, int, int, ScheduledConnection]] = []  # a heap; the third: where its time begins
        self._waited = 0  # so that equals are served in the order in which they came
        self._new_connections: deque[ScheduledConnection] = deque()
        self._prefers_new = True

    def wait(self, connection: ScheduledConnection) -> None:
        """Call ``connection.run_slice()``, which gives back how many ns it took, when those before it had theirs."""
        time_slice = connection.time_slice
        if time_slice.is_awaited:
            return
        time_slice.is_awaited = True
        if time_slice.is_new:
            self._new_connections.append(connection)
        else:
            start_ns = max(time_slice.used_ns, self._virtual_ns)
            self._waited += 1
            heappush(self._waiting, (start_ns + time_slice.average_ns, self._waited, start_ns, connection))
        self.is_full = True
        self._begin()

    def took(self, connection: ScheduledConnection, used_ns: int) -> None:
        """A long turn was taken at once."""
        start_ns = max(connection.time_slice.used_ns, self._virtual_ns)
        if not self._waiting:
            self._virtual_ns = start_ns
        self._end(connection, start_ns, used_ns)
        if self._used_ns >= limits.TIME_SLICE_NS:
            self.is_full = True
        self._begin()

    def _end(self, connection: ScheduledConnection, start_ns: int, used_ns: int) -> None:
        connection.time_slice.used_ns = start_ns + used_ns
        self._used_ns += used_ns
        if connection.time_slice.is_cut_short:
            self.wait(connection)

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._call_soon(self._next)

    def _next(self) -> None:
        """What is left of the share of this turn of the loop; of every second one a turn at least."""
        self._begun = False
        self._passed_over = self._used_ns >= limits.TIME_SLICE_NS and not self._passed_over
        if not self._passed_over:
            self._used_ns = 0
            while (self._waiting or self._new_connections) and self._used_ns < limits.TIME_SLICE_NS:
                self._serve_first()
        self._used_ns = 0
        self.is_full = bool(self._waiting or self._new_connections)
        if self.is_full:
            self._begin()

    def _serve_first(self) -> None:
        if self._new_connections and (self._prefers_new or not self._waiting):
            self._prefers_new = False
            connection, start_ns = self._new_connections.popleft(), self._virtual_ns
        else:
            self._prefers_new = True
            _, _, start_ns, connection = heappop(self._waiting)
            self._virtual_ns = max(self._virtual_ns, start_ns)
        connection.time_slice.is_awaited = False
        try:
            used_ns = connection.run_slice()
        except Exception:  # the others wait for theirs
            log.exception("the turn of %s failed", connection)
            connection.abort()
        else:
            self._end(connection, start_ns, used_ns)

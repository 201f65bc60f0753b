"""Long work of a coordinator, done piece by piece: one piece in each turn of the loop, each kind of work in its turn.

Owns: who waits for a turn, and whose it is next. Owns no work. A piece is a call of the code that added it, which holds
the loop for a slice of its time and adds itself again unless it is done.

Each kind of work that waits has its turn after every other kind. So thousands of groups that resolve expressions do not
hold up the assignment of one. Among those of a kind, each has its turn after every other.

Counterpart in Kafka: the coordinator's executor thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from pybroker.env import Cancellable, Timers


class _Piece:
    """One that waits for its turn; also the handle to call it off."""

    __slots__ = ("_called_off", "call")

    def __init__(self, call: Callable[[], None], called_off: Callable[[_Piece], None]) -> None:
        self.call = call
        self._called_off = called_off

    def cancel(self) -> None:
        self._called_off(self)


class RoundRobinWork:
    __slots__ = ("_is_scheduled", "_kinds", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        # Both levels in order of who is next; a kind that nobody waits for is not there.
        self._kinds: OrderedDict[str, OrderedDict[_Piece, None]] = OrderedDict()
        self._is_scheduled = False

    def add(self, kind: str, callback: Callable[..., None], *args: Any) -> Cancellable:
        """Call ``callback(*args)`` in a later turn of the loop, behind all of its kind that wait already."""
        piece = _Piece(partial(callback, *args), partial(self._remove, kind))
        self._kinds.setdefault(kind, OrderedDict())[piece] = None
        self._schedule()
        return piece

    def _remove(self, kind: str, piece: _Piece) -> None:
        waiting = self._kinds.get(kind)
        if waiting is not None and piece in waiting:
            del waiting[piece]
            if not waiting:
                del self._kinds[kind]

    def _schedule(self) -> None:
        if self._kinds and not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if not self._kinds:
            return  # all were called off
        kind, waiting = self._kinds.popitem(last=False)
        piece, _ = waiting.popitem(last=False)
        if waiting:
            self._kinds[kind] = waiting
        # Before the piece is called: one that fails is in nobody's way.
        self._schedule()
        piece.call()

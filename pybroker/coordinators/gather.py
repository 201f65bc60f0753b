"""Waits for several answers and hands them on together.

Counterpart in Kafka: ``FutureUtils.combineFutures``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Gather:
    """``done(answers)`` runs once all ``count`` slots are filled (at once when there are none), in slot order."""

    __slots__ = ("_answers", "_done", "_missing")

    def __init__(self, count: int, done: Callable[[list[Any]], None]) -> None:
        self._answers: list[Any] = [None] * count
        self._missing = count
        self._done = done
        if count == 0:
            done(self._answers)

    def slot(self, position: int) -> Callable[[Any], None]:
        """The function that fills one slot; it is called exactly once, but for the slot in whose call ``done`` failed:
        filled again, with an error, it has ``done`` run again."""

        def fill(answer: Any) -> None:
            self._answers[position] = answer
            self._missing -= 1
            if self._missing <= 0:
                self._done(self._answers)

        return fill

"""Ctrl-C and SIGTERM in the middle of a loop: noticed at once, obeyed between two steps.

Owns: the handlers while a loop runs.  An exception out of the blue would tear the client library in the middle of a
request and forget what was printed but not committed; the loop asks ``stopped`` instead.  A second signal insists.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Inside the ``with`` block a first signal sets ``stopped``; leaving the block ends the process with its code."""

    def __init__(self) -> None:
        self.stopped = False
        self._number = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        if self.stopped and kind is None:
            raise SystemExit(128 + self._number)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.stopped = True
        self._number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

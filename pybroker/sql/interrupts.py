"""Ctrl-C while a statement runs: it ends the statement, between two of its steps.

Owns the signal's handler meanwhile.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from pybroker.sql.session import End, Session
from pybroker.sql.sql_errors import Interrupted


class Interrupts:
    """Ctrl-C while a statement runs: noted, and asked for by the statement.  A second one is Python's own."""

    def __init__(self) -> None:
        self.happened = False

    def __call__(self) -> bool:
        """Whether it has come."""
        return self.happened

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Inside of the block Ctrl-C is noted."""
        self.happened = False
        previous = signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.happened = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run_texts(session: Session, texts: Iterable[str]) -> None:
    """Run the statements of texts, each of which ends one; Ctrl-C ends them, as ``KeyboardInterrupt``."""
    interrupts = Interrupts()
    try:
        with interrupts.heeded():
            for text in texts:
                session.run(text, interrupts)
    except End:
        return
    except Interrupted:
        raise KeyboardInterrupt from None

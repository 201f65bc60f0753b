"""Ending on request: SIGTERM (``timeout``, a cancelled CI job) as an exception, so that what was started is ended too.

Without a handler Python dies at once: no ``finally`` runs, and brokers and clients are left behind.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM


class _State:
    """Of the process, as its signal handlers are."""

    deferrals = 0
    is_asked_for = False


def exit_on_sigterm() -> None:
    """From now on SIGTERM raises ``SystemExit(143)`` in the main thread.

    Only the first one: a second, while things are being ended, would interrupt that.
    """
    signal.signal(signal.SIGTERM, _exit)


@contextmanager
def not_interrupted() -> Iterator[None]:
    """Let SIGTERM wait for the end of this: a process that is started has to be known to whoever ends it.

    To block the signal would not do, because children inherit that.
    """
    _State.deferrals += 1
    try:
        yield
    finally:
        _State.deferrals -= 1
        if _State.is_asked_for and _State.deferrals == 0:
            _State.is_asked_for = False
            raise SystemExit(EXIT_CODE)


def _exit(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if _State.deferrals > 0:
        _State.is_asked_for = True
        return
    raise SystemExit(EXIT_CODE)

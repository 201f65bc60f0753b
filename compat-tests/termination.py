"""Ending on request: SIGTERM (``timeout``, a cancelled CI job) as an exception, so that what was started is ended too.

Without a handler Python dies at once: no ``finally`` runs, and brokers and clients are left behind.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

EXIT_CODE = 128 + signal.SIGTERM


def exit_on_sigterm() -> None:
    """From now on SIGTERM raises ``SystemExit(143)`` in the main thread.

    Only the first one: a second, while things are being ended, would interrupt that.
    """
    signal.signal(signal.SIGTERM, _exit)


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(EXIT_CODE)

"""What Linux tells of a process: whether it is the one that was meant, whether it stands still or holds a file's lock.

Owns: reading ``/proc``, and trying a lock.  A pid alone names no process for good: another gets it once the first is
gone, so a kept pid has its start time beside it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path

_STATE, _START_TIME = 0, 19  # of the fields behind the name
_PR_SET_PDEATHSIG = 1


def start_time(pid: int) -> int | None:
    """When a process began, in ticks since the boot; None where there is no such process."""
    fields = _fields(pid)
    return None if fields is None or fields[_STATE] in "ZX" else int(fields[_START_TIME])


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, or by a debugger."""
    fields = _fields(pid)
    return fields is not None and fields[_STATE] in "Tt"


def is_locked_by_another(path: Path) -> bool:
    """Whether another process holds the lock on a file.  This one must not: it would lose it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # its user gets the reason
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def ends_with_parent() -> Callable[[], None]:
    """What a child calls before its program begins, so that it gets a signal to end when its parent dies, however that
    is."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux alone has it

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask


def _fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()  # the name may hold anything

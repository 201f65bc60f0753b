"""Processes that are stopped where they are, and go on later.

SIGSTOP is under way when ``kill`` returns: on a busy machine threads of the process may do a request more.  So a
process counts as paused when each of its threads has stopped.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from harness.waiting import wait_until

_STOPPED = "T"


def pause(pid: int) -> None:
    """Stop a process, and return when none of its threads runs; ``ProcessLookupError`` where there is none."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _has_stopped(pid), f"process {pid} to stop")


def resume(pid: int) -> None:
    """Let it go on."""
    os.kill(pid, signal.SIGCONT)


def _has_stopped(pid: int) -> bool:
    if sys.platform != "linux":
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            if (thread / "stat").read_text().rpartition(")")[2].split()[0] != _STOPPED:
                return False
    return True

"""The calls of the operating system that are about this process: its limits, its memory, its share of the processors.

Owns no state.  Does not own what concerns a file or a directory: that is ``os_file``.

Invariant: what only Linux has, or tells, is left out elsewhere, and no function fails for it.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

_LOWEST_PRIORITY = 19
_PAGE_BYTES = resource.getpagesize()


def resident_file_bytes() -> int:
    """How many bytes of mapped files, its libraries among them, count as this process's memory; 0 if unknown."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[2]) * _PAGE_BYTES
    except OSError:
        return 0


def raise_open_files_limit() -> int:
    """Raise RLIMIT_NOFILE to the hard limit, as every open segment holds two descriptors; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # macOS reports an infinite hard limit that it then refuses.
            pass
    return soft


def run_when_idle() -> None:
    """Give this process only what no other wants of the processors: another one that wakes up takes over at once.

    The lowest niceness alone lets it finish its slice of some milliseconds first.
    """
    os.nice(_LOWEST_PRIORITY)
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def run_among_others() -> None:
    """Take back ``run_when_idle``: a share of the processors again, the smallest there is."""
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def processor_seconds() -> tuple[float, float]:
    """(seconds that this process has run, seconds that it was ready to and had to wait); no waiting where unknown."""
    try:
        ran_ns, waited_ns, _ = Path("/proc/self/schedstat").read_text().split()
    except OSError:
        return time.process_time(), 0.0
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9

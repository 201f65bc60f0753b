"""Making free memory absent, as a virtual machine's host makes it, to measure what that costs.

A host with free page reporting takes blocks of 2 MB and more that the guest has free, about 2 s after they became so,
and gives each page again at its first touch: a GB in the page cache then costs seconds of system time, not tenths.
Smaller blocks are never taken, and the kernel uses them first.  ``SmallBlocks`` therefore waits, and then holds what
there is of them: what a broker gets next are pages that the host has to give.
"""

from __future__ import annotations

import mmap
import resource
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

# A system call's worth of memory at a time.
CHUNK_BYTES = 64 * 1024 * 1024
# What a GB of new pages costs in system time, told apart: some tenths of a second where the guest has them, some
# seconds where the host has to give them.
TAKEN_S_PER_GB = 1.0
TAKEN_CHUNKS = 4
# Of what is available, so that nothing else is driven out.
HELD_SHARE_MAX = 0.5
# The host looks every 2 s for what has become free.
TAKING_S = 3.0
PROBE_BYTES = 64 * 1024 * 1024


def available_bytes() -> int:
    """What the kernel could still give to processes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def system_s() -> float:
    """System time of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime


class SmallBlocks:
    """The small blocks of free memory, held until the end of the ``with``."""

    def __init__(self) -> None:
        self._held: list[mmap.mmap] = []
        self._held_bytes_max = available_bytes() * HELD_SHARE_MAX

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for held in self._held:
            held.close()

    def hold(self) -> None:
        """Let the host take what is free in large blocks, then take what comes from small ones, until nothing does."""
        time.sleep(TAKING_S)
        taken = 0
        while taken < TAKEN_CHUNKS and len(self._held) * CHUNK_BYTES < self._held_bytes_max:
            taken = taken + 1 if self._hold_chunk() > TAKEN_S_PER_GB else 0

    def _hold_chunk(self) -> float:
        """Take one more chunk; returns its system time in seconds per GB."""
        chunk = mmap.mmap(-1, CHUNK_BYTES)
        chunk.madvise(mmap.MADV_NOHUGEPAGE)
        chunk.madvise(mmap.MADV_DONTFORK)
        self._held.append(chunk)
        started = system_s()
        for at in range(0, CHUNK_BYTES, mmap.PAGESIZE):
            chunk[at] = 1
        return (system_s() - started) / (CHUNK_BYTES / 1e9)


def page_cache_write_s_per_gb(directory: Path) -> float:
    """System time of a write into the page cache, in seconds per GB: tenths, or seconds where memory is taken back."""
    chunk = bytes(1024 * 1024)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        started = system_s()
        for _ in range(PROBE_BYTES // len(chunk)):
            file.write(chunk)
        return (system_s() - started) / (PROBE_BYTES / 1e9)

"""What Linux says of a process and of the machine at work: CPU seconds, resident memory, load.

CPU seconds are those of the process and all of its threads, user and system, including what it spends in the kernel's
copies into the page cache; children count once they have ended.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

_MB = 1024**2


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in MB: anonymous (what the process allocated) and of files (mapped logs, libraries)."""

    anon_mb: float
    file_mb: float

    @property
    def rss_mb(self) -> float:
        return self.anon_mb + self.file_mb


def cpu_seconds(pid: int) -> float:
    """CPU time that the process has used so far, in seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def memory(pid: int) -> Memory:
    """Resident memory of the process."""
    info = psutil.Process(pid).memory_info()
    return Memory(anon_mb=(info.rss - info.shared) / _MB, file_mb=info.shared / _MB)


def proportional_mb(pid: int) -> float:
    """Resident memory of the process in MB, of which each page counts by how many share it (PSS)."""
    return float(psutil.Process(pid).memory_full_info().pss) / _MB


def load_average() -> float:
    """The machine's load over the last minute."""
    return os.getloadavg()[0]


def stolen_seconds() -> float:
    """Time since the machine's start in which one of its processors wanted to run and the host ran something else."""
    return float(psutil.cpu_times().steal)

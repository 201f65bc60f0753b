"""What Linux says of a process and of the machine: CPU seconds, resident memory, load.

CPU seconds are those of the process and all of its threads, user and system, including what it spends in the kernel's
copies into the page cache; children count once they have ended.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


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
    # The name, in parentheses, may hold spaces; what follows the last one is made of numbers.
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in numbers[11:15]) / TICKS_PER_SECOND


def memory(pid: int) -> Memory:
    """Resident memory of the process."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    kilobytes = {name: int(fields[name].split()[0]) for name in ("RssAnon", "RssFile")}
    return Memory(kilobytes["RssAnon"] / 1024, kilobytes["RssFile"] / 1024)


def load_average() -> float:
    """The machine's load over the last minute."""
    return os.getloadavg()[0]


def stolen_seconds() -> float:
    """Time since the machine's start in which one of its processors wanted to run and the host ran something else."""
    return int(Path("/proc/stat").read_text().split()[8]) / TICKS_PER_SECOND


def machine() -> str:
    """One line about the machine."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    release = os.uname()
    return f"{os.cpu_count()} × {model}, {memory_kb / 1024**2:.0f} GB, {release.sysname} {release.release}"

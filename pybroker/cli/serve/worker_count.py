"""How many workers ``pybroker serve --workers auto`` runs: one for each processor, and each that has data.

Owns: the count.  Does not own the workers (``workers``).

Invariant: a directory of a worker is never left without its worker, or its partitions would be offline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pybroker.operating_system import processor_count

WORKERS_MAX: Final = 256
CPU_LIMIT_FILE: Final = Path("/sys/fs/cgroup/cpu.max")
_DIRECTORY: Final = re.compile(r"worker-(\d+)")


def automatic_count(log_dirs: Sequence[str], limit_file: Path = CPU_LIMIT_FILE) -> int:
    """One worker per processor of this process, or as many as ``log_dirs`` hold data of, if that is more."""
    return min(WORKERS_MAX, max(_processors_paid_for(limit_file), _workers_with_data(log_dirs)))


def _processors_paid_for(limit_file: Path) -> int:
    """The processors that this process may use, and no more than its control group pays for (``docker --cpus``)."""
    count = processor_count()
    try:
        quota, period = limit_file.read_text().split()
        return max(1, min(count, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max": there is no limit
        return count


def _workers_with_data(log_dirs: Sequence[str]) -> int:
    numbers = [
        int(match[1])
        for directory in log_dirs
        for path in Path(directory).glob("worker-*")
        if (match := _DIRECTORY.fullmatch(path.name))
    ]
    return max(numbers, default=-1) + 1

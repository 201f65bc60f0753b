"""What a report says of when it was made, and on which machine."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import psutil


def now_text() -> str:
    """This moment in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def machine() -> str:
    """One line about the machine."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gb = psutil.virtual_memory().total / 1024**3
    release = os.uname()
    return f"{os.cpu_count()} × {model}, {memory_gb:.0f} GB, {release.sysname} {release.release}"

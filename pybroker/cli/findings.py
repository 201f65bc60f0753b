"""What a check of ``pybroker doctor`` has found, and how much it means.

Owns: the value alone.  What is looked at is ``cluster_checks``' and ``host_checks``'.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    """FAILED ends the command with 1.  SKIPPED is what could not be looked at because of another check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(NamedTuple):
    """One check's; ``advice`` says what to do about it."""

    check: str
    status: Status
    message: str
    advice: str = ""


def shown_bytes(count: int) -> str:
    """A number of bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"

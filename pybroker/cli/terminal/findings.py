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

"""How far a query has fetched, for a person who waits for its first row.

Owns when that is shown: from the query's first second on, until its first row.  What it looks like is the command's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final, TypeAlias

from pybroker.sql.fetching.scanning import Scan

# Given the number of records in all, it shows what it is called with: the number fetched so far.
ShowProgress: TypeAlias = Callable[[int], AbstractContextManager[Callable[[int], None]]]

# What takes less is answered before a person has read anything.
_SHOWN_AFTER_S: Final = 1.0


class QueryProgress:
    """Asked again and again whether the query is interrupted, it shows meanwhile how far the scans are."""

    def __init__(self, show: ShowProgress, scans: Sequence[Scan], is_interrupted: Callable[[], bool]) -> None:
        self._show = show
        self._scans = scans
        self._is_interrupted = is_interrupted
        self._from_s = time.monotonic() + _SHOWN_AFTER_S
        self._shown = ExitStack()
        self._told: Callable[[int], None] | None = None
        self._is_over = not scans

    def __call__(self) -> bool:
        """Whether the query is to end."""
        if not self._is_over and time.monotonic() >= self._from_s:
            if self._told is None:
                self._told = self._shown.enter_context(self._show(sum(scan.offsets for scan in self._scans)))
            self._told(sum(scan.fetched_rows for scan in self._scans))
        return self._is_interrupted()

    def end(self) -> None:
        """Show nothing more; idempotent."""
        self._is_over = True
        self._shown.close()

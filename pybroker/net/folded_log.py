"""Lines of log that peers can cause at will, folded: the first at once, then how many more there were.

Owns: which lines were written lately, and the count of those that were not.  For what a peer did (refused frames and
connections, replies that it does not take); what the broker did wrong is logged each time.

Invariants: of one kind from one host there is a line at the most, and a count, in ``limits.FOLDED_LOG_MS``; of all
together no more than ``limits.FOLDED_LOG_KINDS``, and one count for what is beyond; nothing is lost without a count.

Kafka counterpart: none; its listeners log each refused connection.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from pybroker import limits

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Timers

_NUMBERS = re.compile(r"\d+")
_KIND_CHARS = 100
_OTHERS = ("other peers", "other reasons")


class FoldedLog:
    """See the module's docstring."""

    __slots__ = ("_counts", "_log", "_timer", "_timers")

    def __init__(self, log: logging.Logger, timers: Timers) -> None:
        self._log = log
        self._timers = timers
        self._timer: Cancellable | None = None
        self._counts: dict[tuple[str, str], int] = {}

    def warning(self, host: str, who: object, reason: str) -> None:
        """``who`` was closed for that reason, which passes for the same if only its numbers are others."""
        kind = host, _NUMBERS.sub("…", reason[:_KIND_CHARS])
        if kind not in self._counts:
            if len(self._counts) < limits.FOLDED_LOG_KINDS:
                self._log.warning("closing the connection of %s: %s", who, reason)
                self._counts[kind] = 0
                self._tell_later()
                return
            kind = _OTHERS
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def close(self) -> None:
        """Tell what is not told yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell_later(self) -> None:
        if self._timer is None:
            self._timer = self._timers.call_later(limits.FOLDED_LOG_MS, self._tell)

    def _tell(self) -> None:
        self._timer = None
        counts, self._counts = self._counts, {}
        for kind, count in counts.items():
            if count:
                self._counts[kind] = 0  # it goes on: its next line is a count, too
                seconds = limits.FOLDED_LOG_MS // 1_000
                self._log.warning("… and %d more of %s in the last %d s: %s", count, kind[0], seconds, kind[1])
        if self._counts:
            self._tell_later()

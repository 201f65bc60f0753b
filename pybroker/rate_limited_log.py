"""Lines of log that peers can cause at will, folded: the first at once, then how many more there were.

Owns: which lines were written lately, and the count of those that were not. The lines are for what a peer did: refused
frames and connections, replies that it does not take. They are also for what each of its requests can run into as long
as it lasts, as a full disk. A fault of the broker's own is logged each time.

Invariants:
- One kind from one source makes one line at the most, and a count, in ``FOLDED_LOG_MS``.
- One source has no more than ``FOLDED_LOG_KINDS_OF_ONE`` kinds, so that none hides what others do. All together
  have no more than ``FOLDED_LOG_KINDS``, and what is beyond is one count each.
- Nothing is lost without a count.

The owner of a ``RateLimitedLog`` closes it.

Kafka counterpart: none; its listeners log each refused connection.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Timers

# Lines of log that peers cause are folded for so long, and so many kinds of them are counted, of one source a fifth, so
# that none hides what others do.
FOLDED_LOG_MS = 10_000
FOLDED_LOG_KINDS = 100
FOLDED_LOG_KINDS_OF_ONE = 20

_NUMBERS = re.compile(r"\d+")
_KIND_CHARS = 100
_OTHER_REASONS = "other reasons"
_OTHERS = ("others", _OTHER_REASONS)


class RateLimitedLog:
    __slots__ = ("_counts", "_kinds", "_level", "_levels", "_log", "_timer", "_timers")

    def __init__(self, log: logging.Logger, timers: Timers, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._timers = timers
        self._timer: Cancellable | None = None
        self._counts: dict[tuple[str, str], int] = {}
        self._levels: dict[tuple[str, str], int] = {}  # the highest of those counted
        self._kinds: Counter[str] = Counter()  # of each source

    def warning(self, source: str, reason: str, line: str, *args: object) -> None:
        """Write ``line % args``, or count it where ``source`` has caused one for that reason lately."""
        if self.is_first(source, reason):
            self._log.log(self._level, line, *args)

    def is_first(self, source: str, reason: str, level: int | None = None) -> bool:
        """Whether the caller has to write the line; else it is counted, to be logged at the same level.

        Reasons pass for the same if only their numbers are others.
        """
        kind = source, _NUMBERS.sub("…", reason[:_KIND_CHARS])
        if kind not in self._counts:
            if len(self._counts) >= FOLDED_LOG_KINDS:
                kind = _OTHERS
            elif self._kinds[source] >= FOLDED_LOG_KINDS_OF_ONE:
                kind = source, _OTHER_REASONS
            else:
                self._counts[kind] = 0
                self._kinds[source] += 1
                self._tell_later()
                return True
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._levels[kind] = max(self._levels.get(kind, 0), self._level if level is None else level)
        return False

    def close(self) -> None:
        """Log what is not logged yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell_later(self) -> None:
        if self._timer is None:
            self._timer = self._timers.call_later(FOLDED_LOG_MS, self._tell)

    def _tell(self) -> None:
        self._timer = None
        counts, self._counts = self._counts, {}
        levels, self._levels = self._levels, {}
        self._kinds.clear()
        for kind, count in counts.items():
            if count:
                self._counts[kind] = 0  # it goes on: its next line is a count, too
                self._kinds[kind[0]] += 1
                seconds = FOLDED_LOG_MS // 1_000
                self._log.log(
                    levels[kind], "… and %d more of %s in the last %d s: %s", count, kind[0], seconds, kind[1]
                )
        if self._counts:
            self._tell_later()

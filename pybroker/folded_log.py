"""Lines of log that peers can cause at will, folded: the first at once, then how many more there were.

Owns: which lines were written lately, and the count of those that were not.  For what a peer did (refused frames and
connections, replies that it does not take) and for what each of its requests can run into as long as it lasts (a full
disk); a fault of the broker's own is logged each time.

Invariants: of one kind from one source there is a line at the most, and a count, in ``limits.FOLDED_LOG_MS``; of all
together no more than ``limits.FOLDED_LOG_KINDS``, and one count for what is beyond; nothing is lost without a count.

Whoever makes a ``FoldedLog`` closes it.

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
_OTHERS = ("others", "other reasons")


class FoldedLog:
    """See the module's docstring."""

    __slots__ = ("_counts", "_log", "_timer", "_timers")

    def __init__(self, log: logging.Logger, timers: Timers) -> None:
        self._log = log
        self._timers = timers
        self._timer: Cancellable | None = None
        self._counts: dict[tuple[str, str], int] = {}

    def warning(self, source: str, reason: str, line: str, *args: object) -> None:
        """Write ``line % args``, or count it where ``source`` has caused one for that reason lately.

        Reasons pass for the same if only their numbers are others.
        """
        kind = source, _NUMBERS.sub("…", reason[:_KIND_CHARS])
        if kind not in self._counts:
            if len(self._counts) < limits.FOLDED_LOG_KINDS:
                self._log.warning(line, *args)
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

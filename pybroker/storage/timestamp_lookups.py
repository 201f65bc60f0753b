"""Searches by timestamp that take long: which of them the log directory's reader thread has, and which wait.

Owns ``TimestampLookup``, a search that goes on in the thread, and ``TimestampLookups``, the lookups of a log directory.
Does not own the search (``timestamp_lookup``).

Invariants: there are two lines, so that searches in batches as producers send them do not wait for searches in batches
of millions of tiny records.  Of each line the thread has one lookup of a log at most, and of all logs
``LOOKUPS_AT_ONCE``, because each may hold what it has decompressed; the logs whose lookups wait take turns.  A lookup
comes to one end: found or not, failed with its log, or given up, when nobody hears of it.  What is given up goes no
further than to its next yield.

Kafka: none; there a request handler thread decodes for as long as it takes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

from pybroker import limits
from pybroker.env import WorkGivenUp
from pybroker.storage.results import KAFKA_STORAGE_ERROR, TimestampOffset

if TYPE_CHECKING:
    from pybroker.env import Cancellable
    from pybroker.storage.log import Log

# What a search has come to so far.
Found: TypeAlias = "TimestampOffset | TimestampLookup | None"
# A search in one segment, in portions: what it found, and the offset behind what it has looked at.
Search = Generator[int, None, tuple[TimestampOffset | None, int]]

logger = logging.getLogger("pybroker.storage")


class TimestampLookup:
    """A search by timestamp that takes longer than the loop has time for: ``start(done)`` goes on with it.

    ``done(TimestampOffset | None)`` runs on the loop later, once, but not after ``give_up()``.
    """

    __slots__ = ("_done", "_go_on", "_job", "_search", "is_long", "log")

    def __init__(self, log: Log, search: Search, is_long: bool, go_on: Callable[[int], Found]) -> None:
        """``go_on(offset)`` is the whole search from an offset on, for where this one has found nothing.

        ``is_long``: the batch that is next has more records than those of producers have.
        """
        self.log = log
        self.is_long = is_long
        self._search: Search | None = search
        self._go_on = go_on
        self._done: Callable[[TimestampOffset | None], None] | None = None
        self._job: Cancellable | None = None

    def start(self, done: Callable[[TimestampOffset | None], None]) -> None:
        """Have the log directory's reader thread go on, when it is this log's turn."""
        self._done = done
        self.log.directory.lookups.add(self)

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._done = None
        if self._job is not None:
            self._job.cancel()
        else:
            self.log.directory.lookups.remove(self)
            self._search = None

    def stop(self) -> None:
        """The thread has it, and its log is gone."""
        if self._job is not None:
            self._job.cancel()

    def hand_over(self, ended: Callable[[TimestampLookup], None]) -> None:
        """Called by ``TimestampLookups``, which is told when the thread has no more to do for it."""
        search, self._search = self._search, None
        assert search is not None, "a lookup is handed over once"

        def finished(outcome: tuple[TimestampOffset | None, int] | None, error: BaseException | None) -> None:
            self._job = None
            ended(self)
            if self._done is not None:
                self._take(outcome, error)

        self._job = self.log.directory.reader.submit(lambda: search, finished)

    def fail(self) -> None:
        """The log cannot be asked any more."""
        self._search = None
        self._end(TimestampOffset(-1, -1, -1, KAFKA_STORAGE_ERROR))

    def _take(self, outcome: tuple[TimestampOffset | None, int] | None, error: BaseException | None) -> None:
        if outcome is None or self.log.refuses:  # at a stop there is no thread to go on with
            if error is not None and not isinstance(error, WorkGivenUp):
                logger.error("A batch of %s could not be looked into", self.log.path, exc_info=error)
            self.fail()
            return
        found, behind = outcome
        more = self._go_on(behind) if found is None else found
        if isinstance(more, TimestampLookup):
            self._search, self._go_on, self.is_long = more._search, more._go_on, more.is_long
            self.log.directory.lookups.add(self)
        else:
            self._end(more)

    def _end(self, found: TimestampOffset | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(found)


class _Line:
    """Lookups of one kind, some of which the thread has."""

    __slots__ = ("_ready", "_under_way", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Log, dict[TimestampLookup, None]] = {}  # each log's in order of arrival
        self._under_way: dict[Log, TimestampLookup] = {}
        self._ready: dict[Log, None] = {}  # those of which some wait and none is under way, in order of turn

    def add(self, lookup: TimestampLookup) -> None:
        log = lookup.log
        self._waiting.setdefault(log, {})[lookup] = None
        if log not in self._under_way:
            self._ready[log] = None
            self._hand_out()

    def remove(self, lookup: TimestampLookup) -> None:
        log = lookup.log
        waiting = self._waiting.get(log)
        if waiting is not None and waiting.pop(lookup, lookup) is None and not waiting:
            del self._waiting[log]
            self._ready.pop(log, None)

    def drop(self, log: Log) -> None:
        self._ready.pop(log, None)
        for lookup in self._waiting.pop(log, ()):
            lookup.fail()
        if log in self._under_way:
            self._under_way[log].stop()

    def logs(self) -> list[Log]:
        return list(self._waiting)

    def _hand_out(self) -> None:
        while self._ready and len(self._under_way) < limits.LOOKUPS_AT_ONCE:
            log = next(iter(self._ready))
            del self._ready[log]
            waiting = self._waiting[log]
            lookup = next(iter(waiting))
            del waiting[lookup]
            if not waiting:
                del self._waiting[log]
            self._under_way[log] = lookup
            lookup.hand_over(self._ended)

    def _ended(self, lookup: TimestampLookup) -> None:
        log = lookup.log
        del self._under_way[log]
        if log in self._waiting:
            self._ready[log] = None
        self._hand_out()


class TimestampLookups:
    """Those of one log directory.  Everything runs on the loop."""

    __slots__ = ("_is_closed", "_lines")

    def __init__(self) -> None:
        self._lines = {is_long: _Line() for is_long in (False, True)}
        self._is_closed = False

    def add(self, lookup: TimestampLookup) -> None:
        """Take a lookup in; it fails where the log directory is closing."""
        if self._is_closed:
            lookup.fail()
        else:
            self._lines[lookup.is_long].add(lookup)

    def remove(self, lookup: TimestampLookup) -> None:
        """Nobody waits for it any more, and the thread has not got it."""
        self._lines[lookup.is_long].remove(lookup)

    def drop(self, log: Log) -> None:
        """End those of a log that is gone."""
        for line in self._lines.values():
            line.drop(log)

    def close(self) -> None:
        """End those that wait; the others end with their thread."""
        self._is_closed = True
        for line in self._lines.values():
            for log in line.logs():
                line.drop(log)

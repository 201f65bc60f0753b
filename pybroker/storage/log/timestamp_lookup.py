"""A search by timestamp that takes longer than the loop has time for, and goes on in the reader thread.

Owns ``TimestampLookup``, from its start to its one end: found or not, failed with its log, or given up, when its
caller has gone.  Does not own the search (``timestamp_search``), nor whose turn it is (``dirs/lookup_queue``).

Invariant: what is given up goes no further than to its next yield.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

from pybroker.env import WorkGivenUp
from pybroker.storage.log.log_state import LogState
from pybroker.storage.results import KAFKA_STORAGE_ERROR, TimestampOffset

if TYPE_CHECKING:
    from pybroker.env import Cancellable

# What a search has come to so far.
Found: TypeAlias = "TimestampOffset | TimestampLookup | None"
# A search in one segment, in portions: what it found, and the offset behind what it has looked at.
Search = Generator[int, None, tuple[TimestampOffset | None, int]]

logger = logging.getLogger("pybroker.storage")


class TimestampLookup:
    """A search by timestamp that takes longer than the loop has time for: ``start(done)`` goes on with it.

    ``done(TimestampOffset | None)`` runs on the loop later, once, but not after ``give_up()``.
    """

    __slots__ = ("_done", "_go_on", "_job", "_search", "_turns", "is_long", "log")

    def __init__(self, log: LogState, search: Search, is_long: bool, go_on: Callable[[int], Found]) -> None:
        """``go_on(offset)`` is the whole search from an offset on, for where this one has found nothing.

        ``is_long``: the batch that is next has more records than those of producers have.
        """
        self.log = log
        self.is_long = is_long
        self._search: Search | None = search
        self._go_on = go_on
        self._done: Callable[[TimestampOffset | None], None] | None = None
        self._job: Cancellable | None = None
        self._turns = log.directory.lookups  # to the end also where the log moves to another directory meanwhile

    def start(self, done: Callable[[TimestampOffset | None], None]) -> None:
        """Have the log directory's reader thread go on, when it is this log's turn."""
        self._done = done
        self._turns.add(self)

    def give_up(self) -> None:
        """Its caller has gone."""
        self._done = None
        if self._job is not None:
            self._job.cancel()
        else:
            self._turns.remove(self)
            self._search = None

    def stop(self) -> None:
        """The thread has it, and its log is gone."""
        if self._job is not None:
            self._job.cancel()

    def hand_over(self, ended: Callable[[TimestampLookup], None]) -> None:
        """Called by ``LookupQueue``, which hears when the thread has no more to do for it."""
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
            self._turns.add(self)
        else:
            self._end(more)

    def _end(self, found: TimestampOffset | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(found)

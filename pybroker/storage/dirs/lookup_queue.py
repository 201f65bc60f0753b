"""The queue of searches by timestamp that take long: which the reader thread has, and which wait.

Owns the lookups of one log directory that wait for the thread, or have it.  Does not own a lookup, nor its search:
``log/timestamp_lookup`` and ``log/timestamp_search``.

Invariants: there are two lines, so that searches in batches as producers send them do not wait for searches in batches
of millions of tiny records. Of each line the thread has one lookup of a log at most, and of all logs
``LOOKUPS_AT_ONCE``, because each may hold what it has decompressed. The logs whose lookups wait take turns.

Kafka: none; there a request handler thread decodes for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

# Searches by timestamp that a log dir's reader thread has at once, of those in ordinary batches, and of those in larger
# ones: each may hold 128 MB, of one snappy block or of what zstd looks back at.
LOOKUPS_AT_ONCE = 2


class Lookup(Protocol):
    """A lookup as far as its turn is concerned."""

    @property
    def log(self) -> Hashable:
        """Whose it is."""

    @property
    def is_long(self) -> bool:
        """Whether the batch that is next has more records than those of producers have."""

    def hand_over(self, ended: Callable[[Lookup], None]) -> None:
        """It is its turn: go on in the thread, and say when the thread has no more to do for it."""

    def fail(self) -> None:
        """Its log cannot be asked any more, and the thread has not got it."""

    def stop(self) -> None:
        """Its log cannot be asked any more, and the thread has it."""


class _KindQueue:
    """Lookups of one kind, some of which the thread has."""

    __slots__ = ("_ready", "_under_way", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Hashable, dict[Lookup, None]] = {}  # each log's in order of arrival
        self._under_way: dict[Hashable, Lookup] = {}
        self._ready: dict[Hashable, None] = {}  # those of which some wait and none is under way, in order of turn

    def add(self, lookup: Lookup) -> None:
        log = lookup.log
        self._waiting.setdefault(log, {})[lookup] = None
        if log not in self._under_way:
            self._ready[log] = None
            self._hand_out()

    def remove(self, lookup: Lookup) -> None:
        log = lookup.log
        waiting = self._waiting.get(log)
        if waiting is not None and waiting.pop(lookup, lookup) is None and not waiting:
            del self._waiting[log]
            self._ready.pop(log, None)

    def drop(self, log: Hashable) -> None:
        self._ready.pop(log, None)
        for lookup in self._waiting.pop(log, ()):
            lookup.fail()
        if log in self._under_way:
            self._under_way[log].stop()

    def has_any_of(self, log: Hashable) -> bool:
        return log in self._waiting or log in self._under_way

    def logs(self) -> list[Hashable]:
        return list(self._waiting)

    def _hand_out(self) -> None:
        while self._ready and len(self._under_way) < LOOKUPS_AT_ONCE:
            log = next(iter(self._ready))
            del self._ready[log]
            waiting = self._waiting[log]
            lookup = next(iter(waiting))
            del waiting[lookup]
            if not waiting:
                del self._waiting[log]
            self._under_way[log] = lookup
            lookup.hand_over(self._ended)

    def _ended(self, lookup: Lookup) -> None:
        log = lookup.log
        del self._under_way[log]
        if log in self._waiting:
            self._ready[log] = None
        self._hand_out()


class LookupQueue:
    """Those of one log directory.  Everything runs on the loop."""

    __slots__ = ("_is_closed", "_lines")

    def __init__(self) -> None:
        self._lines = {is_long: _KindQueue() for is_long in (False, True)}
        self._is_closed = False

    def add(self, lookup: Lookup) -> None:
        """Take a lookup in; it fails where the log directory is closing."""
        if self._is_closed:
            lookup.fail()
        else:
            self._lines[lookup.is_long].add(lookup)

    def remove(self, lookup: Lookup) -> None:
        """Its caller has gone, and the thread has not got it."""
        self._lines[lookup.is_long].remove(lookup)

    def drop(self, log: Hashable) -> None:
        """End those of a log that is gone."""
        for line in self._lines.values():
            line.drop(log)

    def has_any_of(self, log: Hashable) -> bool:
        """Whether a lookup of the log waits, or is under way."""
        return any(line.has_any_of(log) for line in self._lines.values())

    def close(self) -> None:
        """End those that wait; the others end with their thread."""
        self._is_closed = True
        for line in self._lines.values():
            for log in line.logs():
                line.drop(log)

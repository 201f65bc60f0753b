"""Who follows a metadata store, and what each of them has seen.

Owns: the callbacks of ``MetadataStore.follow`` and ``watch_ephemerals``, each follower's place, and what is below each
watched prefix.  Owns no history: the store has one, and brings new followers up to where it tells the others from.

Invariants: everything here runs on the loop; no callback runs inside the call that asked for it, and a fault of one
keeps nothing from the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pybroker.cluster.store.metadata_store import Changes
from pybroker.env import Timers

CatchUp = Callable[[int, Callable[[Changes | None], None]], None]

log = logging.getLogger(__name__)


class _Follower:
    """One call of ``follow``; ``place`` is the revision up to which it was called, None while it is brought there."""

    __slots__ = ("on_changes", "on_gap", "place")

    def __init__(self, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]) -> None:
        self.place: int | None = None
        self.on_changes = on_changes
        self.on_gap = on_gap


class _Watcher:
    """One call of ``watch_ephemerals``; ``sent`` is what it was called with last, None before the first time."""

    __slots__ = ("on_change", "prefix", "sent")

    def __init__(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> None:
        self.prefix = prefix
        self.on_change = on_change
        self.sent: dict[str, bytes] | None = None


class StoreFollowers:
    """Followers of a store that tells each change once, in order.

    ``catch_up(revision, done)`` asks the store what changed behind a follower's revision up to where the next
    ``tell_changes`` goes on; None is a gap.
    """

    def __init__(self, timers: Timers, catch_up: CatchUp) -> None:
        self._timers = timers
        self._catch_up = catch_up
        self._revision = 0
        self._ephemerals: Mapping[str, bytes] | None = None  # as they were reported last
        self._followers: list[_Follower] = []
        self._watchers: list[_Watcher] = []

    @property
    def is_followed(self) -> bool:
        return bool(self._followers)

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def close(self) -> None:
        """No callback runs any more."""
        self._followers.clear()
        self._watchers.clear()

    def follow(
        self, revision: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]
    ) -> Callable[[], None]:
        """See ``MetadataStore.follow``."""
        follower = _Follower(on_changes, on_gap)
        self._followers.append(follower)  # first: a store that looks for news while it is followed knows that it is
        self._catch_up(revision, lambda changes: self._caught_up(follower, changes))
        return lambda: self._end(follower)

    def watch_ephemerals(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> Callable[[], None]:
        """See ``MetadataStore.watch_ephemerals``."""
        watcher = _Watcher(prefix, on_change)
        self._watchers.append(watcher)
        if self._ephemerals is not None:
            self._timers.call_soon(self._tell_watcher, watcher)

        def end() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

        return end

    def tell_changes(self, changes: Changes) -> None:
        """The next transaction, or several; one without changes moves the revision alone."""
        before, self._revision = self._revision, changes.revision
        for follower in tuple(self._followers):
            if follower.place is not None and before <= follower.place < changes.revision:
                self._tell_follower(follower, changes)

    def tell_gap(self) -> None:
        """The history has a gap in front of what is reported next: those that have followed up to now read anew."""
        for follower in tuple(self._followers):
            if follower.place is not None:
                self._tell_gap(follower)

    def tell_ephemerals(self, ephemerals: Mapping[str, bytes]) -> None:
        """All ephemeral keys there are; who watches hears of it where that changes something for it."""
        self._ephemerals = ephemerals
        for watcher in tuple(self._watchers):
            self._tell_watcher(watcher)

    def _caught_up(self, follower: _Follower, changes: Changes | None) -> None:
        if changes is None:
            self._tell_gap(follower)
        else:
            self._revision = max(self._revision, changes.revision)
            self._tell_follower(follower, changes)

    def _tell_follower(self, follower: _Follower, changes: Changes) -> None:
        follower.place = changes.revision
        if follower in self._followers and (changes.puts or changes.deletes):
            _call(follower.on_changes, changes)

    def forget_ephemerals(self) -> None:
        """The last report grows old from here on: a new watcher waits for the next one."""
        self._ephemerals = None

    def _tell_watcher(self, watcher: _Watcher) -> None:
        if self._ephemerals is None:
            return
        below = {key: value for key, value in self._ephemerals.items() if key.startswith(watcher.prefix)}
        if watcher in self._watchers and below != watcher.sent:
            watcher.sent = below
            _call(watcher.on_change, dict(below))

    def _tell_gap(self, follower: _Follower) -> None:
        if follower in self._followers:
            self._followers.remove(follower)
            _call(follower.on_gap)

    def _end(self, follower: _Follower) -> None:
        if follower in self._followers:
            self._followers.remove(follower)


def _call(callback: Callable[..., None], *args: object) -> None:
    try:
        callback(*args)
    except Exception:
        log.exception("a follower of the metadata store failed")

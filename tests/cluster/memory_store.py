"""A metadata store in memory, shared by several brokers of a test: ``MetadataStore`` without an engine.

Everything takes effect at once and is told in the next turn of the loop; sessions end when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pybroker.cluster.store.metadata_store import (
    ABSENT,
    Changes,
    CommitResult,
    Entry,
    Snapshot,
    StoreError,
    StoreUnavailableError,
    Transaction,
    ignore_session_loss,
)
from pybroker.env import Env


class _Followed(NamedTuple):
    store: MemoryStore
    tell: Callable[[Changes], None]


class SharedMemory:
    """What all the stores hold."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.revision = 0
        self.history: list[Changes] = []
        self.owners: dict[str, MemoryStore] = {}  # of ephemeral keys
        self.followers: list[_Followed] = []
        self.watchers: list[tuple[MemoryStore, str, Callable[[Mapping[str, bytes]], None]]] = []

    def commit(self, store: MemoryStore, transaction: Transaction) -> CommitResult:
        for key, version in transaction.checks.items():
            entry = self.entries.get(key)
            if (ABSENT if entry is None else entry.version) != version:
                return CommitResult(conflict=key)
        self.revision += 1
        for key in transaction.deletes:
            self.entries.pop(key, None)
            self.owners.pop(key, None)
        for key, value in {**transaction.puts, **transaction.ephemerals}.items():
            before = self.entries.get(key)
            self.entries[key] = Entry(value, 0 if before is None else before.version + 1)
        self.owners.update(dict.fromkeys(transaction.ephemerals, store))
        if transaction.puts or transaction.deletes:
            changes = Changes(self.revision, dict(transaction.puts), transaction.deletes)
            self.history.append(changes)
            for follower in list(self.followers):
                if follower.store.is_slow_to_follow:
                    continue
                follower.store.env.timers.call_soon(follower.tell, changes)
        self.tell_watchers()
        return CommitResult(self.revision)

    def tell_watchers(self) -> None:
        for store, prefix, on_change in list(self.watchers):
            if store.is_slow_to_watch:
                continue
            now = {key: self.entries[key].value for key in sorted(self.owners) if key.startswith(prefix)}
            store.env.timers.call_soon(on_change, now)

    def end_session(self, store: MemoryStore) -> None:
        """The ephemeral keys of a store's session are gone for everybody."""
        for key in [key for key, owner in self.owners.items() if owner is store]:
            del self.owners[key], self.entries[key]
        self.tell_watchers()


class MemoryStore:
    """One broker's way to the shared memory.

    ``is_away``: commits and reads fail; ``loses_answers``: commits fail, and are done all the same.
    """

    def __init__(self, shared: SharedMemory, env: Env) -> None:
        self.on_session_lost: Callable[[], None] = ignore_session_loss
        self.env = env
        self.is_away = False
        self.loses_answers = False
        self.is_slow_to_watch = False  # it hears nothing of ephemeral keys
        self.is_slow_to_follow = False  # it hears nothing of changes
        self._shared = shared

    def open(self) -> None:
        pass

    def load(self, prefix: str) -> dict[str, Entry]:
        return {key: entry for key, entry in sorted(self._shared.entries.items()) if key.startswith(prefix)}

    def revision(self) -> int:
        return self._shared.revision

    def commit_at_start(self, transaction: Transaction) -> CommitResult:
        return self._shared.commit(self, transaction)

    def commit(self, transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
        away = CommitResult(error=StoreUnavailableError("the store is away"))
        result = away if self.is_away else self._shared.commit(self, transaction)
        self.env.timers.call_soon(done, away if self.loses_answers else result)

    def read(self, prefix: str, done: Callable[[Snapshot | None, StoreError | None], None]) -> None:
        if self.is_away:
            self.env.timers.call_soon(done, None, StoreUnavailableError("the store is away"))
        else:
            self.env.timers.call_soon(done, Snapshot(self.load(prefix), self._shared.revision), None)

    def follow(
        self, revision: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]
    ) -> Callable[[], None]:
        told = revision
        ended = False

        def tell(changes: Changes) -> None:
            nonlocal told
            if not ended and changes.revision > told:
                told = changes.revision
                on_changes(changes)

        follower = _Followed(self, tell)
        for changes in self._shared.history:
            self.env.timers.call_soon(tell, changes)
        self._shared.followers.append(follower)

        def end() -> None:
            nonlocal ended
            ended = True
            if follower in self._shared.followers:
                self._shared.followers.remove(follower)

        return end

    def watch_ephemerals(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> Callable[[], None]:
        watcher = (self, prefix, on_change)
        self._shared.watchers.append(watcher)
        self._shared.tell_watchers()
        return lambda: self._shared.watchers.remove(watcher) if watcher in self._shared.watchers else None

    def expire(self) -> None:
        """The session is over, and a new one has begun."""
        self._shared.end_session(self)
        self.env.timers.call_soon(self.on_session_lost)

    def look_for_news(self) -> None:
        """It is told at once."""

    def close(self) -> None:
        self._shared.watchers = [watcher for watcher in self._shared.watchers if watcher[0] is not self]
        self._shared.followers = [follower for follower in self._shared.followers if follower.store is not self]
        self._shared.end_session(self)

"""What all transactions in ZooKeeper came to, kept in memory.

Owns: the keys with their values and versions, and what the last transactions were, so that a follower that is a little
behind gets what it missed.  Owns no request: ``zookeeper_store`` reads, and hands over one transaction after another.

Invariant: the contents are those after every transaction up to ``revision``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pybroker import cluster_limits
from pybroker.cluster.store.metadata_store import Changes, Entry


class Ephemeral(NamedTuple):
    """An ephemeral key: value, version, and the session that has it."""

    value: bytes
    version: int
    session: int


class Contents:
    """Begins with a snapshot, or with nothing."""

    __slots__ = ("_recent_keys", "entries", "recent", "revision")

    def __init__(self, entries: dict[str, Entry] | None = None, revision: int = 0) -> None:
        self.entries: dict[str, Entry] = {} if entries is None else entries
        self.revision = revision
        self.recent: deque[tuple[Changes, bytes]] = deque()  # with the transactions' ids
        self._recent_keys = 0

    def apply(self, ident: bytes, puts: Mapping[str, bytes], deletes: Sequence[str]) -> Changes:
        """The next transaction; gives back what it changed."""
        entries = self.entries
        for key in deletes:
            entries.pop(key, None)
        for key, value in puts.items():
            before = entries.get(key)
            entries[key] = Entry(value, 0 if before is None else before.version + 1)
        self.revision += 1
        changes = Changes(self.revision, puts, tuple(deletes))
        self.recent.append((changes, ident))
        self._recent_keys += 1 + len(puts) + len(deletes)
        while self._recent_keys > cluster_limits.STORE_HISTORY_KEYS_MAX and len(self.recent) > 1:
            oldest, _ = self.recent.popleft()
            self._recent_keys -= 1 + len(oldest.puts) + len(oldest.deletes)
        return changes

    def changes_behind(self, revision: int) -> Changes | None:
        """All changes since, as one; None where not all of them are remembered."""
        if revision == self.revision:
            return Changes(revision, {}, ())
        if not self.remembers(revision):
            return None
        puts: dict[str, bytes] = {}
        deletes: dict[str, None] = {}
        for changes, _ in self.recent:
            if changes.revision > revision:
                for key in changes.deletes:
                    puts.pop(key, None)
                    deletes[key] = None
                for key, value in changes.puts.items():
                    deletes.pop(key, None)
                    puts[key] = value
        return Changes(self.revision, puts, tuple(deletes))

    def remembers(self, revision: int) -> bool:
        """Whether every change behind a revision is among the recent ones."""
        if revision >= self.revision:
            return revision == self.revision
        return bool(self.recent) and self.recent[0][0].revision <= revision + 1

    def revision_of(self, ident: bytes) -> int | None:
        """The revision of a recent transaction; None for one that is not known."""
        return next((changes.revision for changes, of in reversed(self.recent) if of == ident), None)

    def may_end_with(self, ident: bytes) -> bool:
        """Whether the last transaction is the one of this id, as far as is known."""
        return not self.recent or self.recent[-1][1] == ident

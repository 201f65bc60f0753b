"""The port to the store of the cluster's metadata: versioned keys and conditional transactions.

Owns: the ``MetadataStore`` protocol and the values that cross it.  Owns no engine (``sqlite_store`` is one) and no
meaning of keys (``store_codec`` has it).

The model is ZooKeeper's, so that it and SQLite both fit:
- Keys are slash-separated paths, and values are bytes of up to 1 MB.
- A key's version is 0 when it is created and grows by one with each put.
- A transaction commits all of its writes or none. The store's revision (ZooKeeper's zxid) grows with each.
- Ephemeral keys live as long as the session that put them.

One store serves one broker, or several.  What another broker commits is heard by ``follow`` as one's own is, and an
ephemeral key is seen by all until its session ends.  A store that one broker has for itself is not followed.  A key is
ephemeral or it is not, for as long as it exists: no broker puts the same key as both.

Invariants:
- Whatever is called back runs on the loop, never inside the call that asked for it, and never after ``close`` has
  returned.
- Transactions commit in the order in which they were handed in, and ``done`` runs in that order.
- ``open``, ``load``, ``revision`` and ``commit_at_start`` block and belong to the start, before the broker serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

ABSENT: Final = -1  # as a version in ``Transaction.checks``: the key must not exist


class StoreError(Exception):
    """The store cannot be opened, read or written; the message is for the operator."""


class StoreUnavailableError(StoreError):
    """No answer came in time, or the outcome is not known: a repeat may succeed."""


class SessionExpiredError(StoreError):
    """This process was silent for longer than its session: nothing was written."""


class RefusedWriteError(StoreError):
    """The store has no space for something in the transaction, a key that is too long: nothing was written."""


class Entry(NamedTuple):
    """One key's value and version."""

    value: bytes
    version: int


class Transaction(NamedTuple):
    """Writes that happen together, if every key in ``checks`` has the version given there.

    ``ephemerals`` are puts whose keys go away with the session; one that takes over another session's key makes it
    anew, at version 0.  No key is in two of ``puts``, ``deletes`` and ``ephemerals``.
    """

    checks: Mapping[str, int] = {}
    puts: Mapping[str, bytes] = {}
    deletes: tuple[str, ...] = ()
    ephemerals: Mapping[str, bytes] = {}


class CommitResult(NamedTuple):
    """How a transaction ended.

    ``revision`` is set when it committed. ``conflict`` names a key whose version was another, and nothing was written.
    ``error`` says that the store failed and nothing is known to be written. It may have been written all the same, all
    of it or nothing, so the caller reads or follows before it relies on either.
    """

    revision: int | None = None
    conflict: str | None = None
    error: StoreError | None = None


class Snapshot(NamedTuple):
    """Keys as they were at one time: with every transaction up to ``revision``, and nothing of later ones."""

    entries: dict[str, Entry]
    revision: int


class Changes(NamedTuple):
    """What transactions up to ``revision`` did, with the last value of each key; it names no ephemeral key.

    Where several arrive as one, ``deletes`` may name keys that came and went in between, and were not reported.
    """

    revision: int
    puts: Mapping[str, bytes]
    deletes: tuple[str, ...]


def ignore_session_loss() -> None:
    """What ``on_session_lost`` is until it is set."""


class MetadataStore(Protocol):
    """The model and the threads stand in the module's docstring.

    ``on_session_lost()`` is called on the loop when the session has expired: this process was silent for longer than it
    may be, or the store forgot it. Its ephemeral keys are gone for everybody, and a new session has begun, in which
    their owner puts them again.
    """

    on_session_lost: Callable[[], None]

    def open(self) -> None:
        """Open, making the store if there is none, and begin a session.  StoreError when that is impossible."""
        ...

    def load(self, prefix: str) -> dict[str, Entry]:
        """Every key that starts with ``prefix``, in order, ephemeral ones too.  Blocks; StoreError."""
        ...

    def revision(self) -> int:
        """The revision of the last transaction, 0 before the first.  Blocks, before the broker serves; StoreError."""
        ...

    def commit_at_start(self, transaction: Transaction) -> CommitResult:
        """Commit before the broker serves.  Blocks; a failure is in the result."""
        ...

    def commit(self, transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
        """Commit, and say later how it went."""
        ...

    def read(self, prefix: str, done: Callable[[Snapshot | None, StoreError | None], None]) -> None:
        """``load`` without blocking: ``done(snapshot, None)`` or ``done(None, error)``."""
        ...

    def follow(
        self, revision: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]
    ) -> Callable[[], None]:
        """Tell every change behind ``revision``, of any process, in order and once; the result ends that.

        ``follow`` with the revision of a ``Snapshot``, or of the ``load`` at the start, leaves no hole.  Several
        transactions may arrive as one ``Changes``, and one that touched ephemeral keys alone is none.  One's own
        come too, before or after the ``done`` of their ``commit``.  ``on_gap()`` is called once, and nothing more
        after it, where the store does not know all of the changes any more: read everything and follow anew.  While the
        store is away nothing is called; once it is back, what was missed is reported.
        """
        ...

    def watch_ephemerals(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> Callable[[], None]:
        """Tell all ephemeral keys below ``prefix``, of any process: soon, and again at each change; the result ends
        that.

        While the store is away nothing is called: the last call may be out of date.
        """
        ...

    def look_for_news(self) -> None:
        """Another process has committed something: who looks from time to time looks now."""
        ...

    def close(self) -> None:
        """Finish what was handed in, end the session and the store's thread.  Blocks."""
        ...

"""The port to the store of the cluster's metadata: versioned keys and conditional transactions.

Owns: the ``MetadataStore`` protocol and the values that cross it.  Owns no engine (``sqlite_store`` is one) and no
meaning of keys (``store_codec`` has it).

The model is ZooKeeper's, so that it and SQLite both fit: keys are slash-separated paths, values bytes of up to
1 MB, a key's version is 0 when it is created and grows by one with each put, a transaction commits all of its writes
or none, the store's revision (ZooKeeper's zxid) grows with each transaction, and ephemeral keys live as long as the
session that put them.

Invariants: ``done`` and watchers run on the loop, never inside the call; transactions commit in the order in which
they were handed in, and ``done`` runs in that order.  ``open``, ``load`` and ``commit_at_start`` block and belong to
the start, before the broker serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

ABSENT: Final = -1  # as a version in ``Transaction.checks``: the key must not exist


class StoreError(Exception):
    """The store cannot be opened, read or written; the message is for the operator."""


class Entry(NamedTuple):
    """One key's value and version."""

    value: bytes
    version: int


class Transaction(NamedTuple):
    """Writes that happen together, if every key in ``checks`` has the version given there.

    ``ephemerals`` are puts whose keys go away with the session.
    """

    checks: Mapping[str, int] = {}
    puts: Mapping[str, bytes] = {}
    deletes: tuple[str, ...] = ()
    ephemerals: Mapping[str, bytes] = {}


class CommitResult(NamedTuple):
    """How a transaction ended.

    ``revision`` is set when it committed.  ``conflict`` names a key whose version was another, and nothing was written.
    ``error`` says that the store failed: nothing is known to be written (over a network it may have been), so the
    caller reads again before it relies on either.
    """

    revision: int | None = None
    conflict: str | None = None
    error: StoreError | None = None


class Changes(NamedTuple):
    """What a committed transaction did below a watched prefix."""

    revision: int
    puts: Mapping[str, bytes]
    deletes: tuple[str, ...]


class MetadataStore(Protocol):
    """See the module's docstring for the model and the threads."""

    def open(self) -> None:
        """Open, making the store if there is none, and begin a session.  StoreError when that is impossible."""
        ...

    def load(self, prefix: str) -> dict[str, Entry]:
        """Every key that starts with ``prefix``, in order.  Blocks; StoreError."""
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

    def read(self, prefix: str, done: Callable[[dict[str, Entry] | None, StoreError | None], None]) -> None:
        """``load`` without blocking."""
        ...

    def watch(self, prefix: str, callback: Callable[[Changes], None]) -> Callable[[], None]:
        """Call back after every transaction that changed a key below ``prefix``; returns the function that ends it.

        A seam for several brokers: today the one controller is the only writer and applies its own changes.
        """
        ...

    def close(self) -> None:
        """Finish what was handed in, end the session and the store's thread.  Blocks."""
        ...

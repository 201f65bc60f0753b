"""The embedded ``MetadataStore``: one SQLite file, one thread.

Owns: the file ``pybroker-metadata.db`` and the thread that writes it.  The file lies in ``metadata.log.dir``, or
else in the first of the log dirs, where Apache Kafka keeps ``__cluster_metadata-0``: whoever moves or copies the data
directory takes the topics' ids and configs along with their records, and the directory's ``.lock`` guards both.

What a start needs on a full disk lies beside it (``reserved_room``).

Not owned: which keys there are (``store_codec``), and other processes: the file has one user at a time, so whatever
ephemeral keys an earlier session left are removed at open, its session is never lost, and followers are told of this
process's transactions as they commit, which costs no table and no polling.

Invariants: a committed transaction survives the death of the process, and with ``fsync`` also the loss of power (WAL
with ``synchronous=FULL``); after ``open`` only the store's thread touches the connection; a store that ``open`` made,
and in which nothing was committed, leaves no file.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pybroker.cluster import sqlite_tables
from pybroker.cluster.metadata_store import (
    Changes,
    CommitResult,
    Entry,
    Snapshot,
    StoreError,
    Transaction,
    ignore_session_loss,
)
from pybroker.cluster.reserved_room import ReservedRoom
from pybroker.env import Env, Executor
from pybroker.limits import RESERVED_ROOM_BYTES_MIN, RESERVED_ROOM_COMMITS

if TYPE_CHECKING:
    from pybroker.cluster.store_followers import StoreFollowers

log = logging.getLogger(__name__)

FILE_NAME: Final = "pybroker-metadata.db"
ROOM_SUFFIX: Final = "-room"


class SqliteStore:
    """``MetadataStore`` on the SQLite file at ``path``.

    With ``fsync=False`` (dev, in-process brokers) a commit survives kill -9 but not the loss of power.
    """

    def __init__(self, path: str, env: Env, *, fsync: bool = True) -> None:
        self._path = path
        self._env = env
        self._fsync = fsync
        self._connection: sqlite3.Connection | None = None
        self._executor: Executor | None = None
        self.on_session_lost: Callable[[], None] = ignore_session_loss
        self._followers: StoreFollowers | None = None  # a lone broker has none
        self._told_revision = 0
        self._is_empty = False  # this process made it, and nothing was committed yet
        self._ephemerals: dict[str, bytes] = {}
        self._room = ReservedRoom(path + ROOM_SUFFIX)

    def open(self) -> None:
        while True:
            try:
                self._open()
                return
            except sqlite3.Error as error:
                self.close()
                if not (_lacks_room(error) and self._room.give_way()):
                    raise StoreError(f"cannot open the metadata store {self._path}: {error}") from error
            except StoreError:
                self.close()
                raise

    def _open(self) -> None:
        sqlite_tables.guard(self._path)
        self._connection = connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, cached_statements=32
        )
        self._prepare(connection)
        self._told_revision = sqlite_tables.revision(connection)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = sqlite_tables.check_schema(connection, self._path)
        self._is_empty = version == 0
        if version == sqlite_tables.SHARED_SCHEMA_VERSION:
            self._check_nobody_shares(connection)
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._fsync else 'OFF'}")
        connection.execute("PRAGMA journal_mode = WAL")
        if version == 0:
            connection.executescript(f"BEGIN IMMEDIATE; {sqlite_tables.SCHEMA} COMMIT;")
        else:
            connection.execute("DELETE FROM entries WHERE ephemeral")

    def _check_nobody_shares(self, connection: sqlite3.Connection) -> None:
        from pybroker.cluster import sqlite_sessions

        now_ms = self._env.clock.monotonic_ms()
        if others := sqlite_sessions.alive(connection, sqlite_sessions.boot_id(), now_ms):
            raise StoreError(f"{others} brokers share the metadata store {self._path}: start this one with --metadata")

    def load(self, prefix: str) -> dict[str, Entry]:
        assert self._connection is not None, "the store is open"
        try:
            return sqlite_tables.select(self._connection, prefix)
        except sqlite3.Error as error:
            raise StoreError(f"cannot read the metadata store {self._path}: {error}") from error

    def revision(self) -> int:
        assert self._connection is not None, "the store is open"
        try:
            return sqlite_tables.revision(self._connection)
        except (sqlite3.Error, TypeError) as error:
            raise StoreError(f"cannot read the metadata store {self._path}: {error}") from error

    def commit_at_start(self, transaction: Transaction) -> CommitResult:
        assert self._executor is None, "the store's thread runs: commit"
        result = self._commit(transaction)
        while result.error is not None and _lacks_room(result.error.__cause__) and self._room.give_way():
            result = self._commit(transaction)
        self._keep_room()
        if result.revision is not None:
            self._tell(transaction, result.revision)
        return result

    def _keep_room(self) -> None:
        """What the next start may need, where the loss of room is to be survived; throw-away brokers take none."""
        if self._fsync and self._connection is not None:
            with suppress(sqlite3.Error):
                (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
                (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
                self._room.keep(RESERVED_ROOM_BYTES_MIN + pages * page_bytes)

    def commit(self, transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
        def finish(result: CommitResult | None, error: BaseException | None) -> None:
            if result is None:
                result = CommitResult(error=StoreError(f"the metadata store failed: {error!r}"))
            try:
                done(result)
            finally:
                if result.revision is not None:
                    self._tell(transaction, result.revision)

        self._thread().submit(lambda: self._commit(transaction), finish)

    def read(self, prefix: str, done: Callable[[Snapshot | None, StoreError | None], None]) -> None:
        def finish(snapshot: Snapshot | None, error: BaseException | None) -> None:
            done(snapshot, None if error is None else StoreError(str(error)))

        # One thread writes and reads: nothing is committed between the two.
        self._thread().submit(lambda: Snapshot(self.load(prefix), self.revision()), finish)

    def follow(
        self, revision: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]
    ) -> Callable[[], None]:
        return self._all_followers().follow(revision, on_changes, on_gap)

    def watch_ephemerals(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> Callable[[], None]:
        return self._all_followers().watch_ephemerals(prefix, on_change)

    def _all_followers(self) -> StoreFollowers:
        if self._followers is None:
            from pybroker.cluster.store_followers import StoreFollowers

            self._followers = StoreFollowers(self._env.timers, self._told_revision, self._ephemerals)
        return self._followers

    def look_for_news(self) -> None:
        """Nobody else commits."""

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()
            self._executor = None
        if self._followers is not None:
            self._followers.close()
        if not self._is_empty:
            self._keep_room()
        if self._connection is not None:
            with suppress(sqlite3.Error):  # what stays goes at the next open
                self._connection.execute("DELETE FROM entries WHERE ephemeral")
            self._connection.close()
            self._connection = None
        if self._is_empty:
            self._is_empty = False
            sqlite_tables.remove(self._path)
            self._room.remove()

    def _thread(self) -> Executor:
        """The store's thread, started at the first write after the start."""
        assert self._connection is not None, "the store is open"
        if self._executor is None:
            self._executor = self._env.executor("metadata-store", 0)
        return self._executor

    def _commit(self, transaction: Transaction) -> CommitResult:
        connection = self._connection
        assert connection is not None, "the store is open"
        try:
            connection.execute("BEGIN IMMEDIATE")
            conflict = sqlite_tables.first_conflict(connection, transaction.checks.items())
            if conflict is not None:
                connection.execute("ROLLBACK")
                return CommitResult(conflict=conflict)
            revision = sqlite_tables.write(connection, transaction, sqlite_tables.OWN_SESSION)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            sqlite_tables.roll_back(connection)
            failure = StoreError(f"cannot write the metadata store {self._path}: {error}")
            failure.__cause__ = error
            return CommitResult(error=failure)
        self._is_empty = False
        if revision % RESERVED_ROOM_COMMITS == 0:
            self._keep_room()
        return CommitResult(revision=revision)

    def _tell(self, transaction: Transaction, revision: int) -> None:
        ephemerals = self._ephemerals
        deletes = tuple(key for key in transaction.deletes if ephemerals.pop(key, None) is None)
        ephemerals.update(transaction.ephemerals)
        self._told_revision = revision
        if self._followers is not None:
            self._followers.tell_changes(Changes(revision, transaction.puts, deletes))
            self._followers.tell_ephemerals(ephemerals)


def _lacks_room(error: BaseException | None) -> bool:
    """Whether SQLite could not write: it does not always say that it is for want of room."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}

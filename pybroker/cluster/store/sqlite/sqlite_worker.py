"""A metadata store's SQLite file in the hands of one process: everything that touches it, and nothing of the broker.

Owns: the connection, transactions on it, and what a start needs on a full disk (``reserved_space``). Not owned: which
thread calls (``sqlite_store``), the tables (``sqlite_tables``), and other processes (``shared_sqlite_worker``). Without
them there is no session to lose, no history to keep and no news to look for.

Invariants:
- A committed transaction survives the death of the process, and with ``fsync`` also the loss of power (WAL with
  ``synchronous=FULL``).
- A file that ``open`` made, and in which nothing was committed, is gone after ``close``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, Final

from pybroker.cluster.store.metadata_store import CommitResult, SessionExpiredError, Snapshot, StoreError, Transaction
from pybroker.cluster.store.sqlite import sqlite_tables
from pybroker.cluster.store.sqlite.reserved_space import ReservedSpace

# What is kept beside as many bytes as the store has: a start after a crash may write each of its partitions anew.
RESERVED_SPACE_BYTES_MIN = 1 << 20

RESERVE_SUFFIX: Final = "-room"
# Transactions of the metadata after which the reserved space is made to fit the store again.
RESERVED_SPACE_COMMITS = 64


class SqliteWorker:
    """The file at ``path``.  ``now_ms`` is the clock of the machine, by which sessions of other processes end.

    With ``fsync=False`` (dev, in-process brokers) a commit survives kill -9 but not the loss of power.
    """

    _mode: ClassVar[int] = 0o600

    def __init__(self, path: str, now_ms: Callable[[], int], *, fsync: bool) -> None:
        self._path = path
        self._now_ms = now_ms
        self._synchronous = "FULL" if fsync else "OFF"
        self._reserves_space = fsync  # where the loss of space is to be survived; throw-away brokers take none
        self._reserved_space = ReservedSpace(path + RESERVE_SUFFIX)
        self._lock_timeout_ms = 5_000
        self._connection: sqlite3.Connection | None = None
        self._session = 0  # none before ``open``: where that refuses the file, the sessions in it are others'
        self._is_empty = False  # this process made it, and nothing was committed yet

    # ------------------------------------------------------------------ open and close

    def open(self) -> None:
        """Open the file, making it if there is none, and begin a session; StoreError."""
        while True:
            try:
                self._open()
                return
            except (sqlite3.Error, OSError) as error:
                self.close()
                if not (_is_disk_full(error) and self._reserved_space.give_way()):
                    raise StoreError(f"cannot open the metadata store {self._path}: {error}") from error
            except StoreError:
                self.close()
                raise

    def _open(self) -> None:
        sqlite_tables.guard(self._path, self._mode)
        self._connection = connection = sqlite3.connect(
            self._path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
            timeout=self._lock_timeout_ms / 1000,
        )
        self._prepare(connection)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = sqlite_tables.check_schema(connection, self._path)
        self._is_empty = version == 0
        if version == sqlite_tables.SHARED_SCHEMA_VERSION:
            self._check_unshared(connection)
        self._set_durability(connection)
        if version == 0:
            connection.executescript(f"BEGIN IMMEDIATE; {sqlite_tables.SCHEMA} COMMIT;")
        else:
            connection.execute("DELETE FROM entries WHERE ephemeral")
        self._session = sqlite_tables.OWN_SESSION

    def _set_durability(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA journal_mode = WAL")

    def _check_unshared(self, connection: sqlite3.Connection) -> None:
        from pybroker.cluster.store.sqlite import sqlite_sessions

        if others := sqlite_sessions.alive(connection, sqlite_sessions.boot_id(), self._now_ms()):
            raise StoreError(f"{others} brokers share the metadata store {self._path}: start this one with --metadata")

    def close(self) -> None:
        """End the session, and let go of the file."""
        if not self._is_empty:
            self._reserve_space()
        if self._connection is not None:
            if self._session:
                with suppress(sqlite3.Error, StoreError):  # what stays goes at the next open
                    self._end_session(self._connection)
                self._session = 0
            self._connection.close()
            self._connection = None
        if self._is_empty:
            self._is_empty = False
            sqlite_tables.remove(self._path)
            self._reserved_space.remove()

    def _end_session(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM entries WHERE ephemeral")

    def _opened(self) -> sqlite3.Connection:
        assert self._connection is not None, "the store is open"
        return self._connection

    # ------------------------------------------------------------------ reading and writing

    def load(self, prefix: str) -> Snapshot:
        """Keys and revision of one time; StoreError."""
        connection = self._opened()
        try:
            connection.execute("BEGIN")
            return Snapshot(sqlite_tables.select(connection, prefix), sqlite_tables.revision(connection))
        except (sqlite3.Error, TypeError) as error:
            raise StoreError(f"cannot read the metadata store {self._path}: {error}") from error
        finally:
            sqlite_tables.roll_back(connection)

    def commit_at_start(self, transaction: Transaction) -> CommitResult:
        """``commit``, for which the kept space gives way where the disk is full; as much is kept again behind it."""
        result = self.commit(transaction)
        while result.error is not None and _is_disk_full(result.error.__cause__) and self._reserved_space.give_way():
            result = self.commit(transaction)
        self._reserve_space()
        return result

    def commit(self, transaction: Transaction) -> CommitResult:
        """Commit as soon as no other process writes; a failure is in the result."""
        connection = self._opened()
        try:
            self._begin()
            if not self._keep_session(connection):
                return CommitResult(error=SessionExpiredError(f"the session in {self._path} has expired"))
            conflict = sqlite_tables.first_conflict(connection, transaction.checks.items())
            if conflict is not None:
                self._end()
                return CommitResult(conflict=conflict)
            revision = self._write(connection, transaction)
            self._end()
        except StoreError as error:
            return CommitResult(error=error)
        except sqlite3.Error as error:
            sqlite_tables.roll_back(connection)
            failure = StoreError(f"cannot write the metadata store {self._path}: {error}")
            failure.__cause__ = error
            return CommitResult(error=failure)
        self._is_empty = False
        if revision % RESERVED_SPACE_COMMITS == 0:
            self._reserve_space()
        return CommitResult(revision=revision)

    def _begin(self) -> None:
        """Begin a write transaction; StoreError where that comes to nothing."""
        self._opened().execute("BEGIN IMMEDIATE")

    def _keep_session(self, connection: sqlite3.Connection) -> bool:
        """Within a transaction: whether there is a session yet."""
        return True

    def _write(self, connection: sqlite3.Connection, transaction: Transaction) -> int:
        """Within a transaction: do what its checks allow; the new revision."""
        return sqlite_tables.write(connection, transaction, self._session)

    def _end(self) -> None:
        self._opened().execute("COMMIT")

    def _reserve_space(self) -> None:
        """Have what the next start may need."""
        if self._reserves_space and self._connection is not None:
            with suppress(sqlite3.Error):
                (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
                (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
                self._reserved_space.keep(RESERVED_SPACE_BYTES_MIN + pages * page_bytes)


def _is_disk_full(error: BaseException | None) -> bool:
    """Whether SQLite could not write: it does not always say that it is for want of space."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}

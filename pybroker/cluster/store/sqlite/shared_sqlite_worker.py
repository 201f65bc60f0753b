"""A metadata store's SQLite file that several processes share: what is done in it beside ``sqlite_worker``.

Owns: waiting for the other processes' writes, this process's session, looking for news.  What it finds out goes to the
followers on the loop, in order (``shared_sqlite_thread``, whose thread does all of this).

A process that is stopped in the middle of a transaction keeps all others from writing, as long as it lives. So each
writer leaves its pid and broker epoch in a small file beside the database. A broker that has waited in vain for as long
as a session may last names it in the log. Reading and following go on meanwhile. Behind its commit a writer leaves a
stamp there, too: to compare it costs no system call, where SQLite needs several to say that nothing is new. SQLite is
asked all the same, now and then, for who was killed before its stamp.

Invariants: a transaction waits for others before it begins and never within; its session is renewed by it, and found to
be lost by it.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import re
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple
from urllib.parse import quote

from pybroker.cluster.store.metadata_store import Changes, CommitResult, StoreError, StoreUnavailableError, Transaction
from pybroker.cluster.store.sqlite import sqlite_history, sqlite_sessions, sqlite_tables
from pybroker.cluster.store.sqlite.opened_sqlite_file import OpenedSqliteFile
from pybroker.cluster.store.sqlite.sqlite_worker import SqliteWorker

if TYPE_CHECKING:
    from pybroker.cluster.store.store_followers import StoreFollowers

# The last writer's stamp on a shared file is looked at so often while it is followed, which costs some microseconds,
# and SQLite itself is asked so often.
STORE_POLL_MS = 20
STORE_ASK_MS = 200

log = logging.getLogger(__name__)

WRITER_SUFFIX: Final = "-writer"
_WRITER_BYTES: Final = 64
_STAMP: Final = struct.Struct("=II")

_BUSY_TIMEOUT_S: Final = 0.02
_CLOSE_TIMEOUT_MS: Final = 1_000
# Brokers that start at once all write, on a machine that their start keeps busy.
_OPEN_TIMEOUT_MS: Final = 30_000
_WAITED: Final = re.compile(r" for \d+ ms")
_SHARED_SCHEMA: Final = f"""
{sqlite_history.SCHEMA} {sqlite_sessions.SCHEMA} PRAGMA user_version = {sqlite_tables.SHARED_SCHEMA_VERSION};
"""


class Writer(NamedTuple):
    """Who has written last, or is in the middle of it."""

    pid: int
    broker_id: int
    broker_epoch: int


def read_writer(path: str) -> Writer | None:
    """The holder of the lock of the store at ``path``, as far as its file tells; None where nothing does."""
    try:
        return Writer(*json.loads(Path(path + WRITER_SUFFIX).read_bytes()[:_WRITER_BYTES]))
    except (OSError, ValueError, TypeError):
        return None


def is_locked(path: str) -> bool:
    """Whether a process is in the middle of a write to the store at ``path``."""
    uri = f"file:{quote(path)}?mode=rw"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    return False


class Sharing(NamedTuple):
    """How a process is one of several that use a file.

    Its session lasts for ``timeout_ms`` after it was heard of last.  ``broker_id`` and ``broker_epoch()``, which the
    store's thread calls, tell the others who writes.
    """

    timeout_ms: int
    broker_id: int = -1
    broker_epoch: Callable[[], int] = lambda: -1


class SharedSqliteWorker(SqliteWorker):
    """``tell(callback)`` has the loop run what the ``followers``, or ``on_session_lost``, are to hear."""

    # Brokers of several users may share a file by their group.
    _mode: ClassVar[int] = 0o660

    def __init__(
        self,
        path: str,
        now_ms: Callable[[], int],
        sharing: Sharing,
        followers: StoreFollowers,
        tell: Callable[[Callable[[], None]], None],
        on_session_lost: Callable[[], None],
        *,
        fsync: bool,
    ) -> None:
        super().__init__(path, now_ms, fsync=fsync)
        self._reserves_space = False
        self._followers = followers
        self._tell = tell
        self._on_session_lost = on_session_lost
        # A commit may bring a checkpoint about, which keeps to what its own connection says: OFF would sync neither the
        # WAL nor the file, with all that was committed before. NORMAL syncs those, and a commit never.
        self._synchronous_of_renewals = "NORMAL" if fsync else "OFF"
        self._lock_timeout_ms = self._timeout_ms = sharing.timeout_ms
        self._broker_id = sharing.broker_id
        self._broker_epoch = sharing.broker_epoch
        self._boot = sqlite_sessions.boot_id()
        self._file: OpenedSqliteFile | None = None
        self._writer_fd = -1
        self._writer_map: mmap.mmap | None = None
        self._stamps = 0
        self._seen_stamp = b""
        self._published_revision = 0
        self._published_ephemerals: dict[str, bytes] | None = None
        self._data_version = -1
        self._poll_at_ms = self._ask_at_ms = self._renew_at_ms = self._now_ms()
        self._lapse_at_ms: int | None = None
        self._failures: dict[str, tuple[int, str]] = {}  # of what fails at present: how often, and why
        self.is_abandoned = False  # the process is as good as dead: its session is not ended, it expires

    # ------------------------------------------------------------------ between the jobs

    def pause_s(self) -> float:
        """How long nothing is due, in seconds."""
        if not self._session:
            return 3600
        wake_ms = self._renew_at_ms
        if self._has_listeners:
            wake_ms = min(wake_ms, self._poll_at_ms)
        return max(wake_ms - self._now_ms(), 0) / 1000

    @property
    def _has_listeners(self) -> bool:
        """Whether news are wanted."""
        return self._followers.is_followed or self._followers.is_watched

    def tick(self) -> None:
        """Do what is due: look for news, and keep the session."""
        if not self._session or self.is_abandoned:
            return
        now_ms = self._now_ms()
        if now_ms >= self._renew_at_ms or (self._lapse_at_ms is not None and now_ms > self._lapse_at_ms):
            self._try(self._renew)
        if now_ms >= self._poll_at_ms and self._has_listeners and not self._try(self._poll):
            self._poll_at_ms = self._now_ms() + self._timeout_ms // 3

    def _try(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except (sqlite3.Error, StoreError) as error:
            self._failed(work.__name__, error)
            return False
        failures, _ = self._failures.pop(work.__name__, (0, ""))
        if failures:
            log.warning("the metadata store %s is back, where %d tries failed", self._path, failures)
        return True

    def _failed(self, work: str, error: Exception) -> None:
        """Say so when that begins, and when the reason is another: a full disk fails each renewal for hours."""
        failures, former = self._failures.get(work, (0, ""))
        reason = _WAITED.sub("", str(error))
        self._failures[work] = failures + 1, reason
        if reason != former:
            log.warning("the metadata store %s is away: %s", self._path, error)

    # ------------------------------------------------------------------ open and close

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._take_into_use(connection)
        connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_TIMEOUT_S * 1000)}")
        self._open_writer_file()
        self._begin(max(self._timeout_ms, _OPEN_TIMEOUT_MS))
        self._upgrade(connection)
        sqlite_sessions.end_lapsed(connection, self._boot, self._now_ms())
        self._begin_session(connection)
        self._renew_at_ms = self._now_ms() + self._timeout_ms // 3
        self._file = OpenedSqliteFile(self._path)

    def _take_into_use(self, connection: sqlite3.Connection) -> None:
        """Where several processes open a new file at once, SQLite refuses some of them without waiting: try again."""
        give_up_ms = self._now_ms() + max(self._timeout_ms, _OPEN_TIMEOUT_MS)
        while True:
            try:
                sqlite_tables.check_schema(connection, self._path)
                self._set_durability(connection)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or self._now_ms() > give_up_ms:
                    raise

    def _open_writer_file(self) -> None:
        # Written by the descriptor and read by the map: a full disk is an error then, not a signal.
        self._writer_fd = fd = os.open(self._path + WRITER_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = _WRITER_BYTES + _STAMP.size
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
        self._writer_map = mmap.mmap(fd, size, access=mmap.ACCESS_READ)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        version = sqlite_tables.check_schema(connection, self._path)
        # executescript would commit first: whoever else opens a new file waits for all of it.
        script = (sqlite_tables.SCHEMA if version == 0 else "") + _SHARED_SCHEMA
        if version < sqlite_tables.SHARED_SCHEMA_VERSION:
            for statement in script.split(";"):
                connection.execute(statement)
            connection.execute("DELETE FROM entries WHERE ephemeral")
        sqlite_history.resume(connection)

    def _end_session(self, connection: sqlite3.Connection) -> None:
        if not self.is_abandoned:
            self._begin(_CLOSE_TIMEOUT_MS)
            sqlite_sessions.end(connection, self._session)
            self._end()

    def close(self) -> None:
        super().close()
        if self._writer_map is not None:
            self._writer_map.close()
            self._writer_map = None
        if self._writer_fd >= 0:
            os.close(self._writer_fd)
            self._writer_fd = -1

    # ------------------------------------------------------------------ reading

    def catch_up(self, revision: int) -> Changes | None:
        """What changed behind ``revision`` up to now, where the next news begin; None for a gap.  StoreError."""
        connection = self._opened()
        try:
            connection.execute("BEGIN")
            self._tell_changes(connection)
            return sqlite_history.changes_behind(connection, revision)
        except sqlite3.Error as error:
            raise StoreError(f"cannot read the metadata store {self._path}: {error}") from error
        finally:
            sqlite_tables.roll_back(connection)

    def look(self) -> None:
        """Look for news at once, whether or not the file seems to have changed."""
        self._data_version = -1
        self._published_ephemerals = None
        self._poll_at_ms = self._now_ms()

    def look_soon(self) -> None:
        """Look for news behind this job, as if it were time for that."""
        self._poll_at_ms = self._now_ms()

    def _poll(self) -> None:
        now_ms = self._now_ms()
        self._poll_at_ms = now_ms + STORE_POLL_MS
        assert self._writer_map is not None
        stamp = self._writer_map[_WRITER_BYTES:]
        if stamp == self._seen_stamp and now_ms < self._ask_at_ms and self._data_version != -1:
            return
        self._seen_stamp = stamp
        self._ask_at_ms = now_ms + STORE_ASK_MS
        (data_version,) = self._opened().execute("PRAGMA data_version").fetchone()
        if data_version != self._data_version:
            self._tell_news()
            self._data_version = data_version

    def _tell_news(self) -> None:
        connection = self._opened()
        try:
            connection.execute("BEGIN")
            # First who is alive: whoever hears of a new controller and does not know it to live would take its place.
            if self._followers.is_watched:
                self._tell_ephemerals(connection)
            if self._followers.is_followed:
                self._tell_changes(connection)
        finally:
            sqlite_tables.roll_back(connection)

    def _tell_changes(self, connection: sqlite3.Connection) -> None:
        changes = sqlite_history.changes_behind(connection, self._published_revision)
        if changes is None:
            self._published_revision = sqlite_tables.revision(connection)
            self._tell(self._followers.tell_gap)
        elif changes.revision > self._published_revision:
            self._published_revision = changes.revision
            self._tell(partial(self._followers.tell_changes, changes))

    def _tell_ephemerals(self, connection: sqlite3.Connection) -> None:
        ephemerals = dict(connection.execute("SELECT key, value FROM entries WHERE ephemeral != 0 ORDER BY key"))
        self._lapse_at_ms = sqlite_sessions.next_lapse_ms(connection, self._session)
        if ephemerals != self._published_ephemerals:
            self._published_ephemerals = ephemerals
            self._tell(partial(self._followers.tell_ephemerals, ephemerals))

    # ------------------------------------------------------------------ writing

    def commit(self, transaction: Transaction) -> CommitResult:
        result = super().commit(transaction)
        if result.revision is not None:
            self._data_version = -1  # SQLite tells of other connections' commits alone
            self._poll_at_ms = self._now_ms()
        return result

    def _write(self, connection: sqlite3.Connection, transaction: Transaction) -> int:
        ephemeral = sqlite_history.ephemeral_among(connection, transaction.deletes)
        revision = super()._write(connection, transaction)
        sqlite_history.record(connection, transaction, revision, ephemeral)
        return revision

    def _renew(self) -> None:
        """Renew the lease, which need not outlive a loss of power."""
        self._lapse_at_ms = None  # set again by the next news
        self._renew_at_ms = self._now_ms() + self._timeout_ms // 3
        connection = self._opened()
        connection.execute(f"PRAGMA synchronous = {self._synchronous_of_renewals}")
        try:
            self._begin()
            if self._keep_session(connection):
                self._end()
        finally:
            sqlite_tables.roll_back(connection)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        self._data_version = -1

    def _keep_session(self, connection: sqlite3.Connection) -> bool:
        """Within a transaction: renew, and end what has lapsed.  Where the session is lost: begin another, commit."""
        if self._file is not None:
            self._file.look()
        now_ms = self._now_ms()
        self._renew_at_ms = now_ms + self._timeout_ms // 3
        sqlite_sessions.end_lapsed(connection, self._boot, now_ms)
        if sqlite_sessions.renew(connection, self._session, self._boot, now_ms):
            return True
        self._begin_session(connection)
        log.warning("the session in the metadata store %s has expired: a new one begins", self._path)
        self._data_version = -1
        self._tell(self._on_session_lost)
        return False

    def _begin_session(self, connection: sqlite3.Connection) -> None:
        """Within a transaction: begin a session, commit.  The id of one that is not committed may become another's."""
        session = sqlite_sessions.begin(connection, self._boot, self._now_ms(), self._timeout_ms)
        self._end()
        self._session = session

    def _begin(self, timeout_ms: int | None = None) -> None:
        """Begin a write transaction; StoreError when another process keeps the lock for as long, or for a session."""
        connection = self._opened()
        since_ms = self._now_ms()
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            if self.is_abandoned:
                raise StoreError("the broker is gone")
            waited_ms = self._now_ms() - since_ms
            if waited_ms >= (timeout_ms or self._timeout_ms):
                self._renew_at_ms = self._now_ms() + self._timeout_ms // 3
                raise StoreUnavailableError(
                    f"{self._holder()} has kept the metadata store {self._path} locked for {waited_ms} ms"
                )
            if self._session and self._now_ms() >= self._poll_at_ms and self._has_listeners:
                self._poll()
        writer = json.dumps((os.getpid(), self._broker_id, self._broker_epoch())).ljust(_WRITER_BYTES)
        with suppress(OSError):  # a full disk: nobody is named then
            os.pwrite(self._writer_fd, writer.encode(), 0)

    def _end(self) -> None:
        super()._end()
        self._stamps = (self._stamps + 1) & 0xFFFF_FFFF
        with suppress(OSError):  # a full disk: the others find out a little later
            os.pwrite(self._writer_fd, _STAMP.pack(os.getpid() & 0xFFFF_FFFF, self._stamps), _WRITER_BYTES)

    def _holder(self) -> str:
        writer = read_writer(self._path)
        if writer is None:
            return "another process"
        return f"process {writer.pid} (broker {writer.broker_id}, epoch {writer.broker_epoch})"

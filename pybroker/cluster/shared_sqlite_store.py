"""The ``MetadataStore`` of several brokers on one machine: a SQLite file that their processes share.

Owns: the port, on the loop, and the way back to the loop from the thread that does the work
(``shared_sqlite_worker``).  One file serves as many processes as there are brokers: a write takes SQLite's lock for a
moment, news are looked for every ``cluster_limits.STORE_POLL_MS`` while anybody follows, sessions are leases
(``sqlite_sessions``), and what changed is kept for a while (``sqlite_history``).  Unlike one broker's own file it keeps
no room for a start on a full disk.

Invariants: those of the port; the loop waits for the file before the broker serves and at the close, never in between.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar

from pybroker.cluster.metadata_store import (
    Changes,
    CommitResult,
    Entry,
    Snapshot,
    StoreError,
    Transaction,
    ignore_session_loss,
)
from pybroker.cluster.shared_sqlite_worker import SharedSqliteWorker, ToldNews
from pybroker.cluster.store_followers import StoreFollowers
from pybroker.env import Env, Executor

T = TypeVar("T")

log = logging.getLogger(__name__)


class SharedSqliteStore:
    """``MetadataStore`` on the SQLite file at ``path``, beside other processes.

    A session lasts for ``timeout_ms`` after its process was heard of last.  ``broker_id`` and ``broker_epoch()``, which
    the store's thread calls, tell the others who writes.
    """

    def __init__(
        self,
        path: str,
        env: Env,
        *,
        fsync: bool = True,
        timeout_ms: int,
        broker_id: int = -1,
        broker_epoch: Callable[[], int] = lambda: -1,
    ) -> None:
        self.on_session_lost: Callable[[], None] = ignore_session_loss
        self._env = env
        self._finished = _Finished(env)
        self._followers = StoreFollowers(env.timers, 0, None, self._catch_up)
        self._worker = SharedSqliteWorker(
            path,
            env.clock,
            _News(self),
            fsync=fsync,
            timeout_ms=timeout_ms,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
        )
        self._executor: Executor | None = None

    # ------------------------------------------------------------------ start and end

    def open(self) -> None:
        self._executor = self._env.executor("metadata-store", 0)
        self._executor.submit(self._worker.run, _ended)
        try:
            self._ask(self._worker.open)
        except StoreError:
            self.close()
            raise

    def load(self, prefix: str) -> dict[str, Entry]:
        return self._ask(lambda: self._worker.load(prefix)).entries

    def revision(self) -> int:
        return self._ask(lambda: self._worker.load("\U0010ffff")).revision

    def commit_at_start(self, transaction: Transaction) -> CommitResult:
        return self._ask(lambda: self._worker.commit(transaction))

    def close(self) -> None:
        if self._executor is not None:
            self._worker.stop()
            self._executor.close()
            self._executor = None
            self._finished.deliver()
        self._followers.close()

    def abandon(self) -> None:
        """Let go of the file as the end of the process would: nobody is told, the session expires."""
        if self._executor is not None:
            self._worker.abandon()
            self._executor.close()
            self._executor = None

    def stall(self, wait: Callable[[], None]) -> None:
        """Have the thread do nothing, not even renew the session, until ``wait()`` returns."""
        self._worker.submit(wait)

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask the thread, and wait."""
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._worker.submit(work)
        return answer.result()

    # ------------------------------------------------------------------ in service

    def commit(self, transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
        def work() -> None:
            try:
                result = self._worker.commit(transaction)
            except Exception as error:
                result = CommitResult(error=StoreError(f"the metadata store failed: {error!r}"))
            self._finished.put(partial(done, result))

        self._worker.submit(work)

    def read(self, prefix: str, done: Callable[[Snapshot | None, StoreError | None], None]) -> None:
        def work() -> None:
            try:
                self._finished.put(partial(done, self._worker.load(prefix), None))
            except StoreError as error:
                self._finished.put(partial(done, None, error))

        self._worker.submit(work)

    def follow(
        self, revision: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]
    ) -> Callable[[], None]:
        end = self._followers.follow(revision, on_changes, on_gap)
        return partial(self._end, end)

    def watch_ephemerals(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> Callable[[], None]:
        end = self._followers.watch_ephemerals(prefix, on_change)
        self._worker.is_watched = True
        self._worker.submit(self._worker.look)
        return partial(self._end, end)

    def look_for_news(self) -> None:
        self._worker.submit(self._worker.look_soon)

    def _end(self, end: Callable[[], None]) -> None:
        end()
        self._worker.is_followed = self._followers.is_followed
        self._worker.is_watched = self._followers.is_watched
        if not self._followers.is_watched:
            self._followers.forget_ephemerals()

    def _catch_up(self, revision: int, done: Callable[[Changes | None], None]) -> None:
        self._worker.is_followed = True

        def work() -> None:
            try:
                changes = self._worker.catch_up(revision)
            except StoreError:
                changes = None  # whoever follows reads, and is told then what is wrong
            self._finished.put(partial(done, changes))

        self._worker.submit(work)


class _Finished:
    """What the thread has for the loop, in order; one wake-up for many."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._wake_pending = False

    def put(self, callback: Callable[[], None]) -> None:
        """Run a callback on the loop; called on the thread."""
        with self._lock:
            self._waiting.append(callback)
            if self._wake_pending:
                return
            self._wake_pending = True
        with suppress(RuntimeError):  # the loop is closing: the store's close delivers what is left
            self._env.call_threadsafe(self.deliver)

    def deliver(self) -> None:
        with self._lock:
            self._wake_pending = False
        while self._waiting:
            callback = self._waiting.popleft()
            try:
                callback()
            except Exception:  # those behind it wait for theirs
                log.exception("a completion of the metadata store failed")


class _News(ToldNews):
    """What the thread found, on its way to followers."""

    def __init__(self, store: SharedSqliteStore) -> None:
        self._store = store

    def changes(self, changes: Changes) -> None:
        self._store._finished.put(partial(self._store._followers.tell_changes, changes))

    def gap(self) -> None:
        self._store._finished.put(self._store._followers.tell_gap)

    def ephemerals(self, ephemerals: dict[str, bytes]) -> None:
        self._store._finished.put(partial(self._store._followers.tell_ephemerals, ephemerals))

    def session_lost(self) -> None:
        self._store._finished.put(self._store.on_session_lost)


def _ended(_: object, error: BaseException | None) -> None:
    if error is not None:
        log.error("the metadata store's thread has ended", exc_info=error)

"""The thread of a SQLite file that processes share, and the way back from it to the loop.

Owns: the queue of jobs, between which the thread does what is due (``shared_sqlite_worker`` knows what), and the order
in which the loop hears of answers and news. One file serves as many processes as there are brokers. A write takes
SQLite's lock for a moment. News are looked for every ``STORE_POLL_MS`` while the store is followed.
Sessions are leases (``sqlite_sessions``), and what changed is kept for a while (``sqlite_history``). Unlike one
broker's own file it keeps no space for a start on a full disk.

Invariants: news come after the answers to the commits that made them; after ``close`` nothing is called back.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar

from pybroker.cluster.store.metadata_store import Changes, StoreError
from pybroker.cluster.store.sqlite.shared_sqlite_worker import SharedSqliteWorker, Sharing
from pybroker.cluster.store.store_followers import StoreFollowers
from pybroker.env import Env, Executor

T = TypeVar("T")

log = logging.getLogger(__name__)


class SharedSqliteThread:
    """The thread for the file at ``path``; ``on_session_lost()`` is called on the loop."""

    def __init__(
        self, path: str, env: Env, sharing: Sharing, on_session_lost: Callable[[], None], *, fsync: bool
    ) -> None:
        self._env = env
        self._followers = StoreFollowers(env.timers, self._catch_up)
        self.worker = SharedSqliteWorker(
            path, env.clock.monotonic_ms, sharing, self._followers, self._tell, on_session_lost, fsync=fsync
        )
        self._executor: Executor | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._told: deque[Callable[[], None]] = deque()  # what the loop has to run, in order
        self._wake_pending = False

    # ------------------------------------------------------------------ start and end

    def start(self) -> None:
        self._executor = self._env.executor("metadata-store", 0)
        self._executor.submit(self._run, _ended)

    def close(self) -> None:
        """Do what was submitted, end the session and the thread.  Blocks."""
        if self._executor is not None:
            self._end_thread(self._executor)
            self._deliver()
        self._followers.close()

    def abandon(self) -> None:
        """Let go of the file as the end of the process would: no broker hears of it, the session expires."""
        if self._executor is not None:
            self.worker.is_abandoned = True
            self._end_thread(self._executor)

    def _end_thread(self, executor: Executor) -> None:
        self._jobs.put(None)
        executor.close()
        self._executor = None

    # ------------------------------------------------------------------ jobs

    def ask(self, question: Callable[[], T]) -> T:
        """Ask on the thread, and wait."""
        answer: Future[T] = Future()

        def job() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._jobs.put(job)
        return answer.result()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run ``work()`` on the thread, then ``done(result, None)`` or ``done(None, error)`` on the loop."""

        def job() -> None:
            try:
                result = work()
            except Exception as error:
                self._tell(partial(done, None, error))
            else:
                self._tell(partial(done, result, None))

        self._jobs.put(job)

    def stall(self, wait: Callable[[], None]) -> None:
        """Have the thread do nothing, not even renew the session, until ``wait()`` returns."""
        self._jobs.put(wait)

    def _run(self) -> None:
        """Do the jobs and, between them, what is due, until the end."""
        worker = self.worker
        while True:
            try:
                job = self._jobs.get(timeout=worker.pause_s())
            except queue.Empty:
                pass
            else:
                if job is None or worker.is_abandoned:
                    break
                job()
            worker.tick()
        worker.close()

    # ------------------------------------------------------------------ following

    def follow(
        self, revision: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]
    ) -> Callable[[], None]:
        return self._followers.follow(revision, on_changes, on_gap)

    def watch_ephemerals(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> Callable[[], None]:
        followers = self._followers
        unwatch = followers.watch_ephemerals(prefix, on_change)
        self._jobs.put(self.worker.look)

        def end() -> None:
            unwatch()
            if not followers.is_watched:
                followers.forget_ephemerals()

        return end

    def look_for_news(self) -> None:
        self._jobs.put(self.worker.look_soon)

    def _catch_up(self, revision: int, done: Callable[[Changes | None], None]) -> None:
        def job() -> None:
            try:
                changes = self.worker.catch_up(revision)
            except StoreError:
                changes = None  # the follower reads, and hears then what is wrong
            self._tell(partial(done, changes))

        self._jobs.put(job)

    # ------------------------------------------------------------------ back to the loop

    def _tell(self, callback: Callable[[], None]) -> None:
        """Run a callback on the loop, in order, one wake-up for many; called on the thread."""
        with self._lock:
            self._told.append(callback)
            if self._wake_pending:
                return
            self._wake_pending = True
        with suppress(RuntimeError):  # the loop is closing: ``close`` delivers what is left
            self._env.call_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            self._wake_pending = False
        while self._told:
            callback = self._told.popleft()
            try:
                callback()
            except Exception:  # those behind it wait for theirs
                log.exception("a completion of the metadata store failed")


def _ended(_: object, error: BaseException | None) -> None:
    if error is not None:
        log.error("the metadata store's thread has ended", exc_info=error)

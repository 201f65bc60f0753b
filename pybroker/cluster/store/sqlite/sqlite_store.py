"""The ``MetadataStore`` in a SQLite file: a broker's own, or one that the brokers of a machine share.

Owns: the port, on the loop, and the thread that writes. The file of a broker that is alone, ``pybroker-metadata.db``,
lies in ``metadata.log.dir``, or else in the first of the log dirs, where Apache Kafka keeps ``__cluster_metadata-0``.
So a data directory that is moved or copied takes the topics' ids and configs along with their records, and the
directory's ``.lock`` guards both. A file that brokers share lies where ``pybroker.metadata`` says.

A broker has its own file for itself, the store's exclusive mode. No other process commits, so that there is nothing to
follow, and the thread begins with the first commit in service. With ``sharing`` the thread is there from the start
(``shared_sqlite_thread``): it renews this process's session and looks for news of the others.

Not owned: which keys there are (``store_codec``) and what happens in the file (``sqlite_worker``).

Invariants: those of the port; the loop waits for the file before the broker serves and at the close, never in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pybroker.cluster.store.metadata_store import (
    Changes,
    CommitResult,
    Entry,
    Snapshot,
    StoreError,
    Transaction,
    ignore_session_loss,
)
from pybroker.cluster.store.sqlite.sqlite_worker import SqliteWorker

if TYPE_CHECKING:
    from pybroker.cluster.store.sqlite.shared_sqlite_thread import SharedSqliteThread
    from pybroker.cluster.store.sqlite.shared_sqlite_worker import Sharing
    from pybroker.env import Env, Executor

FILE_NAME: Final = "pybroker-metadata.db"


class SqliteStore:
    """``MetadataStore`` on the SQLite file at ``path``, for this process alone where ``sharing`` is None.

    With ``fsync=False`` (dev, in-process brokers) a commit survives kill -9 but not the loss of power.
    """

    def __init__(self, path: str, env: Env, *, fsync: bool = True, sharing: Sharing | None = None) -> None:
        self.on_session_lost: Callable[[], None] = ignore_session_loss
        self._env = env
        self._executor: Executor | None = None  # of a file for itself: from the first commit in service on
        self._shared: SharedSqliteThread | None = None
        if sharing is None:
            self._worker = SqliteWorker(path, env.clock.monotonic_ms, fsync=fsync)
        else:
            from pybroker.cluster.store.sqlite.shared_sqlite_thread import SharedSqliteThread

            self._shared = SharedSqliteThread(path, env, sharing, self._tell_session_lost, fsync=fsync)
            self._worker = self._shared.worker

    # ------------------------------------------------------------------ start and end

    def open(self) -> None:
        if self._shared is None:
            self._worker.open()
            return
        self._shared.start()
        try:
            self._shared.ask(self._worker.open)
        except StoreError:
            self.close()
            raise

    def load(self, prefix: str) -> dict[str, Entry]:
        return self._snapshot(prefix).entries

    def revision(self) -> int:
        return self._snapshot("\U0010ffff").revision

    def _snapshot(self, prefix: str) -> Snapshot:
        return (
            self._worker.load(prefix) if self._shared is None else self._shared.ask(lambda: self._worker.load(prefix))
        )

    def commit_at_start(self, transaction: Transaction) -> CommitResult:
        if self._shared is not None:
            return self._shared.ask(lambda: self._worker.commit_at_start(transaction))
        assert self._executor is None, "the store's thread runs: commit"
        return self._worker.commit_at_start(transaction)

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()
            return
        if self._executor is not None:
            self._executor.close()
            self._executor = None
        self._worker.close()

    def _tell_session_lost(self) -> None:
        self.on_session_lost()

    @property
    def shared(self) -> SharedSqliteThread:
        """The thread by which the file is shared."""
        assert self._shared is not None, "a broker has its own file for itself"
        return self._shared

    # ------------------------------------------------------------------ in service

    def commit(self, transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
        def finish(result: CommitResult | None, error: BaseException | None) -> None:
            done(
                result
                if result is not None
                else CommitResult(error=StoreError(f"the metadata store failed: {error!r}"))
            )

        self._thread().submit(lambda: self._worker.commit(transaction), finish)

    def read(self, prefix: str, done: Callable[[Snapshot | None, StoreError | None], None]) -> None:
        def finish(snapshot: Snapshot | None, error: BaseException | None) -> None:
            done(snapshot, None if error is None else StoreError(str(error)))

        self._thread().submit(lambda: self._worker.load(prefix), finish)

    def follow(
        self, revision: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]
    ) -> Callable[[], None]:
        return self.shared.follow(revision, on_changes, on_gap)

    def watch_ephemerals(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> Callable[[], None]:
        return self.shared.watch_ephemerals(prefix, on_change)

    def look_for_news(self) -> None:
        self.shared.look_for_news()

    def _thread(self) -> Executor | SharedSqliteThread:
        if self._shared is not None:
            return self._shared
        if self._executor is None:
            self._executor = self._env.executor("metadata-store", 0)
        return self._executor

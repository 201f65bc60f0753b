"""A SQLite file that several brokers of a machine share keeps the rules of every ``MetadataStore``."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cluster.store.metadata_store import MetadataStore
from pybroker.cluster.store.sqlite.shared_sqlite_worker import Sharing
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME, SqliteStore

from .store_contract import RealSite, SharedStoreContract

TIMEOUT_MS = 1_000


class SharedFileSite(RealSite):
    """Each client has a connection and a thread of its own, as in processes apart."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = str(folder / FILE_NAME)
        self._intruder: sqlite3.Connection | None = None

    def client(self) -> MetadataStore:
        return self.opened(SqliteStore(self.path, self.env, fsync=False, sharing=Sharing(TIMEOUT_MS)))

    def expire(self, client: MetadataStore) -> None:
        assert isinstance(client, SqliteStore)
        with sqlite3.connect(self.path) as connection:
            connection.execute("UPDATE sessions SET ends_ms = 0 WHERE id = ?", (client.shared.worker._session,))
        connection.close()

    def take_away(self) -> None:
        self._intruder = sqlite3.connect(self.path, isolation_level=None)
        self._intruder.execute("BEGIN IMMEDIATE")

    def bring_back(self) -> None:
        assert self._intruder is not None
        self._intruder.execute("ROLLBACK")
        self._intruder.close()

    def forget_history(self) -> None:
        with sqlite3.connect(self.path) as connection:
            connection.execute("DELETE FROM changes")
            connection.execute("UPDATE history SET floor = last, rows = 0")
        connection.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SharedFileSite]:
    opened = SharedFileSite(tmp_path)
    yield opened
    opened.close()


class TestSharedFile(SharedStoreContract):
    """Nothing of its own."""

    session_timeout_seconds = TIMEOUT_MS / 1000

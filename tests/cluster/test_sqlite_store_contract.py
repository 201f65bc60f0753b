"""One broker's own SQLite file keeps the rules of every ``MetadataStore``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME, SqliteStore

from .store_contract import StoreContract, StoreSite


class OwnFileSite(StoreSite):
    """The file has one client at a time, on a loop and a thread that go when they are told to."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / FILE_NAME)
        self._world = VirtualWorld()
        self._clients: list[SqliteStore] = []

    def client(self) -> SqliteStore:
        store = SqliteStore(self._path, self._world.env, fsync=False)
        store.open()
        self._clients.append(store)
        return store

    def until(self, condition: Callable[[], object]) -> None:
        self._world.run()
        assert condition(), "the condition never holds"

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[OwnFileSite]:
    opened = OwnFileSite(tmp_path)
    yield opened
    opened.close()


class TestOwnFile(StoreContract):
    """Nothing of its own."""

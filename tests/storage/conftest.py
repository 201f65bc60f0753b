"""Fixtures of the storage tests: a log manager over a temporary directory in a world run by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file
from tests.storage.logs import Storage


@pytest.fixture(autouse=True)
def pages_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No read waits for the disk but where a test says so: a machine short of memory drops pages at any time."""
    monkeypatch.setattr(os_file, "is_resident", lambda address, start, end: True)


@pytest.fixture
def world() -> VirtualWorld:
    """Clock, timers and executors under the test's control."""
    return VirtualWorld()


@pytest.fixture
def make_storage(tmp_path: Path, world: VirtualWorld) -> Iterator[Callable[..., Storage]]:
    """Makes storages over one data directory; what is not closed is killed at the end."""
    made: list[Storage] = []

    def make(**settings: Any) -> Storage:
        storage = Storage(tmp_path / "data", world, **settings)
        made.append(storage)
        return storage

    yield make
    for storage in made:
        storage.kill()


@pytest.fixture
def storage(make_storage: Callable[..., Storage]) -> Storage:
    """A started log manager."""
    return make_storage()

"""Whether a log dir has room: who asks its file system, and what counts as room."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.dirs.log_dir import FREE_SPACE_AT_START_BYTES, FREE_SPACE_CHECK_INTERVAL_MS
from pybroker.storage.files import os_file
from pybroker.storage.results import KAFKA_STORAGE_ERROR
from tests.storage.logs import Client, Storage

SMALL, LARGE = 1_000, 200_000


class SmallDisk:
    """A file system with ``room`` bytes, of which every file takes none for good."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 30
        monkeypatch.setattr(os_file, "pwrite", self._pwrite)
        monkeypatch.setattr(os_file, "_allocate", lambda _fd, size: self._refuse(size))
        monkeypatch.setattr("pybroker.storage.dirs.log_dir.FREE_SPACE_BYTES", SMALL)

    def _refuse(self, size: int) -> None:
        if size > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _pwrite(self, fd: int, data: Any, position: int) -> int:
        self._refuse(memoryview(data).nbytes)
        return os.pwrite(fd, data, position)


@pytest.mark.parametrize("size", [10 * SMALL, LARGE])
def test_there_is_room_again_once_what_was_refused_could_be_written(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    disk, client, full = SmallDisk(monkeypatch), Client(storage.log(internal_segment_bytes=1 << 24)), list[bool]()
    storage.manager.on_free_space_changed = lambda directories: full.append(bool(directories))

    def send() -> int:
        result = client.send(values=[bytes(size)])
        if result is None:
            world.run()
            result = client.later.pop()
        return result.error_code

    assert send() == 0
    disk.room = 2 * SMALL  # what passes for room, and less than the batch
    assert send() == KAFKA_STORAGE_ERROR
    world.advance(10 * FREE_SPACE_CHECK_INTERVAL_MS)
    assert full == [True]
    assert "There is room" not in caplog.text
    disk.room = 2 * size
    world.advance(2 * FREE_SPACE_CHECK_INTERVAL_MS)
    assert full == [True, False]
    assert send() == 0


def test_who_looks_for_room_at_the_start_waits_for_no_file_system(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, full = list[int](), list[bool]()

    def has_free_space(_directory: object, most: int) -> bool:
        asked.append(most)
        return False

    monkeypatch.setattr(os_file, "has_free_space", has_free_space)
    storage.manager.on_free_space_changed = lambda directories: full.append(bool(directories))
    storage.manager.check_free_space()
    assert (asked, full) == ([], []), "a thread asks"
    world.run()
    assert (asked, full) == ([FREE_SPACE_AT_START_BYTES], [True])

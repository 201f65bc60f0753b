"""The room that is kept for a start: as much as the store may need, given away in parts, kept again."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.store.metadata_store import Transaction
from pybroker.cluster.store.sqlite.reserved_space import RESERVED_SPACE_STEP_BYTES, ReservedSpace
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME, SqliteStore
from pybroker.cluster.store.sqlite.sqlite_worker import RESERVE_SUFFIX, RESERVED_SPACE_BYTES_MIN, SqliteWorker
from pybroker.storage.files import os_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no room is kept elsewhere")

SIZE = 3 * RESERVED_SPACE_STEP_BYTES + 1


def open_store(folder: Path, *, fsync: bool = True) -> SqliteStore:
    store = SqliteStore(str(folder / FILE_NAME), VirtualWorld().env, fsync=fsync)
    store.open()
    return store


def room_bytes(folder: Path) -> int:
    path = folder / (FILE_NAME + RESERVE_SUFFIX)
    return path.stat().st_blocks * 512 if path.exists() else 0


def test_room_lies_on_the_disk_and_is_given_away_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "room"
    room = ReservedSpace(str(path))
    assert not room.give_way()
    room.keep(SIZE)
    assert path.stat().st_blocks * 512 >= SIZE
    sizes = [path.stat().st_size]
    while room.give_way():
        sizes.append(path.stat().st_size)
    assert sizes[-1] == 0
    assert all(former - later <= RESERVED_SPACE_STEP_BYTES for former, later in pairwise(sizes))
    room.keep(SIZE)
    assert path.stat().st_size == SIZE


def test_room_that_cannot_be_had_leaves_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = ReservedSpace(str(tmp_path / "room"))
    room.keep(100)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os_file, "allocate", refuse)
    room.keep(SIZE)
    assert (tmp_path / "room").stat().st_size == 100


def test_store_keeps_room_for_all_that_it_holds_and_a_throw_away_one_none(tmp_path: Path) -> None:
    for fsync in (False, True):
        store = open_store(tmp_path, fsync=fsync)
        puts = {f"/{i}": bytes(1000) for i in range(3000)}
        assert store.commit_at_start(Transaction(puts=puts)).revision is not None
        assert (room_bytes(tmp_path) >= RESERVED_SPACE_BYTES_MIN + 3000 * 1000) == fsync
        store.close()


def test_start_takes_of_the_room_until_the_store_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.commit_at_start(Transaction())
    room = tmp_path / (FILE_NAME + RESERVE_SUFFIX)
    enough = room.stat().st_size - 2 * RESERVED_SPACE_STEP_BYTES
    write = SqliteWorker.commit

    def commit(worker: SqliteWorker, transaction: Transaction) -> object:
        (pages,) = worker._opened().execute("PRAGMA page_count").fetchone()
        allowed = pages if room.stat().st_size > enough else 1 << 20
        worker._opened().execute(f"PRAGMA max_page_count = {allowed}")
        return write(worker, transaction)

    monkeypatch.setattr(SqliteWorker, "commit", commit)
    monkeypatch.setattr(SqliteWorker, "_reserve_space", lambda _: None)
    assert store.commit_at_start(Transaction(puts={"/a": bytes(100_000)})).revision is not None
    assert 0 < room.stat().st_size <= enough
    store.close()


def test_store_that_cannot_be_opened_is_refused_once_the_room_is_used_up(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit_at_start(Transaction())
    store.close()
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(Exception, match="cannot open the metadata store") as refused:
        open_store(tmp_path)
    assert isinstance(refused.value.__cause__, sqlite3.Error)

"""One broker's own SQLite file: what a crash leaves of it, a full disk, its thread, files that are not ours."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.store.metadata_store import CommitResult, Entry, StoreError, Transaction
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME, SqliteStore
from pybroker.net.loop_env import loop_env
from tests.new_threads import NewThreads


@pytest.fixture
def world() -> VirtualWorld:
    return VirtualWorld()


@pytest.fixture
def store(tmp_path: Path, world: VirtualWorld) -> Iterator[SqliteStore]:
    opened = open_store(tmp_path, world)
    yield opened
    opened.close()


def open_store(folder: Path, world: VirtualWorld, *, fsync: bool = False) -> SqliteStore:
    store = SqliteStore(str(folder / FILE_NAME), world.env, fsync=fsync)
    store.open()
    return store


def commit(store: SqliteStore, world: VirtualWorld, transaction: Transaction) -> CommitResult:
    results: list[CommitResult] = []
    store.commit(transaction, results.append)
    assert not results, "done never runs inside of the call"
    world.run()
    (result,) = results
    return result


@pytest.mark.parametrize("is_used", [False, True])
def test_store_leaves_files_once_something_was_committed(tmp_path: Path, world: VirtualWorld, is_used: bool) -> None:
    store = open_store(tmp_path, world, fsync=True)
    if is_used:
        store.commit_at_start(Transaction(puts={"/a": b"1"}))
    store.close()
    assert [each.name.removeprefix(FILE_NAME) for each in sorted(tmp_path.iterdir())] == ["", "-room"] * is_used


def test_ephemeral_keys_go_away_with_the_session(tmp_path: Path, world: VirtualWorld) -> None:
    store = open_store(tmp_path, world)
    store.commit_at_start(Transaction(puts={"/stays": b""}, ephemerals={"/goes": b""}))
    assert set(store.load("/")) == {"/stays", "/goes"}
    store.close()
    again = open_store(tmp_path, world)
    assert set(again.load("/")) == {"/stays"}
    again.close()


@pytest.mark.parametrize("fsync", [True, False])
def test_committed_keys_survive_kill_9(tmp_path: Path, world: VirtualWorld, fsync: bool) -> None:
    alive = tmp_path / "alive"
    alive.mkdir()
    store = open_store(alive, world, fsync=fsync)
    commit(store, world, Transaction(puts={"/a": b"1"}, ephemerals={"/session": b""}))
    commit(store, world, Transaction({"/a": 0}, {"/a": b"2"}))
    # What a killed process leaves: the files as they are, the write-ahead log not folded in.
    shutil.copytree(alive, tmp_path / "dead")
    store.close()
    reopened = open_store(tmp_path / "dead", world)
    assert reopened.load("/") == {"/a": Entry(b"2", 1)}
    reopened.close()


def test_transaction_that_was_cut_off_is_not_there_after_a_crash(tmp_path: Path, world: VirtualWorld) -> None:
    alive = tmp_path / "alive"
    alive.mkdir()
    store = open_store(alive, world)
    commit(store, world, Transaction(puts={"/a": b"1"}))
    before = (alive / f"{FILE_NAME}-wal").stat().st_size
    commit(store, world, Transaction(puts={"/a": b"2", "/b": b"x" * 9000}))
    shutil.copytree(alive, tmp_path / "dead")
    store.close()
    with (tmp_path / "dead" / f"{FILE_NAME}-wal").open("r+b") as wal:
        wal.truncate(before + 5000)
    reopened = open_store(tmp_path / "dead", world)
    assert reopened.load("/") == {"/a": Entry(b"1", 0)}
    reopened.close()


def test_revisions_go_on_growing_after_a_reopen(tmp_path: Path, world: VirtualWorld) -> None:
    store = open_store(tmp_path, world)
    before = store.commit_at_start(Transaction(puts={"/a": b""})).revision
    store.close()
    again = open_store(tmp_path, world)
    after = again.commit_at_start(Transaction(puts={"/a": b""})).revision
    again.close()
    assert before is not None
    assert after == before + 1


def test_write_that_fails_is_in_the_result_and_writing_works_again_later(
    store: SqliteStore, world: VirtualWorld, tmp_path: Path
) -> None:
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    connection = store._worker._opened()
    connection.execute("PRAGMA busy_timeout = 1")
    other.execute("BEGIN IMMEDIATE")
    result = commit(store, world, Transaction(puts={"/a": b"1"}))
    assert isinstance(result.error, StoreError)
    other.execute("ROLLBACK")
    other.close()
    assert commit(store, world, Transaction(puts={"/a": b"1"})).revision is not None
    assert store.load("/") == {"/a": Entry(b"1", 0)}


def test_full_disk_fails_the_write_and_writing_works_again_when_there_is_room(
    store: SqliteStore, world: VirtualWorld
) -> None:
    commit(store, world, Transaction(puts={"/a": b"1"}))
    connection = store._worker._opened()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    large = Transaction({"/a": 0}, {"/a": b"x" * 100_000, "/b": b""})
    result = commit(store, world, large)
    assert isinstance(result.error, StoreError)
    assert "full" in str(result.error)
    assert store.load("/") == {"/a": Entry(b"1", 0)}
    connection.execute("PRAGMA max_page_count = 1000000")
    assert commit(store, world, large).revision is not None


def test_commits_run_on_a_thread_of_the_store_and_answers_on_the_loop(tmp_path: Path) -> None:
    def store_threads() -> set[threading.Thread]:
        return {thread for thread in new_threads() if thread.name == "metadata-store"}

    new_threads = NewThreads()

    async def commit_twice() -> list[int]:
        store = SqliteStore(str(tmp_path / FILE_NAME), loop_env(), fsync=False)
        store.open()
        answered = asyncio.Event()
        threads: list[int] = []

        def done(result: CommitResult) -> None:
            assert result.revision is not None
            threads.append(threading.get_ident())
            if len(threads) == 2:
                answered.set()

        for number in range(2):
            store.commit(Transaction(puts={f"/{number}": b""}), done)
        await answered.wait()
        assert len(store_threads()) == 1
        store.close()
        return threads

    assert asyncio.run(commit_twice()) == [threading.get_ident()] * 2
    assert not store_threads()


def test_file_that_is_no_store_of_ours_is_refused_and_left_alone(tmp_path: Path, world: VirtualWorld) -> None:
    foreign = sqlite3.connect(tmp_path / FILE_NAME)
    foreign.execute("CREATE TABLE theirs (a)")
    foreign.commit()
    foreign.close()
    with pytest.raises(StoreError, match="not a metadata store"):
        open_store(tmp_path, world)
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / FILE_NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="cannot open"):
        open_store(tmp_path / "garbage", world)


@pytest.mark.parametrize("schema", [1, 2])
def test_file_of_the_first_version_is_used_as_it_is(tmp_path: Path, world: VirtualWorld, schema: int) -> None:
    path = tmp_path / FILE_NAME
    former = sqlite3.connect(path)
    former.executescript(f"""
        PRAGMA journal_mode = WAL;
        CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL,
            ephemeral INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE revision (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL);
        INSERT INTO revision VALUES (1, 41);
        INSERT INTO entries VALUES ('/cluster', x'31', 3, 0), ('/live/1', x'32', 0, 1);
        PRAGMA application_id = {0x7079626B};
    """)
    if schema == 2:  # brokers have shared it, and each of them is gone
        former.executescript("CREATE TABLE sessions (id INTEGER PRIMARY KEY, boot, ends_ms, timeout_ms)")
    former.execute(f"PRAGMA user_version = {schema}")
    former.close()
    store = open_store(tmp_path, world)
    assert (store.revision(), store.load("/")) == (41, {"/cluster": Entry(b"1", 3)})
    assert store.commit_at_start(Transaction({"/cluster": 3}, {"/cluster": b"2"})).revision == 42
    store.close()
    later = sqlite3.connect(path)
    assert later.execute("PRAGMA user_version").fetchone() == (schema,)
    later.close()


def test_store_of_a_newer_version_is_refused(tmp_path: Path, world: VirtualWorld) -> None:
    open_store(tmp_path, world).close()
    newer = sqlite3.connect(tmp_path / FILE_NAME)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(StoreError, match="newer"):
        open_store(tmp_path, world)


def test_directory_that_is_not_there_is_a_store_error(tmp_path: Path, world: VirtualWorld) -> None:
    with pytest.raises(StoreError):
        open_store(tmp_path / "nowhere", world)


def test_closed_store_leaves_one_file_and_no_thread(tmp_path: Path, world: VirtualWorld) -> None:
    new_threads = NewThreads()
    store = open_store(tmp_path, world)
    commit(store, world, Transaction(puts={"/a": b"1"}))
    store.close()
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert not new_threads()

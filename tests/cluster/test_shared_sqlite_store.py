"""A SQLite file shared by processes: kills, a stopped writer, leases, its history, files of other times."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from harness.process_pause import pause, resume

from pybroker import cluster_limits
from pybroker.cluster.store.metadata_store import CommitResult, SessionExpiredError, StoreError, Transaction
from pybroker.cluster.store.sqlite import shared_sqlite_worker, sqlite_sessions, sqlite_tables
from pybroker.cluster.store.sqlite.shared_sqlite_worker import (
    SharedSqliteWorker,
    Sharing,
    Writer,
    is_locked,
    read_writer,
)
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME, SqliteStore
from tests.new_threads import NewThreads

from .store_contract import Follower, RealSite

TIMEOUT_MS = 1_000

# A broker's store in a process of its own: it puts its key, says so, and does as it is told.
PROCESS = """
import asyncio, sys
from pybroker.cluster.store.metadata_store import Transaction
from pybroker.cluster.store.sqlite.shared_sqlite_worker import Sharing
from pybroker.cluster.store.sqlite.sqlite_store import SqliteStore
from pybroker.net.loop_env import loop_env

async def main(path, broker_id):
    env = loop_env()
    store = SqliteStore(path, env, fsync=False, sharing=Sharing(1000, broker_id, lambda: 7))
    store.open()
    store.commit_at_start(Transaction(puts={f"/{broker_id}": b""}, ephemerals={f"/live/{broker_id}": b""}))
    print("ready", flush=True)
    if sys.stdin.readline() == "lock\\n":
        store.shared.ask(lambda: (store._worker._begin(), print("locked", flush=True), sys.stdin.readline()))
    store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


class Process:
    """A broker's store elsewhere."""

    def __init__(self, path: str, broker_id: int) -> None:
        command = [sys.executable, "-c", PROCESS, path, str(broker_id)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def ready(self) -> Process:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def lock(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("lock\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "locked\n"

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Site(RealSite):
    """A file, clients in this process, and others."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = str(folder / FILE_NAME)
        self._processes: list[Process] = []

    def client(self, timeout_ms: int = TIMEOUT_MS, *, fsync: bool = False) -> SqliteStore:
        store = SqliteStore(self.path, self.env, fsync=fsync, sharing=Sharing(timeout_ms, 1))
        self.opened(store)
        return store

    def process(self, broker_id: int) -> Process:
        process = Process(self.path, broker_id)
        self._processes.append(process)
        return process

    def live(self, client: SqliteStore) -> list[str]:
        return list(self.read(client, "/live/").entries)

    def close(self) -> None:
        for process in self._processes:
            process.end()
        super().close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    opened = Site(tmp_path)
    yield opened
    opened.close()


def test_processes_that_open_a_new_file_at_once_share_it(site: Site) -> None:
    processes = [site.process(broker_id) for broker_id in (1, 2, 3)]
    for process in processes:
        process.ready()
    keys = {f"/{number}" for number in (1, 2, 3)} | {f"/live/{number}" for number in (1, 2, 3)}
    assert set(site.read(site.client()).entries) == keys


def test_process_that_is_killed_leaves_what_it_committed_and_loses_its_session(site: Site) -> None:
    client = site.client()
    other = site.process(2).ready()
    told: list[list[str]] = []
    client.watch_ephemerals("/live/", lambda keys: told.append(list(keys)))
    site.until(lambda: told == [["/live/2"]])
    other.signal(signal.SIGKILL)
    site.until(lambda: told == [["/live/2"], []])
    assert set(site.read(client).entries) == {"/2"}


def test_process_that_is_paused_for_longer_than_its_session_comes_back_without_it(site: Site) -> None:
    client = site.client()
    other = site.process(2).ready()
    told: list[list[str]] = []
    client.watch_ephemerals("/live/", lambda keys: told.append(list(keys)))
    site.until(lambda: told == [["/live/2"]])
    pause(other.pid)
    site.until(lambda: told == [["/live/2"], []])
    resume(other.pid)
    with sqlite3.connect(site.path) as looking:
        site.until(lambda: looking.execute("SELECT max(id) FROM sessions").fetchone() == (3,))
    looking.close()
    assert site.live(client) == []


def test_commit_after_the_session_has_ended_says_that_nothing_was_written(site: Site) -> None:
    client = site.client(timeout_ms=60_000)  # its own renewal would find that out first
    with sqlite3.connect(site.path) as elsewhere:
        elsewhere.execute("DELETE FROM sessions")
    elsewhere.close()
    results: list[CommitResult] = []
    client.commit(Transaction(puts={"/a": b""}), results.append)
    site.until(lambda: results != [])
    assert isinstance(results[0].error, SessionExpiredError)
    assert not site.read(client, "/a").entries


def test_session_that_could_not_be_committed_is_begun_anew_and_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    lost: list[None] = []
    client = site.client(timeout_ms=60_000)
    worker = client.shared.worker
    client.on_session_lost = lambda: lost.append(None)
    with sqlite3.connect(site.path) as elsewhere:
        elsewhere.execute("DELETE FROM sessions")
    elsewhere.close()
    with monkeypatch.context() as patched:
        patched.setattr(worker, "_end", full)
        assert not client.shared.ask(lambda: worker._try(worker._renew))
    other = site.client()
    assert client.shared.ask(lambda: worker._try(worker._renew))
    site.until(lambda: lost)
    assert worker._session != other.shared.worker._session


def test_start_that_could_not_commit_its_session_ends_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: SharedSqliteWorker) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    site.client().close()
    with monkeypatch.context() as patched:
        patched.setattr(SharedSqliteWorker, "_end", full)
        failed = SqliteStore(site.path, site.env, fsync=False, sharing=Sharing(TIMEOUT_MS, 2))
        with pytest.raises(StoreError, match="disk is full"):
            failed.open()
        assert failed.shared.worker._session == 0


def test_start_waits_for_a_writer_for_longer_than_a_session_lasts(site: Site) -> None:
    writer = site.process(2).ready()
    writer.lock()
    end = threading.Timer(1.5 * TIMEOUT_MS / 1_000, writer.signal, [signal.SIGKILL])
    end.start()
    began = time.monotonic()
    client = site.client()
    assert time.monotonic() - began > TIMEOUT_MS / 1_000
    assert site.commit(client, Transaction(puts={"/a": b""})).revision is not None
    end.join()


def test_writer_that_is_stopped_holding_the_lock_is_named_and_costs_nobody_else_its_session(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    client = site.client()
    client.on_session_lost = lambda: pytest.fail("the lease could not be renewed, and nobody else wrote meanwhile")
    site.commit(client, Transaction(ephemerals={"/live/1": b""}))
    follower = Follower(client, client.revision())
    stopped = site.process(2).ready()
    site.until(lambda: "/2" in follower.state)
    stopped.lock()
    pause(stopped.pid)
    assert (read_writer(site.path), is_locked(site.path)) == (Writer(stopped.pid, 2, 7), True)
    result = site.commit(client, Transaction(puts={"/a": b""}))
    assert f"process {stopped.pid} (broker 2, epoch 7) has kept the metadata store" in str(result.error)
    site.until(lambda: "is away: process" in caplog.text)
    assert set(site.read(client).entries) == {"/2", "/live/1", "/live/2"}
    stopped.signal(signal.SIGKILL)
    assert site.commit(client, Transaction(puts={"/a": b""})).revision is not None
    site.until(lambda: not is_locked(site.path))  # it may be renewing its session
    assert "/live/1" in site.live(client)
    told: list[list[str]] = []
    client.watch_ephemerals("/live/", lambda keys: told.append(list(keys)))
    site.until(lambda: told and told[-1] == ["/live/1"])
    site.until(lambda: "/a" in follower.state)


def test_renewals_that_fail_for_long_are_told_once_and_so_is_that_they_succeed_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def renew(*_: object) -> bool:
        failed.append(1)
        raise sqlite3.OperationalError("database or disk is full")

    failed: list[int] = []
    client = site.client()
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_sessions, "renew", renew)
        site.until(lambda: len(failed) >= 4)
    site.until(lambda: "is back" in caplog.text)
    lines = [record.getMessage() for record in caplog.records]
    told = [line.partition(" is ")[2] for line in lines if line.startswith("the metadata store")]
    assert told == ["away: database or disk is full", f"back, where {len(failed)} tries failed"]
    client.close()


@pytest.mark.parametrize(("fsync", "in_renewal", "else_"), [(True, 1, 2), (False, 0, 0)])
def test_checkpoint_within_a_renewal_syncs_what_was_committed_before(
    site: Site, monkeypatch: pytest.MonkeyPatch, fsync: bool, in_renewal: int, else_: int
) -> None:
    def synchronous() -> int:
        (level,) = worker._opened().execute("PRAGMA synchronous").fetchone()
        return int(level)

    def ended() -> None:
        levels.append(synchronous())
        end()

    levels: list[int] = []
    client = site.client(timeout_ms=60_000, fsync=fsync)
    worker, end = client.shared.worker, client.shared.worker._end
    monkeypatch.setattr(worker, "_end", ended)
    client.shared.ask(worker._renew)
    client.shared.ask(lambda: levels.append(synchronous()))
    site.put(client, "/a")
    assert levels == [in_renewal, else_, else_]


def test_first_write_after_a_silence_of_all_gives_whoever_was_alive_a_whole_lease() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript("CREATE TABLE entries (key, ephemeral);" + sqlite_sessions.SCHEMA)

    def sessions() -> list[tuple[int, int]]:
        return connection.execute("SELECT id, ends_ms FROM sessions").fetchall()

    sqlite_sessions.end_lapsed(connection, "boot", 1_000)
    for number in range(2):
        assert sqlite_sessions.begin(connection, "boot", 1_000 + number, 600) == number + 1
    sqlite_sessions.end_lapsed(connection, "boot", 1_200)
    assert sqlite_sessions.renew(connection, 1, "boot", 1_200)
    sqlite_sessions.end_lapsed(connection, "boot", 5_000)
    assert sessions() == [(1, 5_600), (2, 5_600)]
    for now_ms in (5_200, 5_400, 5_600):
        sqlite_sessions.end_lapsed(connection, "boot", now_ms)
        assert sqlite_sessions.renew(connection, 1, "boot", now_ms)
    assert sessions() == [(1, 6_200), (2, 5_600)]
    sqlite_sessions.end_lapsed(connection, "boot", 5_601)
    assert sessions() == [(1, 6_200)]
    connection.close()


@pytest.mark.parametrize(("boot", "now_ms"), [("other", 1_100), ("boot", 100)])
def test_leases_of_an_earlier_boot_are_over(boot: str, now_ms: int) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript("CREATE TABLE entries (key, ephemeral);" + sqlite_sessions.SCHEMA)
    sqlite_sessions.end_lapsed(connection, "boot", 1_000)
    session = sqlite_sessions.begin(connection, "boot", 1_000, 600)
    assert sqlite_sessions.alive(connection, boot, now_ms) == 0
    sqlite_sessions.end_lapsed(connection, boot, now_ms)
    assert not sqlite_sessions.renew(connection, session, boot, now_ms)
    connection.close()


def test_history_is_bounded_and_who_is_behind_it_is_told_of_a_gap(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_limits, "STORE_HISTORY_KEYS_MAX", 20)
    client = site.client()
    start = client.revision()
    revisions = [site.put(client, f"/{number}") for number in range(100)]
    with sqlite3.connect(site.path) as looking:
        assert looking.execute("SELECT count(*) FROM changes").fetchone()[0] <= 21
    looking.close()
    behind, lately = Follower(client, start), Follower(client, revisions[-6])
    site.until(lambda: behind.gaps and lately.heard)
    assert set(lately.state) == {f"/{number}" for number in range(95, 100)}


def test_transaction_of_more_keys_than_the_history_has_is_told_to_who_is_right_behind_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_limits, "STORE_HISTORY_KEYS_MAX", 20)
    client = site.client()
    start = client.revision()
    before = [site.put(client, f"/before/{number}") for number in range(5)]
    site.commit(client, Transaction(puts={f"/{number}": b"" for number in range(30)}))
    behind, next_to_it = Follower(client, start), Follower(client, before[-1])
    site.until(lambda: next_to_it.heard or next_to_it.gaps)
    assert next_to_it.state.keys() == {f"/{number}" for number in range(30)}
    site.put(client, "/after")
    with sqlite3.connect(site.path) as looking:
        assert looking.execute("SELECT count(*) FROM changes").fetchone()[0] <= 21
    looking.close()
    site.until(lambda: "/after" in next_to_it.state)
    assert (behind.gaps, next_to_it.gaps) == (1, 0)


def test_key_that_is_put_over_and_over_is_one_row_of_the_history(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_limits, "STORE_HISTORY_KEYS_MAX", 20)
    client = site.client()
    start = site.put(client, "/b")
    for number in range(100):
        site.put(client, "/a", b"%d" % number)
    follower = Follower(client, start)
    site.until(lambda: follower.state == {"/a": b"99"})


def test_file_of_one_broker_is_shared_with_what_it_holds(site: Site) -> None:
    own = SqliteStore(site.path, site.env, fsync=False)
    own.open()
    own.commit_at_start(Transaction(puts={"/a": b"1"}))
    own.commit_at_start(Transaction(puts={"/a": b"2"}, ephemerals={"/live/1": b""}))
    before = own.revision()
    own.close()
    one, other = site.client(), site.client()
    assert one.revision() == before
    follower = Follower(other, before)
    site.commit(one, Transaction({"/a": 1}, {"/a": b"3"}))
    site.until(lambda: follower.state == {"/a": b"3"})


def test_shared_file_serves_one_broker_again_and_then_has_no_history(site: Site) -> None:
    sharing = site.client()
    before = site.put(sharing, "/a")
    own = SqliteStore(site.path, site.env, fsync=False)
    with pytest.raises(StoreError, match="1 brokers share"):
        own.open()
    sharing.close()
    own.open()
    own.commit_at_start(Transaction({"/a": 0}, {"/b": b""}))
    own.close()
    follower = Follower(site.client(), before)
    site.until(lambda: follower.gaps)


def test_a_broker_that_may_not_have_the_file_for_itself_leaves_the_others_keys_in_it(site: Site) -> None:
    sharing = site.client()
    sharing.commit_at_start(Transaction(puts={"/stays": b""}, ephemerals={"/live/1": b""}))
    own = SqliteStore(site.path, site.env, fsync=False)
    with pytest.raises(StoreError, match="1 brokers share"):
        own.open()
    assert set(sharing.load("/")) == {"/stays", "/live/1"}


def test_nobody_who_follows_means_nothing_is_looked_at(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    client = site.client()
    end = client.follow(client.revision(), print, print)
    looks: list[None] = []
    poll = client.shared.worker._poll

    def counted() -> None:
        looks.append(None)
        poll()

    monkeypatch.setattr(client.shared.worker, "_poll", counted)
    site.until(lambda: len(looks) > 3)
    end()
    site.read(client)
    seen = len(looks)
    idle_until = time.monotonic() + 10 * shared_sqlite_worker.STORE_POLL_MS / 1000
    site.until(lambda: time.monotonic() > idle_until)
    assert len(looks) == seen


def test_file_that_is_no_store_is_refused_and_no_thread_stays(site: Site, tmp_path: Path) -> None:
    new_threads = NewThreads()
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="cannot open"):
        site.client()
    site.path = str(tmp_path / "nowhere" / FILE_NAME)
    with pytest.raises(StoreError, match="cannot open"):
        site.client()
    assert not new_threads()


def test_closed_store_leaves_the_file_and_the_name_of_its_writer(site: Site, tmp_path: Path) -> None:
    new_threads = NewThreads()
    client = site.client()
    site.put(client, "/a")
    client.close()
    client.close()
    assert {path.name for path in tmp_path.iterdir()} == {FILE_NAME, FILE_NAME + "-writer"}
    assert read_writer(site.path) == Writer(os.getpid(), 1, -1)
    assert not new_threads()


def test_commit_of_a_process_that_was_killed_before_it_left_its_stamp_is_found(site: Site) -> None:
    client = site.client()
    follower = Follower(client, site.put(client, "/a"))
    site.settle(client)
    with sqlite3.connect(site.path) as silent:
        (revision,) = silent.execute("UPDATE revision SET value = value + 1 RETURNING value").fetchone()
        silent.execute("UPDATE entries SET value = x'32' WHERE key = '/a'")
        silent.execute("UPDATE changes SET revision = ? WHERE key = '/a'", (revision,))
        silent.execute("UPDATE history SET last = ?", (revision,))
    silent.close()
    site.until(lambda: follower.state.get("/a") == b"2")


def test_file_that_another_process_makes_meanwhile_passes_for_new_or_for_a_store(tmp_path: Path) -> None:
    path = str(tmp_path / "meta.db")
    looking = sqlite3.connect(path)
    making = sqlite3.connect(path, isolation_level=None)

    class Interrupted:
        """The other process makes the store right after the first look."""

        def execute(self, statement: str) -> Any:
            rows = looking.execute(statement).fetchall()
            if not making.execute("SELECT * FROM sqlite_master").fetchall():
                making.executescript(f"BEGIN; {sqlite_tables.SCHEMA} COMMIT")
            return _Rows(rows)

    try:
        assert sqlite_tables.check_schema(cast(Any, Interrupted()), path) == sqlite_tables.SCHEMA_VERSION
    finally:
        looking.close()
        making.close()


class _Rows:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:
        return self._rows[0]


def test_news_is_found_at_once_by_who_is_told_to_look(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = site.client(), site.client()
    follower = Follower(other, other.revision())
    monkeypatch.setattr(shared_sqlite_worker, "STORE_POLL_MS", 3_600_000)
    one.commit_at_start(Transaction(puts={"/before": b""}))
    other.look_for_news()
    site.until(lambda: "/before" in follower.state)  # the next look is an hour away from now on
    one.commit_at_start(Transaction(puts={"/after": b""}))
    other.look_for_news()
    site.until(lambda: "/after" in follower.state)
    follower.end()


def test_of_one_change_among_ten_thousand_partitions_a_follower_reads_no_more_than_that(site: Site) -> None:
    one, other = site.client(), site.client()
    site.commit(one, Transaction(puts={f"/partitions/{number}": b"" for number in range(10_000)}))
    follower = Follower(other, other.revision())
    statements: set[str] = set()
    other.shared.ask(lambda: other.shared.worker._opened().set_trace_callback(statements.add))
    site.put(one, "/partitions/7", b"moved")
    site.until(lambda: follower.heard)
    assert follower.state == {"/partitions/7": b"moved"}
    assert any("changes" in statement for statement in statements)
    with sqlite3.connect(site.path) as looking:
        plans = [plan for each in statements for *_, plan in looking.execute(f"EXPLAIN QUERY PLAN {each}")]
    looking.close()
    # What has a row for each partition is searched by an index.
    assert [plan for plan in plans if re.search(r"SCAN (entries|changes)", plan)] == []

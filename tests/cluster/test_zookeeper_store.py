"""ZooKeeper itself: servers that die, answers that get lost, snapshots, strangers, a store that was wiped."""

from __future__ import annotations

import errno
import shutil
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.broker_probe import refusing_port
from harness.zookeeper import ZooKeeper
from kazoo.exceptions import AuthFailedError, ConnectionLoss
from kazoo.protocol.connection import ConnectionHandler

from pybroker.cluster.store.metadata_store import CommitResult, Entry, StoreError, Transaction
from pybroker.cluster.store.zookeeper.zookeeper_store import ZooKeeperStore
from tests.new_threads import NewThreads

from .store_contract import Follower, RealSite, fail

TIMEOUT_MS = 2_000

needs_zookeeper = pytest.mark.jvm(needs="zookeeper")


class Site(RealSite):
    """An ensemble of its own, and clients."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.zookeeper: ZooKeeper | None = None
        self.url = "zookeeper:"

    def start(self, servers: int = 1) -> ZooKeeper:
        self.zookeeper = ZooKeeper(self.folder, servers=servers).start()
        self.url = f"zookeeper://{self.zookeeper.hosts}/brokers/of/this/test"
        return self.zookeeper

    def client(self, digest: str | None = None, timeout_ms: int = TIMEOUT_MS) -> ZooKeeperStore:
        store = ZooKeeperStore(self.url, self.env, timeout_ms=timeout_ms, digest=digest)
        self.opened(store)
        return store

    def children(self, client: ZooKeeperStore, folder: str) -> list[str]:
        return sorted(client._client.get_children(folder))

    def close(self) -> None:
        super().close()
        if self.zookeeper is not None:
            self.zookeeper.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    opened = Site(tmp_path)
    yield opened
    opened.close()


def has_more_than(results: list[CommitResult], count: int) -> bool:
    return len(results) > count


def values(entries: dict[str, Entry]) -> dict[str, bytes]:
    return {key: entry.value for key, entry in entries.items()}


@needs_zookeeper
def test_commit_whose_answer_got_lost_is_found_and_done_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.start()
    client = site.client()
    site.put(client, "/a", b"1")
    transaction = client._client.transaction
    lost: list[str] = []

    def losing() -> Any:
        request = transaction()
        commit = request.commit_async

        def commit_async() -> Any:
            answer = commit()
            if lost:
                return answer
            lost.append("the answer")
            answer.get()
            broken = client._client.handler.async_result()
            broken.set_exception(ConnectionLoss())
            return broken

        request.commit_async = commit_async
        return request

    monkeypatch.setattr(client._client, "transaction", losing)
    follower = Follower(client, client.revision())
    result = site.commit(client, Transaction({"/a": 0}, {"/a": b"2"}, ephemerals={"/b": b""}))
    assert lost
    assert result == CommitResult(client.revision())
    assert site.read(client).entries == {"/a": Entry(b"2", 1), "/b": Entry(b"", 0)}
    assert [changes.puts for changes in follower.heard] == [{"/a": b"2"}]


@needs_zookeeper
@pytest.mark.timeout(180)
def test_nothing_is_lost_or_done_twice_while_leaders_of_the_ensemble_are_killed(site: Site) -> None:
    zookeeper = site.start(3)
    one, other = site.client(timeout_ms=6_000), site.client(timeout_ms=6_000)
    follower = Follower(other, other.revision())
    results: list[CommitResult] = []

    def commit_next(result: CommitResult | None = None) -> None:
        if result is not None:
            results.append(result)
        if len(results) < 400:
            one.commit(Transaction(puts={"/count": b"%d" % len(results)}), commit_next)

    commit_next()
    for seen in (50, 200):
        site.until(partial(has_more_than, results, seen))
        leader = zookeeper.leader()
        zookeeper.kill_server(leader)
        zookeeper.wait_until_serving((leader + 1) % 3)
        zookeeper.start_server(leader)
        zookeeper.wait_until_serving(leader)
    site.until(lambda: len(results) == 400)
    committed = sum(result.revision is not None for result in results)
    unknown = sum(result.error is not None for result in results)
    assert committed + unknown == 400
    assert committed >= 300
    revisions = [result.revision for result in results if result.revision is not None]
    assert revisions == sorted(set(revisions))
    entry = site.read(one).entries["/count"]
    assert committed - 1 <= entry.version <= committed + unknown - 1
    site.until(lambda: follower.state == {"/count": entry.value})
    assert not follower.gaps


@needs_zookeeper
def test_server_that_is_killed_and_comes_back_is_followed_on_in_the_same_session(site: Site) -> None:
    zookeeper = site.start()
    one, other = site.client(timeout_ms=20_000), site.client(timeout_ms=20_000)
    one.on_session_lost = other.on_session_lost = fail
    follower = Follower(other, other.revision())
    told: list[list[str]] = []
    other.watch_ephemerals("/", lambda keys: told.append(list(keys)))
    site.commit(one, Transaction(puts={"/a": b"1"}, ephemerals={"/live/1": b""}))
    zookeeper.kill()
    results: list[CommitResult] = []
    one.commit(Transaction({"/a": 0}, {"/a": b"2"}), results.append)
    zookeeper.start()
    site.until(lambda: results)
    assert results[0].revision is not None
    site.until(lambda: follower.state == {"/a": b"2"})
    assert site.read(other).entries == {"/a": Entry(b"2", 1), "/live/1": Entry(b"", 0)}
    assert told[-1] == ["/live/1"]


@needs_zookeeper
@pytest.mark.parametrize(
    ("owner", "name", "error", "reason"),
    [
        pytest.param(
            socket, "getaddrinfo", OSError(errno.EMFILE, "no descriptors"), "no descriptors", id="no descriptor"
        ),
        pytest.param(ConnectionHandler, "_connect", AuthFailedError(), "refused the credentials", id="refused"),
    ],
)
def test_client_whose_thread_has_ended_for_good_connects_anew_and_the_session_is_lost(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: Any,
    name: str,
    error: Exception,
    reason: str,
) -> None:
    zookeeper = site.start()
    client = site.client(timeout_ms=8_000)
    site.put(client, "/a", b"1")
    working, failures, lost = getattr(owner, name), [error], list[str]()
    client.on_session_lost = lambda: lost.append("the session")

    def failing(*args: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return working(*args, **options)

    zookeeper.kill()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, failing)
        site.until(lambda: not failures)
        zookeeper.start()
        site.until(lambda: lost)
    assert site.commit(client, Transaction({"/a": 0}, ephemerals={"/live/1": b""})).revision == 2
    told = [record.getMessage() for record in caplog.records if "ended for good" in record.getMessage()]
    assert len(told) == 1
    assert reason in told[0]


@needs_zookeeper
def test_commit_fails_clearly_when_the_store_is_away_for_longer_than_a_session(site: Site) -> None:
    zookeeper = site.start()
    client = site.client()
    site.put(client, "/a", b"1")
    zookeeper.kill()
    results: list[CommitResult] = []
    client.commit(Transaction(puts={"/a": b"2"}), results.append)
    client.commit(Transaction(puts={"/b": b"2"}), results.append)
    site.until(lambda: len(results) == 2)
    assert ["away" in str(result.error) for result in results] == [True, True]
    zookeeper.start()
    site.until(lambda: client._client.connected)
    assert set(site.read(client).entries) >= {"/a"}


@needs_zookeeper
def test_after_servers_stood_still_for_longer_than_a_session_everything_goes_on_in_this_or_another(site: Site) -> None:
    zookeeper = site.start()
    one, other = site.client(), site.client()
    follower = Follower(other, other.revision())
    told: list[list[str]] = []
    other.watch_ephemerals("/", lambda keys: told.append(list(keys)))
    site.commit(one, Transaction(puts={"/a": b"1"}, ephemerals={"/live/1": b""}))
    site.until(lambda: told and told[-1] == ["/live/1"])
    zookeeper.pause()
    results: list[CommitResult] = []
    one.commit(Transaction(puts={"/b": b""}), results.append)
    site.until(lambda: results)
    assert results[0].error is not None
    site.wait(TIMEOUT_MS / 1000)
    zookeeper.resume()
    # Whether a session outlives that is a matter of which the server hears of first: its clients, or the time.
    revision = None
    while revision is None:
        revision = site.commit(one, Transaction(puts={"/c": b""}, ephemerals={"/live/1": b""})).revision
    site.until(lambda: follower.revision >= revision)
    site.until(lambda: told[-1] == ["/live/1"])
    assert site.read(one).entries == site.read(other).entries
    assert {"/a", "/c"} <= set(follower.state)
    assert not follower.gaps


@needs_zookeeper
def test_store_that_was_wiped_is_not_followed(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    zookeeper = site.start()
    client = site.client()
    for number in range(5):
        site.put(client, f"/{number}")
    follower = Follower(client, client.revision())
    # As if the server had begun anew: its connections it would refuse by itself.
    client._client.set("/head", b"")
    client._client.delete("/head")
    client._client.create("/head", b"")
    site.until(lambda: "it was wiped" in caplog.text)
    result = site.commit(client, Transaction(puts={"/a": b""}))
    assert "ends at revision 0, where this broker has seen 5: it was wiped" in str(result.error)
    assert not follower.heard
    assert not follower.gaps
    zookeeper.kill()
    shutil.rmtree(site.folder / "0")
    zookeeper.start()
    assert site.commit(client, Transaction(puts={"/a": b""})).revision is None


@needs_zookeeper
def test_server_that_was_wiped_is_recognized_and_so_is_the_one_whose_data_is_back(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper = site.start()
    client = site.client()
    for number in range(5):
        site.put(client, f"/{number}")
    follower = Follower(client, client.revision())
    zookeeper.kill()
    (site.folder / "0").rename(site.folder / "away")
    zookeeper.start()
    site.until(lambda: "ends at revision 0, where this broker has seen 5: it was wiped" in caplog.text)
    stranger = site.client()
    for number in range(8):  # as many as the client knows, and more
        site.put(stranger, f"/strange/{number}")
    result = site.commit(client, Transaction(puts={"/a": b""}))
    assert "has other changes than before: it was wiped" in str(result.error)
    stranger.close()
    zookeeper.kill()
    shutil.rmtree(site.folder / "0")
    (site.folder / "away").rename(site.folder / "0")
    zookeeper.start()
    revision = None
    while revision is None:
        revision = site.commit(client, Transaction(puts={"/a": b"1"})).revision
    assert revision == 6
    site.until(lambda: follower.heard)
    assert [changes.puts for changes in follower.heard] == [{"/a": b"1"}]
    assert not follower.gaps


@needs_zookeeper
def test_snapshots_take_the_place_of_changes_that_are_long_past(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.cluster.store.zookeeper.zookeeper_store.STORE_CHANGES_PER_SNAPSHOT", 10)
    monkeypatch.setattr("pybroker.cluster.store.zookeeper.zookeeper_store.STORE_CHANGE_BYTES_MAX", 500)
    site.start()
    one, other = site.client(), site.client()
    behind = Follower(other, other.revision())
    for number in range(64):
        site.commit(one, Transaction(puts={f"/{number % 7}": b"%d" % number * 300, "/all": b"%d" % number}))
    site.settle(one, other)
    assert site.children(one, "/changes") == [f"{revision:010}" for revision in range(51, 66)]
    assert len(site.children(one, "/snapshots")) == 1
    assert [name.partition("-")[0] for name in site.children(one, "/parts")] == [
        f"{revision:010}" for revision in range(50, 64)
    ]
    late = site.client()
    entries = site.read(late).entries
    assert entries == site.read(one).entries == site.read(other).entries
    assert entries["/all"] == Entry(b"63", 63)
    assert behind.state == values(entries)
    assert Follower(late, late.revision() - 3).gaps == 0


@needs_zookeeper
def test_client_that_was_away_while_changes_were_removed_begins_anew_and_its_followers_hear_of_the_gap(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.cluster.store.zookeeper.zookeeper_store.STORE_CHANGES_PER_SNAPSHOT", 10)
    site.start()
    one, other = site.client(), site.client()
    follower = Follower(other, other.revision())
    monkeypatch.setattr(other, "_look", lambda: None)
    for number in range(64):
        site.put(one, f"/{number % 7}", b"%d" % number)
    monkeypatch.undo()
    assert site.read(other) == site.read(one)
    assert (follower.heard, follower.gaps) == ([], 1)


@needs_zookeeper
def test_what_is_made_with_a_digest_is_its_owners_alone(site: Site) -> None:
    site.start()
    client = site.client("broker:secret")
    site.commit(client, Transaction(puts={"/a": b"1"}, ephemerals={"/b": b""}))
    for stranger in (None, "broker:guessed"):
        with pytest.raises(StoreError, match="its znodes belong to who has another"):
            site.client(stranger)
    assert set(site.read(site.client("broker:secret")).entries) == {"/a", "/b"}


@needs_zookeeper
def test_digest_is_refused_where_everybody_may_read_and_write_what_is_there_already(site: Site) -> None:
    site.start()
    client = site.client()
    site.put(client, "/a")
    with pytest.raises(StoreError, match=r"is open to everybody.*Stop all brokers and set the ACLs"):
        site.client("broker:secret")
    site.put(client, "/b")


@needs_zookeeper
def test_stores_below_different_chroots_know_nothing_of_each_other(site: Site) -> None:
    zookeeper = site.start()
    one = site.client()
    site.put(one, "/a")
    site.url = f"zookeeper://{zookeeper.hosts}"
    assert not site.read(site.client()).entries


@needs_zookeeper
def test_closed_store_leaves_no_thread(site: Site) -> None:
    new_threads = NewThreads()
    site.start()
    client = site.client()
    site.put(client, "/a")
    client.close()
    client.close()
    assert not [thread for thread in new_threads() if thread.is_alive()]


def test_nobody_at_the_address_is_said_in_a_line_and_leaves_no_thread(site: Site) -> None:
    new_threads = NewThreads()
    with refusing_port() as port:
        site.url = f"zookeeper://127.0.0.1:{port}"
        with pytest.raises(StoreError, match="no server answers at the metadata store zookeeper://"):
            site.client(timeout_ms=200)
        site.until(lambda: not new_threads())

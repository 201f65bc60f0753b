"""The rules of every ``MetadataStore``: a test module per implementation derives from these classes.

A derived class has a fixture ``site``: one store, its clients, and what can be done to it.  ``StoreContract`` is what
holds for a store of one broker already, which no broker follows; ``SharedStoreContract`` what several may count on.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from pybroker.cluster.store.metadata_store import (
    ABSENT,
    Changes,
    CommitResult,
    Entry,
    MetadataStore,
    Snapshot,
    StoreError,
    Transaction,
)
from pybroker.env import Env
from pybroker.net.loop_env import loop_env

WAIT_SECONDS = 20


class StoreSite(ABC):
    """One store under test.  What an implementation cannot be made to do raises NotImplementedError."""

    @abstractmethod
    def client(self) -> MetadataStore:
        """An open store; the site closes it at the end."""

    @abstractmethod
    def until(self, condition: Callable[[], object]) -> None:
        """Let everything go on until the condition holds."""

    def now(self) -> float:
        """The site's clock, in seconds."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Let everything go on for so long."""
        end = self.now() + seconds
        self.until(lambda: self.now() >= end)

    def expire(self, client: MetadataStore) -> None:
        """Let the session of a client end although it lives."""
        raise NotImplementedError

    def take_away(self) -> None:
        """Nobody reaches the store from now on."""
        raise NotImplementedError

    def bring_back(self) -> None:
        """The store answers again."""
        raise NotImplementedError

    def forget_history(self) -> None:
        """The store forgets the changes there have been up to now."""
        raise NotImplementedError

    def commit(self, client: MetadataStore, transaction: Transaction) -> CommitResult:
        results: list[CommitResult] = []
        client.commit(transaction, results.append)
        assert not results, "done never runs inside of the call"
        self.until(lambda: results)
        (result,) = results
        return result

    def put(self, client: MetadataStore, key: str, value: bytes = b"") -> int:
        """Put a key; the revision."""
        result = self.commit(client, Transaction(puts={key: value}))
        assert result.revision is not None, result
        return result.revision

    def read(self, client: MetadataStore, prefix: str = "/") -> Snapshot:
        answers: list[tuple[Snapshot | None, StoreError | None]] = []
        client.read(prefix, lambda snapshot, error: answers.append((snapshot, error)))
        assert not answers, "done never runs inside of the call"
        self.until(lambda: answers)
        ((snapshot, error),) = answers
        assert error is None
        assert snapshot is not None
        return snapshot

    def settle(self, *clients: MetadataStore) -> None:
        """Come to where each client has told all that went before."""
        followers = [Follower(client, self.read(client).revision) for client in clients]
        marker = self.put(clients[0], "/marker")
        self.until(lambda: all(follower.revision >= marker or follower.gaps for follower in followers))
        for follower in followers:
            follower.end()


async def real_env() -> Env:
    """The surroundings of a broker on the running loop."""
    return loop_env()


class RealSite(StoreSite):
    """A site on an asyncio loop, whose stores have threads; ``until`` runs the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.env = self.loop.run_until_complete(real_env())
        self.clients: list[MetadataStore] = []

    def opened(self, client: MetadataStore) -> MetadataStore:
        client.open()
        self.clients.append(client)
        return client

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS

        async def wait() -> None:
            while not condition():
                assert time.monotonic() < deadline, "the condition never held"
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(wait())

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.loop.close()


class Follower:
    """Who follows a store, and what it was told."""

    def __init__(self, client: MetadataStore, revision: int, keys: Mapping[str, Entry] | None = None) -> None:
        self.revision = revision
        self.state = {key: entry.value for key, entry in (keys or {}).items()}
        self.heard: list[Changes] = []
        self.gaps = 0
        self.end = client.follow(revision, self._hear, self._gap)

    def _hear(self, changes: Changes) -> None:
        assert not self.gaps, "nothing comes after a gap"
        assert changes.revision > self.revision, "each change comes once, and in order"
        assert changes.puts or changes.deletes, "nothing is told where nothing has changed"
        self.revision = changes.revision
        self.heard.append(changes)
        for key in changes.deletes:
            self.state.pop(key, None)
        self.state.update(changes.puts)

    def _gap(self) -> None:
        self.gaps += 1


def _knows(follower: Follower, key: str, value: bytes) -> bool:
    return follower.state.get(key) == value


def _has_two(results: list[CommitResult]) -> bool:
    return len(results) == 2


def fail(*_: object) -> None:
    raise RuntimeError("bug")


class StoreContract:
    """What one client of a store may count on."""

    # ------------------------------------------------------------------ transactions

    def test_new_key_has_version_0_and_grows_by_one_with_each_put(self, site: StoreSite) -> None:
        client = site.client()
        for version in range(3):
            site.put(client, "/a", b"%d" % version)
            assert site.read(client, "/a").entries == {"/a": Entry(b"%d" % version, version)}

    def test_revision_grows_with_each_transaction(self, site: StoreSite) -> None:
        client = site.client()
        revisions = [client.revision(), site.put(client, "/a"), site.put(client, "/b"), site.put(client, "/a")]
        assert revisions == sorted(set(revisions))

    @pytest.mark.parametrize(("key", "version"), [("/a", 1), ("/a", ABSENT), ("/b", 0)])
    def test_transaction_with_a_stale_version_writes_nothing(self, site: StoreSite, key: str, version: int) -> None:
        client = site.client()
        site.put(client, "/a", b"1")
        before = site.read(client)
        stale = Transaction({key: version}, {"/c": b""}, deletes=("/a",), ephemerals={"/d": b""})
        assert site.commit(client, stale) == CommitResult(conflict=key)
        assert site.read(client) == before

    def test_transaction_whose_checks_hold_writes_everything(self, site: StoreSite) -> None:
        client = site.client()
        site.commit(client, Transaction(puts={"/a": b"1", "/b": b"1"}))
        result = site.commit(client, Transaction({"/a": 0, "/c": ABSENT}, {"/c": b"2"}, ("/b",), {"/d": b"3"}))
        assert result.revision is not None
        entries = {"/a": Entry(b"1", 0), "/c": Entry(b"2", 0), "/d": Entry(b"3", 0)}
        assert site.read(client).entries == entries

    def test_key_that_was_deleted_starts_again_at_version_0(self, site: StoreSite) -> None:
        client = site.client()
        site.put(client, "/a", b"1")
        site.put(client, "/a", b"2")
        site.commit(client, Transaction(deletes=("/a",)))
        assert site.commit(client, Transaction({"/a": ABSENT}, {"/a": b"3"})).revision is not None
        assert site.read(client).entries == {"/a": Entry(b"3", 0)}

    def test_deleting_a_key_that_is_not_there_does_nothing(self, site: StoreSite) -> None:
        client = site.client()
        assert site.commit(client, Transaction(puts={"/b": b""}, deletes=("/a",))).revision is not None
        assert set(site.read(client).entries) == {"/b"}

    def test_transactions_commit_in_order_and_are_answered_in_that_order(self, site: StoreSite) -> None:
        client = site.client()
        answers: list[tuple[int, CommitResult]] = []

        def commit(number: int) -> None:
            checks = {"/a": number - 1}  # ABSENT for the first: each holds behind the one before it alone
            client.commit(Transaction(checks, {"/a": b"%d" % number}), lambda result: answers.append((number, result)))

        for number in range(20):
            commit(number)
        site.until(lambda: len(answers) == 20)
        assert [number for number, _ in answers] == list(range(20))
        revisions = [result.revision or 0 for _, result in answers]
        assert revisions == sorted(set(revisions))

    def test_commit_and_load_at_the_start_block(self, site: StoreSite) -> None:
        client = site.client()
        result = client.commit_at_start(Transaction({"/a": ABSENT}, {"/a": b"1", "/b": b""}))
        assert result.revision == client.revision()
        assert client.commit_at_start(Transaction({"/a": ABSENT}, {"/a": b"2"})) == CommitResult(conflict="/a")
        assert client.load("/a") == {"/a": Entry(b"1", 0)}

    def test_prefix_is_read_in_order_and_nothing_else(self, site: StoreSite) -> None:
        client = site.client()
        keys = ["/topics/b", "/topics/a", "/topics", "/topics0", "/topics/\U0001f600", "/topics/a/0", "/topics/%2F"]
        site.commit(client, Transaction(puts=dict.fromkeys(keys, b"\x00\xff")))
        below = ["/topics/%2F", "/topics/a", "/topics/a/0", "/topics/b", "/topics/\U0001f600"]
        assert list(site.read(client, "/topics/").entries) == below
        assert client.load("/topics/") == site.read(client, "/topics/").entries

    @pytest.mark.parametrize("count", [1, 5])
    def test_values_of_almost_1_mb_are_kept_as_they_are(self, site: StoreSite, count: int) -> None:
        client = site.client()
        values = {f"/large/{number}": bytes([number]) * 990_000 for number in range(count)}
        assert site.commit(client, Transaction(puts=values)).revision is not None
        assert {key: entry.value for key, entry in site.read(client).entries.items()} == values

    def test_transaction_of_thousands_of_keys_is_one(self, site: StoreSite) -> None:
        client = site.client()
        puts = {f"/partitions/{number}": b'{"leader":1,"isr":[1,2,3]}' * 10 for number in range(4000)}
        assert site.commit(client, Transaction(puts=puts)).revision is not None
        assert len(site.read(client).entries) == 4000
        site.commit(client, Transaction(deletes=tuple(puts)))
        assert not site.read(client).entries

    # ------------------------------------------------------------------ ephemeral keys

    def test_ephemeral_keys_are_checked_as_others_are(self, site: StoreSite) -> None:
        client = site.client()
        first = Transaction({"/live/1": ABSENT}, ephemerals={"/live/1": b"a"})
        assert site.commit(client, first).revision is not None
        assert site.commit(client, first) == CommitResult(conflict="/live/1")
        assert site.commit(client, Transaction({"/live/1": 0}, {"/a": b""})).revision is not None
        assert site.commit(client, Transaction({"/live/1": 1}, {"/b": b""})) == CommitResult(conflict="/live/1")

    def test_ephemeral_keys_go_with_a_close_and_others_stay(self, site: StoreSite) -> None:
        client = site.client()
        client.commit_at_start(Transaction(puts={"/stays": b""}, ephemerals={"/goes": b""}))
        revision = client.revision()
        client.close()
        again = site.client()
        assert set(again.load("/")) == {"/stays"}
        assert again.revision() >= revision


class SharedStoreContract(StoreContract):
    """What several clients of one store may count on besides."""

    # ------------------------------------------------------------------ followers

    def test_follower_is_told_of_every_commit_in_order_and_of_nothing_that_failed(self, site: StoreSite) -> None:
        client = site.client()
        follower = Follower(client, client.revision())
        site.commit(client, Transaction(puts={"/a": b"1", "/b": b""}))
        site.commit(client, Transaction({"/a": 7}, {"/a": b"2"}))
        last = site.commit(client, Transaction(puts={"/c": b"3"}, deletes=("/a",))).revision
        site.until(lambda: follower.revision == last)
        assert follower.state == {"/b": b"", "/c": b"3"}
        follower.end()
        site.put(client, "/d")
        site.settle(client)
        assert follower.revision == last

    def test_snapshot_and_what_follows_it_leave_no_hole(self, site: StoreSite) -> None:
        client = site.client()
        followers: list[Follower] = []

        def read(snapshot: Snapshot | None, error: StoreError | None) -> None:
            assert snapshot is not None
            followers.append(Follower(client, snapshot.revision, snapshot.entries))

        results: list[CommitResult] = []
        for number in range(30):
            client.commit(Transaction(puts={f"/{number % 7}": b"%d" % number}), results.append)
            if number % 3 == 0:
                client.read("/", read)
        site.until(lambda: len(results) == 30 and len(followers) == 10)
        last = results[-1].revision
        site.until(lambda: all(follower.revision == last or follower.gaps for follower in followers))
        state = {key: entry.value for key, entry in site.read(client).entries.items()}
        assert all(follower.state == state for follower in followers if not follower.gaps)

    def test_follower_from_a_revision_that_is_past_is_told_everything_or_of_a_gap(self, site: StoreSite) -> None:
        client = site.client()
        before = client.revision()
        for number in range(5):
            site.put(client, f"/{number}")
        site.commit(client, Transaction(deletes=("/0",)))
        follower = Follower(client, before)
        site.until(lambda: follower.gaps or follower.state == dict.fromkeys(["/1", "/2", "/3", "/4"], b""))
        site.settle(client)
        assert follower.gaps <= 1

    def test_follower_is_told_though_another_one_fails(self, site: StoreSite, caplog: pytest.LogCaptureFixture) -> None:
        client = site.client()
        client.follow(client.revision(), fail, fail)
        follower = Follower(client, client.revision())
        for value in (b"1", b"2"):
            site.put(client, "/a", value)
            site.until(partial(_knows, follower, "/a", value))
        assert "a follower of the metadata store failed" in caplog.text

    def test_nobody_is_called_after_the_close(self, site: StoreSite) -> None:
        client = site.client()
        called: list[object] = []
        client.follow(client.revision(), called.append, fail)
        client.watch_ephemerals("/", called.append)
        client.commit(Transaction(puts={"/a": b""}, ephemerals={"/b": b""}), called.append)
        client.close()
        at_the_close = len(called)
        other = site.client()
        site.put(other, "/c")
        assert set(site.read(other).entries) == {"/a", "/c"}
        assert len(called) == at_the_close

    def test_ephemeral_keys_are_told_now_and_at_each_change_and_not_as_changes(self, site: StoreSite) -> None:
        client = site.client()
        told: list[dict[str, bytes]] = []
        client.commit_at_start(Transaction(puts={"/live": b""}, ephemerals={"/live/1": b"a", "/other": b""}))
        follower = Follower(client, client.revision())
        end = client.watch_ephemerals("/live/", lambda keys: told.append(dict(keys)))
        assert not told
        site.until(lambda: told == [{"/live/1": b"a"}])
        assert set(site.read(client).entries) == {"/live", "/live/1", "/other"}
        site.commit(client, Transaction(ephemerals={"/live/1": b"b"}))
        site.until(lambda: len(told) == 2)
        assert site.read(client, "/live/1").entries == {"/live/1": Entry(b"b", 1)}
        site.commit(client, Transaction(deletes=("/other",)))
        site.commit(client, Transaction({"/live/1": 1}, deletes=("/live/1",)))
        site.until(lambda: len(told) == 3)
        end()
        site.commit(client, Transaction(ephemerals={"/live/1": b"c"}))
        site.settle(client)
        assert told == [{"/live/1": b"a"}, {"/live/1": b"b"}, {}]
        assert follower.state == {"/marker": b""}

    @pytest.mark.parametrize(("count", "size"), [(1, 990_000), (5, 990_000), (4000, 260)])
    def test_transaction_of_large_values_or_of_thousands_of_keys_is_told_as_one(
        self, site: StoreSite, count: int, size: int
    ) -> None:
        client = site.client()
        follower = Follower(client, client.revision())
        puts = {f"/partitions/{number}": bytes([number % 256]) * size for number in range(count)}
        revision = site.commit(client, Transaction(puts=puts)).revision
        site.until(lambda: follower.heard)
        assert follower.heard == [Changes(revision or 0, puts, ())]

    # ------------------------------------------------------------------ several clients

    def test_commits_of_another_are_read_and_told(self, site: StoreSite) -> None:
        one, other = site.client(), site.client()
        follower = Follower(other, other.revision())
        for number in range(10):
            site.put(one, "/a", b"%d" % number)
        revision = site.commit(one, Transaction(puts={"/b": b"2"}, deletes=("/a",))).revision
        assert site.read(other).entries == {"/b": Entry(b"2", 0)}
        site.until(lambda: follower.revision == revision)
        assert follower.state == {"/b": b"2"}

    def test_change_is_told_soon(self, site: StoreSite) -> None:
        one, other = site.client(), site.client()
        follower = Follower(other, other.revision())
        took: list[float] = []
        for number in range(5):
            site.put(one, "/a", b"%d" % number)
            begin = site.now()
            site.until(partial(_knows, follower, "/a", b"%d" % number))
            took.append(site.now() - begin)
        assert min(took) < 0.2

    def test_everybody_is_told_the_same_in_the_same_order(self, site: StoreSite) -> None:
        clients = [site.client() for _ in range(3)]
        start = clients[0].revision()
        followers = [Follower(client, start) for client in clients]
        results: list[CommitResult] = []
        for number in range(60):
            clients[number % 3].commit(Transaction(puts={f"/{number % 4}": b"%d" % number}), results.append)
        site.until(lambda: len(results) == 60)
        last = max(result.revision or 0 for result in results)
        assert len({result.revision for result in results}) == 60
        site.until(lambda: all(follower.revision == last for follower in followers))
        state = {key: entry.value for key, entry in site.read(clients[1]).entries.items()}
        assert [follower.state for follower in followers] == [state] * 3

    def test_of_two_that_compare_and_set_one_wins(self, site: StoreSite) -> None:
        clients = [site.client(), site.client()]
        for version in range(ABSENT, 10):
            results: list[CommitResult] = []
            for number, client in enumerate(clients):
                client.commit(Transaction({"/a": version}, {"/a": b"%d" % number}), results.append)
            site.until(partial(_has_two, results))
            assert sorted(result.conflict or "" for result in results) == ["", "/a"]
            assert all(result.error is None for result in results)
        assert site.read(clients[0]).entries["/a"].version == 10

    def test_late_client_reads_and_follows_what_others_write(self, site: StoreSite) -> None:
        one = site.client()
        for number in range(20):
            site.put(one, f"/{number}", b"%d" % number)
        late = site.client()
        snapshot = site.read(late)
        assert len(snapshot.entries) == 20
        follower = Follower(late, snapshot.revision, snapshot.entries)
        site.commit(one, Transaction(puts={"/new": b""}, deletes=("/0",)))
        site.until(lambda: "/new" in follower.state)
        assert "/0" not in follower.state

    def test_changes_behind_an_old_revision_are_told_from_the_history(self, site: StoreSite) -> None:
        one, other = site.client(), site.client()
        before = other.revision()
        site.commit(one, Transaction(puts={"/a": b"1", "/b": b"2"}))
        site.commit(one, Transaction(deletes=("/a",)))
        follower = Follower(other, before)
        site.until(lambda: follower.state == {"/b": b"2"})
        assert not follower.gaps

    def test_follower_behind_the_history_is_told_of_the_gap_once(self, site: StoreSite) -> None:
        one, other = site.client(), site.client()
        before = other.revision()
        for number in range(10):
            site.put(one, f"/{number}")
        try:
            site.forget_history()
        except NotImplementedError:
            pytest.skip("this store forgets nothing at will")
        follower = Follower(other, before)
        site.until(lambda: follower.gaps)
        site.put(one, "/more")
        site.settle(one, other)
        assert follower.gaps == 1
        snapshot = site.read(other)
        assert {"/0", "/9", "/more"} <= set(snapshot.entries)

    # ------------------------------------------------------------------ sessions

    def test_ephemeral_keys_of_another_are_seen_and_vanish_with_its_close_and_not_before(self, site: StoreSite) -> None:
        one, other = site.client(), site.client()
        told: list[dict[str, bytes]] = []
        other.watch_ephemerals("/live/", lambda keys: told.append(dict(keys)))
        site.until(lambda: told == [{}])
        site.commit(one, Transaction(puts={"/stays": b""}, ephemerals={"/live/1": b"a"}))
        site.until(lambda: told == [{}, {"/live/1": b"a"}])
        site.commit(other, Transaction(ephemerals={"/live/2": b"b"}))
        site.until(lambda: told[-1] == {"/live/1": b"a", "/live/2": b"b"})
        assert site.commit(other, Transaction({"/live/1": ABSENT})).conflict == "/live/1"
        one.close()
        site.until(lambda: told[-1] == {"/live/2": b"b"})
        assert len(told) == 4
        assert set(site.read(other).entries) == {"/stays", "/live/2"}

    def test_ephemeral_keys_vanish_when_the_session_expires_and_their_owner_is_told(self, site: StoreSite) -> None:
        one, other = site.client(), site.client()
        lost: list[str] = []
        one.on_session_lost = lambda: lost.append("one")
        other.on_session_lost = lambda: lost.append("other")
        told: list[dict[str, bytes]] = []
        other.watch_ephemerals("/", lambda keys: told.append(dict(keys)))
        site.commit(one, Transaction(puts={"/stays": b""}, ephemerals={"/live/1": b"a"}))
        site.commit(other, Transaction(ephemerals={"/live/2": b""}))
        both = {"/live/1": b"a", "/live/2": b""}
        site.until(lambda: told and told[-1] == both)
        site.expire(one)
        site.until(lambda: lost and told[-1] == {"/live/2": b""})
        assert set(site.read(other).entries) == {"/stays", "/live/2"}
        # In the new session its owner puts it again; the old one's end takes nothing of the new one away.
        assert site.commit(one, Transaction({"/live/1": ABSENT}, ephemerals={"/live/1": b"a"})).revision is not None
        site.until(lambda: told[-1] == both)
        assert lost == ["one"]

    def test_ephemeral_key_that_was_taken_over_is_the_new_sessions(self, site: StoreSite) -> None:
        one, other = site.client(), site.client()
        site.commit(one, Transaction(ephemerals={"/live/1": b"old"}))
        site.commit(one, Transaction(ephemerals={"/live/1": b"old"}))
        assert site.commit(other, Transaction({"/live/1": 1}, ephemerals={"/live/1": b"new"})).revision is not None
        assert site.read(one).entries == {"/live/1": Entry(b"new", 0)}
        one.close()
        site.settle(other)
        assert site.read(other, "/live/").entries == {"/live/1": Entry(b"new", 0)}

    def test_session_that_is_idle_lasts(self, site: StoreSite) -> None:
        one, other = site.client(), site.client()
        one.on_session_lost = other.on_session_lost = fail
        told: list[dict[str, bytes]] = []
        other.watch_ephemerals("/", lambda keys: told.append(dict(keys)))
        site.commit(one, Transaction(ephemerals={"/live/1": b""}))
        site.until(lambda: told and told[-1])
        seen = len(told)
        site.wait(3 * self.session_timeout_seconds)
        assert len(told) == seen
        assert site.commit(one, Transaction({"/live/1": 0}, {"/a": b""})).revision is not None

    session_timeout_seconds = 1.0

    # ------------------------------------------------------------------ a store that is away

    def test_commit_while_the_store_is_away_is_done_wholly_or_not_at_all_and_following_goes_on(
        self, site: StoreSite
    ) -> None:
        one, other = site.client(), site.client()
        site.commit(one, Transaction(puts={"/a": b"0", "/b": b"0"}))
        snapshot = site.read(other)
        follower = Follower(other, snapshot.revision, snapshot.entries)
        try:
            site.take_away()
        except NotImplementedError:
            pytest.skip("this store cannot be taken away")
        results: list[CommitResult] = []
        one.commit(Transaction({"/a": 0}, {"/a": b"1", "/b": b"1"}), results.append)
        site.wait(0.5)
        assert not any(result.revision or result.conflict for result in results)
        site.bring_back()
        site.until(lambda: results)
        (result,) = results
        assert result.conflict is None
        entries = site.read(one).entries
        written = {"/a": Entry(b"1", 1), "/b": Entry(b"1", 1)}
        assert entries in ([written] if result.revision else [written, snapshot.entries])
        site.put(one, "/after", b"2")
        state = {key: entry.value for key, entry in site.read(one).entries.items()}
        site.until(lambda: follower.state == state)
        assert not follower.gaps

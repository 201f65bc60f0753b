"""The simulated metadata store keeps the port's promises, and breaks those that no store can keep."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.cluster.store.metadata_store import (
    ABSENT,
    Changes,
    CommitResult,
    Entry,
    Snapshot,
    StoreError,
    Transaction,
)
from tests.simulation.processes import World
from tests.simulation.scheduler import Life
from tests.simulation.store import HOST, Ensemble, SimulatedStore


class Brokers:
    """An ensemble, and brokers that have it open."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.scheduler = self.world.scheduler
        self.ensemble = Ensemble(self.world)

    def open(self, host: str) -> SimulatedStore:
        process: Any = SimpleNamespace(host=host)
        process.life = Life(host, process)
        with self.scheduler.within(process.life):
            store = self.ensemble.store()
            store.open()
        return store

    def run(self, milliseconds: int = 100) -> None:
        ended: list[bool] = []
        self.scheduler.after(milliseconds * 1000, None, ended.append, True)
        while not ended:
            self.scheduler.step()

    def commit(self, store: SimulatedStore, transaction: Transaction) -> CommitResult:
        results: list[CommitResult] = []
        store.commit(transaction, results.append)
        assert not results, "done never runs inside of the call"
        self.run(4_000)
        (result,) = results
        return result


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def store(brokers: Brokers) -> SimulatedStore:
    return brokers.open("10.0.1.1")


def fail(*_: object) -> None:
    raise AssertionError("nobody expected this call")


def test_versions_and_revisions_grow(brokers: Brokers, store: SimulatedStore) -> None:
    for version in range(3):
        assert brokers.commit(store, Transaction(puts={"/a": b""})).revision == version + 1
        assert store.load("/") == {"/a": Entry(b"", version)}
    brokers.commit(store, Transaction({"/a": 2}, deletes=("/a",)))
    brokers.commit(store, Transaction({"/a": ABSENT}, {"/a": b"new"}))
    assert store.load("/") == {"/a": Entry(b"new", 0)}
    assert store.revision() == 5


def test_a_stale_version_writes_nothing(brokers: Brokers, store: SimulatedStore) -> None:
    brokers.commit(store, Transaction(puts={"/a": b""}))
    assert brokers.commit(store, Transaction({"/a": 7}, {"/b": b""})) == CommitResult(conflict="/a")
    assert list(store.load("/")) == ["/a"]


def test_transactions_are_applied_and_answered_in_the_order_of_their_calls(brokers: Brokers) -> None:
    store, other = brokers.open("10.0.1.1"), brokers.open("10.0.1.2")
    brokers.ensemble.is_slow = True
    done: list[str] = []
    revisions: dict[str, list[int]] = {"mine": [], "theirs": []}
    for i in range(10):
        for name, asked in (("mine", store), ("theirs", other)):

            def answered(result: CommitResult, name: str = name, i: int = i) -> None:
                done.append(f"{name}{i}")
                revisions[name].append(result.revision or 0)

            asked.commit(Transaction(puts={f"/{name}": b"%d" % i}), answered)
    brokers.run(10_000)
    assert [line for line in done if line.startswith("mine")] == [f"mine{i}" for i in range(10)]
    assert all(found == sorted(found) for found in revisions.values())
    assert sorted(revisions["mine"] + revisions["theirs"]) == list(range(1, 21))


@pytest.mark.parametrize("seed", range(5))
def test_followers_hear_every_change_in_order_whoever_made_it(seed: int) -> None:
    brokers = Brokers(seed)
    stores = [brokers.open(f"10.0.1.{i}") for i in range(3)]
    keys: list[dict[str, bytes]] = [{} for _ in stores]
    revisions: list[list[int]] = [[] for _ in stores]

    def follow(i: int) -> None:
        def on_changes(changes: Changes) -> None:
            revisions[i].append(changes.revision)
            keys[i].update(changes.puts)
            for key in changes.deletes:
                keys[i].pop(key, None)

        stores[i].follow(0, on_changes, fail)

    for i in range(3):
        follow(i)
    random = brokers.world.new_random()
    for i in range(40):
        key = f"/{random.randrange(8)}"
        there = key in brokers.ensemble.entries
        delete = there and random.random() < 0.4
        stores[i % 3].commit(
            Transaction(deletes=(key,)) if delete else Transaction(puts={key: b"%d" % i}), lambda _: None
        )
        brokers.run(3)
    brokers.run(1_000)
    for i in range(3):
        assert keys[i] == {key: entry.value for key, entry in brokers.ensemble.entries.items()}
        assert revisions[i] == sorted(set(revisions[i]))


def test_who_is_kept_uninformed_is_answered_and_hears_the_news_later(brokers: Brokers, store: SimulatedStore) -> None:
    heard: list[Changes] = []
    store.follow(0, heard.append, fail)
    brokers.ensemble.uninformed.add("10.0.1.1")
    store.on_session_lost = fail
    assert brokers.commit(store, Transaction(puts={"/a": b""})).revision == 1
    brokers.run(20_000)
    assert not heard
    brokers.ensemble.uninformed.clear()
    brokers.run()
    assert [changes.revision for changes in heard] == [1]


def test_who_is_behind_what_is_forgotten_hears_of_a_gap_once(brokers: Brokers, store: SimulatedStore) -> None:
    brokers.commit(store, Transaction(puts={"/a": b""}))
    brokers.ensemble.forget_history()
    gaps: list[None] = []
    store.follow(0, fail, lambda: gaps.append(None))
    assert not gaps
    brokers.run()
    brokers.commit(store, Transaction(puts={"/a": b""}))
    assert gaps == [None]


def test_a_snapshot_with_the_changes_behind_it_is_what_there_is(brokers: Brokers, store: SimulatedStore) -> None:
    brokers.commit(store, Transaction(puts={f"/{i}": b"old" for i in range(20)}))
    keys: dict[str, bytes] = {}

    def on_snapshot(snapshot: Snapshot | None, error: StoreError | None) -> None:
        assert snapshot is not None
        assert error is None
        keys.update({key: entry.value for key, entry in snapshot.entries.items()})
        store.follow(snapshot.revision, lambda changes: keys.update(changes.puts), fail)

    store.read("/", on_snapshot)
    for i in range(20):
        store.commit(Transaction(puts={f"/{i}": b"new"}), lambda _: None)
    brokers.run()
    assert keys == {f"/{i}": b"new" for i in range(20)}


def test_ephemeral_keys_are_seen_by_all_and_named_by_no_change(brokers: Brokers, store: SimulatedStore) -> None:
    other = brokers.open("10.0.1.2")
    seen: list[Mapping[str, bytes]] = []
    other.watch_ephemerals("/live/", seen.append)
    other.follow(0, fail, fail)
    assert not seen
    brokers.run()
    brokers.commit(store, Transaction(ephemerals={"/live/1": b"a"}))
    brokers.commit(store, Transaction(ephemerals={"/live/1": b"b"}))
    store.close()
    brokers.run()
    assert seen == [{}, {"/live/1": b"a"}, {"/live/1": b"b"}, {}]


def test_another_session_s_key_is_taken_over_anew(brokers: Brokers, store: SimulatedStore) -> None:
    other = brokers.open("10.0.1.2")
    brokers.commit(store, Transaction(ephemerals={"/live/1": b"a"}))
    brokers.commit(store, Transaction(ephemerals={"/live/1": b"b"}))
    brokers.commit(other, Transaction(ephemerals={"/live/1": b"c"}))
    assert store.load("/") == {"/live/1": Entry(b"c", 0)}
    store.close()
    assert list(other.load("/")) == ["/live/1"]


@pytest.mark.parametrize("how", ["dead", "stopped", "cut off"])
def test_the_session_of_who_is_silent_ends(brokers: Brokers, store: SimulatedStore, how: str) -> None:
    other = brokers.open("10.0.1.2")
    lost: list[str] = []
    store.on_session_lost = lambda: lost.append("mine")
    other.on_session_lost = fail
    brokers.commit(store, Transaction(puts={"/a": b""}, ephemerals={"/live/1": b""}))
    if how == "dead":
        brokers.scheduler.drop(store.life)
    elif how == "stopped":
        brokers.scheduler.pause(store.life)
    else:
        brokers.world.network.cut("10.0.1.1", HOST)
    brokers.run(5_000)
    assert list(other.load("/")) == ["/a", "/live/1"]
    brokers.run(6_000)
    assert list(other.load("/")) == ["/a"]
    assert not lost
    if how == "stopped":
        brokers.scheduler.resume(store.life)
    brokers.world.network.heal_all()
    brokers.run(5_000)
    assert lost == ([] if how == "dead" else ["mine"])
    if how != "dead":
        assert brokers.commit(store, Transaction(ephemerals={"/live/1": b""})).revision
        brokers.run(20_000)
        assert list(other.load("/live")) == ["/live/1"]


def test_what_a_stopped_process_had_sent_is_applied_all_the_same(brokers: Brokers, store: SimulatedStore) -> None:
    results: list[CommitResult] = []
    store.commit(Transaction(puts={"/a": b""}), results.append)
    brokers.scheduler.pause(store.life)
    brokers.run(1_000)
    assert "/a" in brokers.ensemble.entries
    assert not results
    brokers.scheduler.resume(store.life)
    brokers.run()
    assert results == [CommitResult(revision=1)]


def test_no_session_ends_while_the_store_is_away_and_commits_fail(brokers: Brokers, store: SimulatedStore) -> None:
    store.on_session_lost = fail
    brokers.commit(store, Transaction(ephemerals={"/live/1": b""}))
    heard: list[Changes] = []
    store.follow(1, heard.append, fail)
    brokers.ensemble.is_away = True
    assert brokers.commit(store, Transaction(puts={"/a": b""})).error is not None
    with pytest.raises(StoreError):
        store.load("/")
    brokers.run(60_000)
    brokers.ensemble.is_away = False
    assert brokers.commit(store, Transaction(puts={"/b": b""})).revision == 2
    brokers.run(20_000)
    assert list(store.load("/")) == ["/b", "/live/1"]
    assert [changes.puts for changes in heard] == [{"/b": b""}]


def test_an_unknown_outcome_is_a_failure_that_may_have_happened(brokers: Brokers, store: SimulatedStore) -> None:
    brokers.ensemble.silent_share = 1.0
    errors = [brokers.commit(store, Transaction(puts={f"/{i}": b""})).error for i in range(20)]
    assert all(error is not None for error in errors)
    assert 0 < len(brokers.ensemble.entries) < 20


def test_close_answers_what_is_on_its_way_and_nothing_is_called_behind_it(
    brokers: Brokers, store: SimulatedStore
) -> None:
    results: list[CommitResult] = []
    store.follow(0, fail, fail)
    store.commit(Transaction(puts={"/a": b""}), results.append)
    store.commit(Transaction({"/a": 7}, {"/a": b""}), results.append)
    store.close()
    assert results == [CommitResult(revision=1), CommitResult(conflict="/a")]
    brokers.run(1_000)
    assert len(results) == 2

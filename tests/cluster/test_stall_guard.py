"""A broker that stood still doubts itself: clients wait until it knows what it has missed, and never for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.failure_detection.stall_guard import StallGuard
from pybroker.cluster.image.cluster_image import ClusterImage
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.store.metadata_follower import MetadataFollower
from pybroker.cluster.store.metadata_store import Snapshot, StoreError, Transaction
from pybroker.cluster_limits import LIVENESS_INTERVAL_MS, SUSPICION_HOLD_MS

from .memory_store import MemoryStore, SharedMemory

BOUND_MS = 400


class RequestGate:
    """Says whether it is open."""

    def __init__(self, world: VirtualWorld) -> None:
        self.on_shut: Callable[[], None] = lambda: None
        self._world = world
        self._until_ms = 0

    def is_open(self) -> bool:
        return self._world.clock.now_ms() <= self._until_ms

    def open_for(self, duration_ms: int) -> None:
        self._until_ms = self._world.clock.now_ms() + duration_ms

    def shut(self) -> None:
        self._until_ms = 0

    def leave_open(self) -> None:
        self._until_ms = 1 << 60


class Stored(MemoryStore):
    """Answers a question when it is told to."""

    def __init__(self, shared: SharedMemory, world: VirtualWorld) -> None:
        super().__init__(shared, world.env)
        self.asked: list[Callable[[Snapshot | None, StoreError | None], None]] = []

    def read(self, prefix: str, done: Callable[[Snapshot | None, StoreError | None], None]) -> None:
        self.asked.append(done)

    def answer(self) -> None:
        super().read("/", self.asked.pop())


class Doubting:
    def __init__(self) -> None:
        self.world = VirtualWorld()
        self.gate = RequestGate(self.world)
        env, shared = self.world.env, SharedMemory()
        self.other = MemoryStore(shared, env)
        self.store = Stored(shared, self.world)
        self.follower = MetadataFollower(env, self.store, MetadataCache(), ClusterImage())
        self.stall_guard = StallGuard(env, self.store, self.follower, self.gate, BOUND_MS)

    def pass_ms(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 20):
            self.world.advance(20)


@pytest.fixture
def doubting() -> Iterator[Doubting]:
    made = Doubting()
    yield made
    made.stall_guard.close()


def test_a_broker_that_runs_asks_for_nothing_and_lets_everybody_in(doubting: Doubting) -> None:
    for _ in range(100):
        doubting.pass_ms(100)
        assert doubting.gate.is_open()
    assert doubting.store.asked == []


def test_clients_wait_until_the_image_is_as_new_as_the_store_was_at_the_awakening(doubting: Doubting) -> None:
    doubting.follower.start()
    doubting.world.clock.pass_ms(5_000)  # nothing runs
    assert not doubting.gate.is_open()
    doubting.world.run()
    doubting.other.commit(Transaction({}, {"/features": b"{}"}), lambda result: None)
    doubting.store.answer()
    assert not doubting.gate.is_open(), "the change is not here yet"
    doubting.pass_ms(LIVENESS_INTERVAL_MS)
    assert doubting.gate.is_open()
    assert doubting.store.asked == []


def test_a_client_that_comes_first_begins_the_doubt(doubting: Doubting) -> None:
    doubting.world.clock.pass_ms(5_000)
    doubting.gate.on_shut()
    doubting.gate.on_shut()
    assert len(doubting.store.asked) == 1, "one question at a time"
    doubting.store.answer()
    doubting.pass_ms(LIVENESS_INTERVAL_MS)
    assert doubting.gate.is_open()


@pytest.mark.parametrize("fails", [False, True])
def test_nobody_waits_for_a_store_for_long(doubting: Doubting, fails: bool) -> None:
    doubting.world.leap(5_000)
    if fails:
        doubting.store.asked[0](None, StoreError("it is away"))
    doubting.pass_ms(SUSPICION_HOLD_MS - 40)
    assert not doubting.gate.is_open()
    doubting.pass_ms(60)
    assert doubting.gate.is_open()


def test_an_answer_that_comes_too_late_ends_no_later_doubt(doubting: Doubting) -> None:
    doubting.world.leap(5_000)
    late = doubting.store.asked[0]
    doubting.pass_ms(SUSPICION_HOLD_MS + 40)
    doubting.world.leap(5_000)
    late(Snapshot({}, 0), None)
    assert not doubting.gate.is_open()

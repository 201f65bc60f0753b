"""The purgatory of parked operations, in virtual time."""

from __future__ import annotations

import weakref
from random import Random

import pytest
from harness.virtual_world import VirtualWorld
from hypothesis import given
from hypothesis import strategies as st

from pybroker.replication.purgatory import PURGATORY_TICK_MS, Purgatory


class Waiting:
    def __init__(self, world: VirtualWorld) -> None:
        self.world = world
        self.expired_at: list[int] = []

    def expire(self) -> None:
        self.expired_at.append(self.world.clock.monotonic_ms())


def make_purgatory() -> tuple[VirtualWorld, Purgatory]:
    world = VirtualWorld(has_threads=False)
    return world, Purgatory(world.env)


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=40), st.lists(st.integers(1, 300), max_size=30))
def test_every_operation_expires_once_after_its_deadline_within_a_tick(waits: list[int], steps: list[int]) -> None:
    world, purgatory = make_purgatory()
    operations = []
    for wait_ms in waits:
        operations.append((world.clock.monotonic_ms() + wait_ms, Waiting(world)))
        purgatory.add(operations[-1][1], wait_ms)
        if steps:
            world.advance(steps.pop())
    world.advance(3_000)
    for deadline_ms, operation in operations:
        assert len(operation.expired_at) == 1
        assert deadline_ms <= operation.expired_at[0] <= deadline_ms + PURGATORY_TICK_MS + 1


def test_purgatory_keeps_one_timer_for_any_number_of_operations() -> None:
    world, purgatory = make_purgatory()
    for wait_ms in range(0, 5_000, 7):
        purgatory.add(Waiting(world), wait_ms)
    assert len(world.timers.pending) == 1


def test_earlier_deadline_is_kept_when_a_later_one_was_there_first() -> None:
    world, purgatory = make_purgatory()
    late, early = Waiting(world), Waiting(world)
    purgatory.add(late, 1_000)
    purgatory.add(early, 20)
    world.advance(30)
    assert early.expired_at
    assert not late.expired_at


def test_closed_purgatory_expires_nothing() -> None:
    world, purgatory = make_purgatory()
    operation = Waiting(world)
    purgatory.add(operation, 10)
    purgatory.close()
    world.advance(100)
    assert not operation.expired_at
    assert not world.timers.pending


def test_idle_purgatory_has_no_timer() -> None:
    world, purgatory = make_purgatory()
    purgatory.add(Waiting(world), 10)
    world.advance(100)
    assert not world.timers.pending


def test_removed_operation_neither_expires_nor_stays_in_memory() -> None:
    world, purgatory = make_purgatory()
    finished, waiting = Waiting(world), Waiting(world)
    tick = purgatory.add(finished, 600_000)
    assert purgatory.add(waiting, 600_000) == tick
    purgatory.remove(finished, tick)
    remaining = weakref.ref(finished)
    del finished
    assert remaining() is None
    world.advance(700_000)
    assert len(waiting.expired_at) == 1
    purgatory.remove(waiting, tick)  # too late, and no harm


def test_deadlines_that_clients_choose_leave_nothing_when_their_operations_are_done() -> None:
    world, purgatory = make_purgatory()
    operation, last, chance = Waiting(world), Waiting(world), Random(3)
    for _ in range(20_000):
        purgatory.remove(operation, purgatory.add(operation, chance.randrange(1, 1 << 31)))
    assert len(purgatory._slots) + len(purgatory._ticks) < 4_000
    purgatory.add(last, 1 << 30)
    world.advance(1 << 31)
    assert (operation.expired_at, len(last.expired_at)) == ([], 1)


def test_operation_that_fails_as_it_expires_keeps_nobody_else_waiting(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Waiting):
        def expire(self) -> None:
            super().expire()
            raise RuntimeError("one operation among many")

    world, purgatory = make_purgatory()
    operations = [Failing(world), Waiting(world), Failing(world), Waiting(world)]
    for operation in operations:
        purgatory.add(operation, 10)
    world.advance(100)
    assert [len(operation.expired_at) for operation in operations] == [1] * 4
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2

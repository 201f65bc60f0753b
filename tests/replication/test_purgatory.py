"""The purgatory of parked operations, in virtual time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker import limits
from pybroker.env import Env
from pybroker.replication.purgatory import Purgatory


class Timer:
    def __init__(self, when_ms: float, callback: Callable[..., Any]) -> None:
        self.when_ms = when_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualTime:
    """Clock and timers in one; ``advance`` runs what comes due."""

    def __init__(self) -> None:
        self.ms = 10_000.0
        self.timers: list[Timer] = []

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic_ms(self) -> int:
        return int(self.ms)

    def monotonic_ns(self) -> int:
        return int(self.ms) * 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer(self.ms + delay_ms, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Timer:
        return self.call_later(0, callback, *args)

    def live(self) -> list[Timer]:
        self.timers = [timer for timer in self.timers if not timer.cancelled]
        return self.timers

    def advance(self, ms: float) -> None:
        end_ms = self.ms + ms
        while due := [timer for timer in self.live() if timer.when_ms <= end_ms]:
            timer = min(due, key=lambda timer: timer.when_ms)
            self.timers.remove(timer)
            self.ms = max(self.ms, timer.when_ms)
            timer.callback()
        self.ms = end_ms


class Waiting:
    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.expired_at: list[int] = []

    def expire(self) -> None:
        self.expired_at.append(self.time.monotonic_ms())


def make_purgatory() -> tuple[VirtualTime, Purgatory]:
    time = VirtualTime()

    def no_executor(name: str, _niceness: int) -> Any:
        raise AssertionError("the purgatory needs no thread")

    return time, Purgatory(Env(time, time, no_executor, lambda *args: None, Random(0)))


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=40), st.lists(st.integers(1, 300), max_size=30))
def test_every_operation_expires_once_after_its_deadline_within_a_tick(waits: list[int], steps: list[int]) -> None:
    time, purgatory = make_purgatory()
    operations = []
    for wait_ms in waits:
        operations.append((time.monotonic_ms() + wait_ms, Waiting(time)))
        purgatory.add(operations[-1][1], wait_ms)
        if steps:
            time.advance(steps.pop())
    time.advance(3_000)
    for deadline_ms, operation in operations:
        assert len(operation.expired_at) == 1
        assert deadline_ms <= operation.expired_at[0] <= deadline_ms + limits.PURGATORY_TICK_MS + 1


def test_purgatory_keeps_one_timer_for_any_number_of_operations() -> None:
    time, purgatory = make_purgatory()
    for wait_ms in range(0, 5_000, 7):
        purgatory.add(Waiting(time), wait_ms)
    assert len(time.live()) == 1


def test_earlier_deadline_is_kept_when_a_later_one_was_there_first() -> None:
    time, purgatory = make_purgatory()
    late, early = Waiting(time), Waiting(time)
    purgatory.add(late, 1_000)
    purgatory.add(early, 20)
    time.advance(30)
    assert early.expired_at
    assert not late.expired_at


def test_closed_purgatory_expires_nothing() -> None:
    time, purgatory = make_purgatory()
    operation = Waiting(time)
    purgatory.add(operation, 10)
    purgatory.close()
    time.advance(100)
    assert not operation.expired_at
    assert not time.live()


def test_idle_purgatory_has_no_timer() -> None:
    time, purgatory = make_purgatory()
    purgatory.add(Waiting(time), 10)
    time.advance(100)
    assert not time.live()


def test_removed_operation_neither_expires_nor_stays_in_memory() -> None:
    time, purgatory = make_purgatory()
    finished, waiting = Waiting(time), Waiting(time)
    tick = purgatory.add(finished, 600_000)
    assert purgatory.add(waiting, 600_000) == tick
    purgatory.remove(finished, tick)
    remaining = weakref.ref(finished)
    del finished
    assert remaining() is None
    time.advance(700_000)
    assert len(waiting.expired_at) == 1
    purgatory.remove(waiting, tick)  # too late, and no harm


def test_deadlines_that_clients_choose_leave_nothing_when_their_operations_are_done() -> None:
    time, purgatory = make_purgatory()
    operation, last, chance = Waiting(time), Waiting(time), Random(3)
    for _ in range(20_000):
        purgatory.remove(operation, purgatory.add(operation, chance.randrange(1, 1 << 31)))
    assert len(purgatory._slots) + len(purgatory._ticks) < 4_000
    purgatory.add(last, 1 << 30)
    time.advance(1 << 31)
    assert (operation.expired_at, len(last.expired_at)) == ([], 1)


def test_operation_that_fails_as_it_expires_keeps_nobody_else_waiting(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Waiting):
        def expire(self) -> None:
            super().expire()
            raise RuntimeError("one operation among many")

    time, purgatory = make_purgatory()
    operations = [Failing(time), Waiting(time), Failing(time), Waiting(time)]
    for operation in operations:
        purgatory.add(operation, 10)
    time.advance(100)
    assert [len(operation.expired_at) for operation in operations] == [1] * 4
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2

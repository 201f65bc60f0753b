"""The wheel of parked operations, in virtual time."""

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
from pybroker.replication.purgatory import Wheel


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


def make_wheel() -> tuple[VirtualTime, Wheel]:
    time = VirtualTime()

    def no_executor(name: str, _niceness: int) -> Any:
        raise AssertionError("the wheel needs no thread")

    return time, Wheel(Env(time, time, no_executor, lambda *args: None, Random(0)))


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=40), st.lists(st.integers(1, 300), max_size=30))
def test_every_operation_expires_once_after_its_deadline_within_a_tick(waits: list[int], steps: list[int]) -> None:
    time, wheel = make_wheel()
    operations = []
    for wait_ms in waits:
        operations.append((time.monotonic_ms() + wait_ms, Waiting(time)))
        wheel.add(operations[-1][1], wait_ms)
        if steps:
            time.advance(steps.pop())
    time.advance(3_000)
    for deadline_ms, operation in operations:
        assert len(operation.expired_at) == 1
        assert deadline_ms <= operation.expired_at[0] <= deadline_ms + limits.PURGATORY_TICK_MS + 1


def test_wheel_keeps_one_timer_for_any_number_of_operations() -> None:
    time, wheel = make_wheel()
    for wait_ms in range(0, 5_000, 7):
        wheel.add(Waiting(time), wait_ms)
    assert len(time.live()) == 1


def test_earlier_deadline_is_kept_when_a_later_one_was_there_first() -> None:
    time, wheel = make_wheel()
    late, early = Waiting(time), Waiting(time)
    wheel.add(late, 1_000)
    wheel.add(early, 20)
    time.advance(30)
    assert early.expired_at
    assert not late.expired_at


def test_closed_wheel_expires_nothing() -> None:
    time, wheel = make_wheel()
    operation = Waiting(time)
    wheel.add(operation, 10)
    wheel.close()
    time.advance(100)
    assert not operation.expired_at
    assert not time.live()


def test_idle_wheel_has_no_timer() -> None:
    time, wheel = make_wheel()
    wheel.add(Waiting(time), 10)
    time.advance(100)
    assert not time.live()


def test_removed_operation_neither_expires_nor_stays_in_memory() -> None:
    time, wheel = make_wheel()
    finished, waiting = Waiting(time), Waiting(time)
    tick = wheel.add(finished, 600_000)
    assert wheel.add(waiting, 600_000) == tick
    wheel.remove(finished, tick)
    remaining = weakref.ref(finished)
    del finished
    assert remaining() is None
    time.advance(700_000)
    assert len(waiting.expired_at) == 1
    wheel.remove(waiting, tick)  # too late, and no harm


def test_operation_that_fails_as_it_expires_keeps_nobody_else_waiting(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Waiting):
        def expire(self) -> None:
            super().expire()
            raise RuntimeError("one operation among many")

    time, wheel = make_wheel()
    operations = [Failing(time), Waiting(time), Failing(time), Waiting(time)]
    for operation in operations:
        wheel.add(operation, 10)
    time.advance(100)
    assert [len(operation.expired_at) for operation in operations] == [1] * 4
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2

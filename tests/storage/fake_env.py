"""An ``Env`` for tests of storage: a clock that is set by hand, timers in virtual time, executors that run when told.

``FakeExecutor`` runs jobs and their completions in ``run()``; nothing happens behind a test's back, so every
interleaving of the loop with the worker threads can be written down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from pybroker.env import Env
from pybroker.net.jobs import Job

AT_ONCE_NS = -1  # a portion ends at the next place to stop at
LONG_TIME_MS = 1_800_000  # from here on ``FakeWorld.advance`` leaps
LEAPS_MAX = 4_096


class FakeClock:
    """Both clocks show ``now``."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def monotonic_ns(self) -> int:
        return self.now * 1_000_000


class FakeTimer:
    """A scheduled callback."""

    def __init__(self, due_ms: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeTimers:
    """Timers that run in ``FakeWorld.advance``."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.pending: list[FakeTimer] = []

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> FakeTimer:
        timer = FakeTimer(self._clock.now + delay_ms, callback, args)
        self.pending.append(timer)
        return timer

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> FakeTimer:
        return self.call_later(0, callback, *args)


class FakeExecutor:
    """An executor whose jobs run when the test says so; of work in portions each yield ends one."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.finished: deque[Job] = deque()
        self.closed = False
        self.portions = 0

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> Job:
        assert not self.closed
        job = Job(work, done)
        self.jobs.append(job)
        return job

    def work(self) -> None:
        """Let a job have its portion, as its thread would; its completion waits for the loop (``deliver``)."""
        self.portions += 1
        job = self.jobs.popleft()
        if job.go_on(lambda: 0, AT_ONCE_NS, self.closed):
            self.finished.append(job)
        else:
            self.jobs.append(job)

    def deliver(self) -> None:
        """Run the completions of finished jobs, as the loop would."""
        while self.finished:
            self.finished.popleft().complete()

    def run(self) -> bool:
        """Run everything; whether there was anything to run."""
        any_job = bool(self.jobs or self.finished)
        while self.jobs or self.finished:
            if self.jobs:
                self.work()
            self.deliver()
        return any_job

    def close(self) -> None:
        self.closed = True
        self.run()


class FakeWorld:
    """The environment with its parts within reach."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.executors: dict[str, FakeExecutor] = {}
        self.env = Env(
            clock=self.clock,
            timers=self.timers,
            executor=self._executor,
            call_threadsafe=self._call_threadsafe,
            random=Random(seed),
        )

    def _call_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        self.timers.call_soon(callback, *args)

    def _executor(self, name: str, _niceness: int) -> FakeExecutor:
        self.executors[name] = FakeExecutor()
        return self.executors[name]

    def executor(self, role: str) -> FakeExecutor:
        """The executor of the (only) log directory with a role: writer, reader, flusher."""
        return next(executor for name, executor in self.executors.items() if f"-{role}-" in name)

    def run(self) -> None:
        """Run all executors until none has anything left."""
        while [executor for executor in list(self.executors.values()) if executor.run()]:
            pass

    def advance(self, delay_ms: int) -> None:
        """Let time pass, running what falls due in order.

        A long time passes in few leaps, so that callbacks are late by a small part of it, as on a busy machine: in a
        day of virtual time what a broker does every 100 ms would fall due 864,000 times.
        """
        end = self.clock.now + delay_ms
        leap_ms = delay_ms // LEAPS_MAX if delay_ms >= LONG_TIME_MS else 0
        while (timer := self._next()) is not None and timer.due_ms <= end:
            self.clock.now = min(end, max(self.clock.now, int(timer.due_ms) + leap_ms))
            while (timer := self._next()) is not None and int(timer.due_ms) <= self.clock.now:
                self.step()
                self.run()
        self.clock.now = end

    def step(self) -> None:
        """Run the one callback that falls due next."""
        timer = self._next()
        assert timer is not None
        self.timers.pending.remove(timer)
        self.clock.now = max(self.clock.now, int(timer.due_ms))
        timer.callback(*timer.args)

    def _next(self) -> FakeTimer | None:
        due = (timer for timer in self.timers.pending if not timer.cancelled)
        return min(due, key=lambda each: each.due_ms, default=None)

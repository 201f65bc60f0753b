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


class FakeClock:
    """Both clocks show ``now``."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


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
    """An executor whose jobs run when the test says so."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()
        self.finished: deque[Callable[[], None]] = deque()
        self.closed = False

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        assert not self.closed
        self.jobs.append((work, done))

    def work(self) -> None:
        """Run one job, as its thread would; its completion waits for the loop (``deliver``)."""
        job, done = self.jobs.popleft()
        try:
            result = job()
        except BaseException as error:
            failure = error
            self.finished.append(lambda: done(None, failure))
        else:
            self.finished.append(lambda: done(result, None))

    def deliver(self) -> None:
        """Run the completions of finished jobs, as the loop would."""
        while self.finished:
            self.finished.popleft()()

    def run(self) -> bool:
        """Run everything; whether there was anything to run."""
        any_job = bool(self.jobs or self.finished)
        while self.jobs or self.finished:
            if self.jobs:
                self.work()
            self.deliver()
        return any_job

    def close(self) -> None:
        self.run()
        self.closed = True


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
        """Let time pass, running what falls due in order."""
        end = self.clock.now + delay_ms
        while due := [timer for timer in self.timers.pending if timer.due_ms <= end and not timer.cancelled]:
            timer = min(due, key=lambda candidate: candidate.due_ms)
            self.timers.pending.remove(timer)
            self.clock.now = max(self.clock.now, int(timer.due_ms))
            timer.callback(*timer.args)
            self.run()
        self.clock.now = end

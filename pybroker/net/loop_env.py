"""The ports of ``pybroker.env`` on an asyncio loop.

Owns: the loop's clock, its timers, the worker threads that the layers below ask for, and how long a coroutine waits
(``pause``, ``within``).  Does not own the loop.  Works on the standard loops and on uvloop alike.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from random import SystemRandom
from typing import Any, TypeVar

from pybroker.env import Cancellable, Clock, Env, Timers
from pybroker.net.thread_job import Job

# A portion of a thread's work, after which others that wait for the thread have their turn.  A change of turns costs a
# microsecond, and those who wait notice no more than a slow read of a disk.
WORK_PORTION_NS = 2_000_000

T = TypeVar("T")

log = logging.getLogger(__name__)


class LoopClock:
    """Wall and monotonic time of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    # The system's function itself: what keeps it pays for no call in between.
    monotonic_ns = staticmethod(time.monotonic_ns)


class LoopTimers:
    """One-shot timers of an asyncio loop, in milliseconds."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> Cancellable:
        return self._loop.call_later(delay_ms / 1000, callback, *args)

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Cancellable:
        return self._loop.call_soon(callback, *args)


class ThreadExecutor:
    """One worker thread; completions are handed to the loop in batches, one wake-up for many.

    The thread is started by the first job, so that a broker that never needs it never has it.  Work in portions goes
    behind all that waits after each of them.
    """

    def __init__(self, name: str, niceness: int, call_threadsafe: Callable[..., None], clock: Clock) -> None:
        self._name = name
        self._niceness = niceness
        self._now_ns = clock.monotonic_ns
        self._call_threadsafe = call_threadsafe
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._finished: deque[Job] = deque()
        self._wake_pending = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(
        self,
        work: Callable[[], T | Generator[object, None, T]],
        done: Callable[[T | None, BaseException | None], None],
    ) -> Job:
        """See ``pybroker.env.Executor.submit``; called on the loop only."""
        assert not self._closed, f"executor {self._name} is closed"
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        job = Job(work, done)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """Finish what is queued and end the thread; completions are delivered before this returns."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        self._deliver()

    def _run(self) -> None:
        if self._niceness:
            give_way(self._niceness)
        jobs = self._jobs
        while (job := jobs.get()) is not None:
            self._go_on(job)
            del job
        while not jobs.empty():  # what had begun and was put behind the end
            if (job := jobs.get()) is not None:
                self._go_on(job)

    def _go_on(self, job: Job) -> None:
        """Let a job have its portion, and go behind the others if that was not all."""
        now_ns = self._now_ns
        if job.go_on(now_ns, now_ns() + WORK_PORTION_NS, self._closed):
            self._finish(job)
        else:
            self._jobs.put(job)

    def _finish(self, job: Job) -> None:
        with self._lock:
            self._finished.append(job)
            if self._wake_pending:
                return
            self._wake_pending = True
        with suppress(RuntimeError):  # the loop is closing: close() delivers what is left
            self._call_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            self._wake_pending = False
        while True:
            try:
                job = self._finished.popleft()
            except IndexError:
                return
            try:
                job.complete()
            except Exception:  # nobody is left to tell, and those behind it wait for theirs
                log.exception("a completion of %s failed", self._name)


def give_way(niceness: int) -> None:
    """Make the calling thread nicer than the one that started it, where threads have a niceness of their own."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + niceness)


def loop_env() -> Env:
    """The ``Env`` of a broker on the running loop."""
    loop = asyncio.get_running_loop()

    def call_threadsafe(callback: Callable[..., Any], *args: Any) -> None:
        loop.call_soon_threadsafe(callback, *args)

    clock = LoopClock()
    return Env(
        clock=clock,
        timers=LoopTimers(loop),
        executor=lambda name, niceness: ThreadExecutor(name, niceness, call_threadsafe, clock),
        call_threadsafe=call_threadsafe,
        random=SystemRandom(),
    )


async def outcome_of(begin: Callable[[Callable[[T], None]], None]) -> T:
    """What ``begin(done)`` calls ``done`` with."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(value: T) -> None:
        if not future.done():
            future.set_result(value)

    begin(done)
    return await future


async def pause(timers: Timers, delay_ms: float) -> None:
    """Let so many milliseconds pass."""

    def begin(done: Callable[[None], None]) -> None:
        timers.call_later(delay_ms, done, None)

    await outcome_of(begin)


async def within(timeout_ms: int, awaited: Awaitable[T]) -> T:
    """What is awaited, if it comes in so many milliseconds of the loop's time; else it is cancelled: TimeoutError."""
    return await asyncio.wait_for(awaited, timeout_ms / 1_000)

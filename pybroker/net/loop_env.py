"""The ports of ``pybroker.env`` on an asyncio loop.

Owns: the loop's clock, its timers, and the worker threads that the layers below ask for.
Does not own the loop.  Works on the standard loops and on uvloop alike.
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
from collections.abc import Callable
from contextlib import suppress
from random import SystemRandom
from typing import Any, TypeVar

from pybroker.env import Cancellable, Env

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]

log = logging.getLogger(__name__)


class LoopClock:
    """Wall and monotonic time of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


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

    The thread is started by the first job, so that a broker that never needs it never has it.
    """

    def __init__(self, name: str, niceness: int, call_threadsafe: Callable[..., None]) -> None:
        self._name = name
        self._niceness = niceness
        self._call_threadsafe = call_threadsafe
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._finished: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._wake_pending = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """See ``pybroker.env.Executor.submit``; called on the loop only."""
        assert not self._closed, f"executor {self._name} is closed"
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((work, done))

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
        while (job := self._jobs.get()) is not None:
            work, done = job
            try:
                outcome: tuple[Done, Any, BaseException | None] = (done, work(), None)
            except BaseException as error:  # handed to the submitter, who knows what it means
                outcome = (done, None, error)
            del job, work, done
            self._finish(outcome)
            del outcome

    def _finish(self, outcome: tuple[Done, Any, BaseException | None]) -> None:
        with self._lock:
            self._finished.append(outcome)
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
                done, result, error = self._finished.popleft()
            except IndexError:
                return
            try:
                done(result, error)
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

    return Env(
        clock=LoopClock(),
        timers=LoopTimers(loop),
        executor=lambda name, niceness: ThreadExecutor(name, niceness, call_threadsafe),
        call_threadsafe=call_threadsafe,
        random=SystemRandom(),
    )

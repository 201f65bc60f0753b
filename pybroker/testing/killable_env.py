"""An ``Env`` that ends, or stands still, with the process that a broker in a test stands for.

Owns: the switch. Once it is dead, no timer and no completion of that broker runs any more, and its threads begin no
job. As after ``kill -9``, what a thread is in the middle of may or may not have been done. While it stands still, its
threads begin no job. Does not own the loop (``cluster_node``).

There is no counterpart in Kafka, whose tests kill processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from pybroker.env import Cancellable, Env, Executor, Timers, WorkGivenUp

if TYPE_CHECKING:
    from pybroker.server import BrokerServer

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]


class ProcessState:
    """Whether a broker lives; ``wait`` returns once it does not stand still."""

    def __init__(self) -> None:
        self.is_dead = False
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._is_abandoned = False
        self._executors: list[Executor] = []

    def stand_still(self) -> None:
        """Let no thread begin anything."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """Let all go on that waited."""
        self._goes_on.set()

    def die(self) -> None:
        """Nothing of the broker's begins any more; who stood still finds that out."""
        self.is_dead = True
        self._goes_on.set()

    def wait(self) -> None:
        """On any thread."""
        self._goes_on.wait()

    def kill(self, server: BrokerServer) -> None:
        """End a broker as the end of its process would; on its loop."""
        self.die()
        if not self._is_abandoned:
            self._is_abandoned = True
            server.abandon(self._end_threads)

    async def wait_ended(self, server: BrokerServer) -> None:
        """Until nothing is left of a broker that is dead."""
        self.kill(server)
        await server.wait_closed()

    def _end_threads(self) -> None:
        for executor in self._executors:
            executor.close()

    def env(self, living: Env) -> Env:
        """``living`` for as long as it lives."""

        def executor(name: str, niceness: int) -> Executor:
            made = _KillableExecutor(self, living.executor(name, niceness))
            self._executors.append(made)
            return made

        def call_threadsafe(callback: Callable[..., Any], *args: Any) -> None:
            living.call_threadsafe(self.unless_dead, callback, *args)

        return Env(living.clock, _KillableTimers(self, living.timers), executor, call_threadsafe, living.random)

    def unless_dead(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run a callback, on the loop."""
        if not self.is_dead:
            callback(*args)


class _KillableTimers:
    """``Timers`` that ring for the living."""

    def __init__(self, process_state: ProcessState, timers: Timers) -> None:
        self._process_state = process_state
        self._timers = timers

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> Cancellable:
        return self._timers.call_later(delay_ms, self._process_state.unless_dead, callback, *args)

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Cancellable:
        return self._timers.call_soon(self._process_state.unless_dead, callback, *args)


class _KillableExecutor:
    """``Executor`` that works for the living."""

    def __init__(self, process_state: ProcessState, executor: Executor) -> None:
        self._process_state = process_state
        self._executor = executor

    def submit(self, work: Callable[[], T | Generator[object, None, T]], done: Done) -> Cancellable:
        def begin() -> T | Generator[object, None, T]:
            self._process_state.wait()
            if self._process_state.is_dead:
                raise WorkGivenUp
            return work()

        return self._executor.submit(begin, lambda result, error: self._process_state.unless_dead(done, result, error))

    def close(self) -> None:
        self._executor.close()

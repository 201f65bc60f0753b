"""Virtual time and the one queue of everything that happens: an asyncio loop whose order a seed decides.

Owns: the clock, the events that are due, which of them is next, and the trace.  Owns no meaning of an event.

Invariants: one event runs at a time; what ``call_soon`` brings runs in order of arrival, as on every asyncio loop, but
something that is due from outside (a packet, a worker thread's completion, a timer) may come between; two runs of one
seed take the same steps.

Counterparts: FoundationDB's Sim2, TigerBeetle's TimeSim, Kafka's RaftEventSimulationTest.EventScheduler.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from heapq import heapify, heappop, heappush
from inspect import CORO_CREATED, getcoroutinestate
from random import Random
from types import CoroutineType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.processes import Process

# Something from outside that is due within this time of now may run before what waits for its turn on the loop.
OVERTAKING_US = 100
TIMER_LATENESS_US_MAX = 1_000  # a loop's timers fire late, never early
START_MS = 1_700_000_000_000


class ProcessDied(SystemExit):
    """A process ended inside of a system call.  asyncio's tasks let SystemExit through, and nothing else."""


class Life:
    """One process from its start to its end: what it scheduled is dropped when it ends, and held while it is stopped.

    ``process`` is whose life it is (``processes.Process``), None for what stands for itself.
    """

    __slots__ = ("ended", "held", "name", "paused_us", "process")

    def __init__(self, name: str, process: Process | None = None) -> None:
        self.name = name
        self.process = process
        self.ended = False
        self.paused_us: int | None = None  # since when it is stopped
        self.held: list[Event] = []


class Event:
    """A scheduled callback; also the handle that asyncio wants."""

    __slots__ = ("args", "callback", "context", "life", "when_us")

    def __init__(
        self, when_us: int, callback: Callable[..., Any], args: tuple[Any, ...], life: Life | None, context: Any = None
    ) -> None:
        self.when_us = when_us
        self.callback: Callable[..., Any] | None = callback
        self.args = args
        self.life = life
        self.context: Context | None = context

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_us / 1e6


class Scheduler(asyncio.AbstractEventLoop):
    """See the module's docstring.  Times are microseconds since the start of the run."""

    def __init__(self, seed: int, write_trace: Callable[[str], None] | None = None) -> None:
        self.random = Random(seed)
        self.now_us = 0
        self.wall_offset_ms = START_MS  # clock jumps move it
        self.steps = 0
        self.failure: BaseException | None = None  # an exception that a callback or a task did not catch
        self._ready: deque[Event] = deque()
        self._resumed = 0  # so many of those are overtaken by nothing
        self._due: list[tuple[int, int, Event]] = []
        self._count = 0
        self._write_trace = write_trace
        self._digest = hashlib.sha256()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.network: Network  # set by it
        self.life: Life | None = None  # of what runs now; None: nobody's, or a client's
        self.last_life: Life | None = None  # of what ran last

    # --- time --------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The wall clock of those whose clock is right."""
        return self.wall_offset_ms + self.now_us // 1000

    def monotonic_ms(self) -> int:
        return self.now_us // 1000

    def monotonic_ns(self) -> int:
        return self.now_us * 1000

    def time(self) -> float:
        return self.now_us / 1e6

    # --- scheduling --------------------------------------------------------------------------------------------------

    def soon(self, life: Life | None, callback: Callable[..., Any], *args: Any) -> Event:
        """Run in this turn of the loop, behind what waits already."""
        event = Event(self.now_us, callback, args, life)
        self._ready.append(event)
        return event

    def after(self, delay_us: int, life: Life | None, callback: Callable[..., Any], *args: Any) -> Event:
        """Run at a point in time."""
        when_us = self.now_us + delay_us if delay_us > 0 else self.now_us
        event = Event(when_us, callback, args, life)
        self._count += 1
        heappush(self._due, (when_us, self._count, event))
        return event

    def timer_delay_us(self, delay_ms: float) -> int:
        """How long a timer takes that was set for ``delay_ms``."""
        return int(delay_ms * 1000) + self.random._randbelow(TIMER_LATENESS_US_MAX)  # type: ignore[attr-defined,no-any-return]

    def step(self) -> bool:
        """Run the next event; False when there is none."""
        ready, due = self._ready, self._due
        while True:
            if ready and (
                self._resumed or not (due and due[0][0] <= self.now_us + OVERTAKING_US and self.random.random() < 0.3)
            ):
                event = ready.popleft()
                self._resumed -= bool(self._resumed)
            elif due:
                when_us, _, event = heappop(due)
                if when_us > self.now_us:  # noqa: PLR1730  # twice as fast
                    self.now_us = when_us
            else:
                return False
            callback, life = event.callback, event.life
            if callback is None or (life is not None and life.ended):
                continue
            if life is None or life.paused_us is None:
                break
            life.held.append(event)
        self.steps += 1
        self.life = self.last_life = life
        try:
            if event.context is not None:
                event.context.run(callback, *event.args)
            else:
                callback(*event.args)
        finally:
            self.life = None
        return True

    @contextmanager
    def within(self, life: Life | None) -> Iterator[None]:
        """What runs meanwhile is a life's, whoever called."""
        before, self.life = self.life, life
        try:
            yield
        finally:
            self.life = before

    def pause(self, life: Life) -> None:
        """Stop a process (SIGSTOP): what is due for it from now on is held, while time goes on."""
        assert life.paused_us is None, f"{life.name} is stopped already"
        life.paused_us = self.now_us

    def resume(self, life: Life) -> None:
        """Let a stopped process go on (SIGCONT): all that was held is due at once, in its order."""
        life.paused_us = None
        held, life.held = life.held, []
        self._ready.extend(held)
        self._resumed = len(self._ready)  # what a connection brings now is behind what it brought

    def drop(self, life: Life) -> None:
        """Forget what an ended process had scheduled."""
        life.ended = True
        life.held.clear()
        self._ready = deque(event for event in self._ready if event.life is not life)
        self._resumed = min(self._resumed, len(self._ready))
        self._due = [entry for entry in self._due if entry[2].life is not life]
        heapify(self._due)

    # --- the trace ---------------------------------------------------------------------------------------------------

    def trace(self, who: str, what: str) -> None:
        """One line of what happened."""
        line = f"{self.now_us / 1e6:11.6f} {self.steps:6d}  {who:<14} {what}"
        self._digest.update(line.encode())
        if self._write_trace is not None:
            self._write_trace(line)

    @property
    def trace_hash(self) -> str:
        """What two runs of one seed have in common."""
        return self._digest.hexdigest()

    # --- asyncio's loop, as far as the server's and the clients' coroutines use it ------------------------------------

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        event = Event(self.now_us, callback, args, self.life, context)
        self._ready.append(event)
        return event

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        when_us = max(int(when * 1e6), self.now_us)
        event = Event(when_us, callback, args, self.life, context)
        self._count += 1
        heappush(self._due, (when_us, self._count, event))
        return event

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **_options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = asyncio.Task(coroutine, loop=self)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def in_background(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task whose failure is the affair of who waits for it, if anybody does."""
        task = asyncio.Task(coroutine, loop=self)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()

        task.add_done_callback(done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), ProcessDied):
            self.failure = self.failure or task.exception()

    def abandon_tasks(self) -> None:
        """At the end of a run: what still waits is not finished, and asyncio need not complain."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if isinstance(coroutine, CoroutineType) and getcoroutinestate(coroutine) == CORO_CREATED:
                coroutine.close()  # its process died before it began
        self._tasks.clear()

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int = 0, **_options: Any
    ) -> Any:
        """A server of the process that runs; it accepts from ``start_serving`` on.  Port 0 becomes one of its own."""
        process = self.life.process if self.life is not None else None
        assert process is not None, "only a process can listen"
        return self.network.server(process, protocol_factory, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_options: Any
    ) -> Any:
        """The transport and the protocol of a connection from the process that runs; OSError where there is none."""
        assert self.life is not None, "only a process connects by the loop"
        return await self.network.open_connection(self.life, protocol_factory, (host, port))

    async def create_datagram_endpoint(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], local_addr: tuple[str, int] | None = None, **_options: Any
    ) -> Any:
        """The transport and the protocol of a socket for datagrams of the process that runs."""
        assert self.life is not None, "only a process has a socket"
        assert local_addr is not None
        return self.network.open_datagrams(self.life, protocol_factory, local_addr[1])

    async def getaddrinfo(self, host: str, port: int, **_options: Any) -> Any:  # type: ignore[override]
        """Hosts have no names here."""
        return [(0, 0, 0, "", (host, port))]

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, ProcessDied):
            self.failure = self.failure or error

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

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
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any

# Something from outside that is due within this time of now may run before what waits for its turn on the loop.
OVERTAKING_US = 100
TIMER_LATENESS_US_MAX = 1_000  # a loop's timers fire late, never early
START_MS = 1_700_000_000_000


class ProcessDied(SystemExit):
    """The broker's process ended inside of a system call.  asyncio's tasks let SystemExit through, and nothing else."""


class Life:
    """One process: what it scheduled is dropped when it ends."""

    __slots__ = ("ended", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = False


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
        self._due: list[tuple[int, int, Event]] = []
        self._count = 0
        self._write_trace = write_trace
        self._digest = hashlib.sha256()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.current: Event | None = None

    # --- time --------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The broker's wall clock."""
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
        event = Event(self.now_us + max(delay_us, 0), callback, args, life)
        self._push(event)
        return event

    def _push(self, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._due, (event.when_us, self._count, event))

    def timer_delay_us(self, delay_ms: float) -> int:
        """How long a timer takes that was set for ``delay_ms``."""
        return int(delay_ms * 1000) + self.random.randrange(TIMER_LATENESS_US_MAX)

    def step(self) -> bool:
        """Run the next event; False when there is none."""
        event = self._next()
        if event is None:
            return False
        self.steps += 1
        callback, args = event.callback, event.args
        assert callback is not None
        self.current = event
        if event.context is not None:
            event.context.run(callback, *args)
        else:
            callback(*args)
        self.current = None
        return True

    def _next(self) -> Event | None:
        ready, due = self._ready, self._due
        while True:
            if ready and not (due and due[0][0] <= self.now_us + OVERTAKING_US and self.random.random() < 0.3):
                event = ready.popleft()
            elif due:
                when_us, _, event = heapq.heappop(due)
                self.now_us = max(self.now_us, when_us)
            else:
                return None
            if event.callback is not None and (event.life is None or not event.life.ended):
                return event

    def drop(self, life: Life) -> None:
        """Forget what an ended process had scheduled."""
        life.ended = True
        self._ready = deque(event for event in self._ready if event.life is not life)
        self._due = [entry for entry in self._due if entry[2].life is not life]
        heapq.heapify(self._due)

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
        life = self.current.life if self.current is not None else None
        event = Event(self.now_us, callback, args, life, context)
        self._ready.append(event)
        return event

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        life = self.current.life if self.current is not None else None
        event = Event(max(int(when * 1e6), self.now_us), callback, args, life, context)
        self._push(event)
        return event

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **_options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = asyncio.Task(coroutine, loop=self)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), ProcessDied):
            self.failure = self.failure or task.exception()

    def abandon_tasks(self) -> None:
        """At the end of a run: what still waits is not finished, and asyncio need not complain."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.clear()

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

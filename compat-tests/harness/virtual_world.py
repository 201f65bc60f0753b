"""The outside world of a broker, or of a part of it, in virtual time: what a test holds in place of a machine.

Owns: a clock that goes on when a test says so, timers by that clock, worker threads whose jobs run when a test says so,
the ``Env`` that hands all of them to the code under test, and partitions in memory.  Does not own a network, a disk or
an order that chance decides (``tests/simulation``).

Invariants: nothing happens behind a test's back, so that every order of the loop's turns and the threads' work can be
written down; what is due at one time runs in the order in which it was set; a job's completion runs on the loop, after
the job; the two clocks have nothing in common but their pace.

Kafka counterparts: MockTime, MockScheduler, MockTimer.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from pybroker.env import Clock, Env
from pybroker.net.thread_job import Job
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.records import batches, set_base_offset

START_MS = 1_700_000_000_000  # what the wall clock shows at first
_UP_SINCE_NS = 5_000_000_000_000  # what the monotonic clock shows at first: the machine is up for a while
_NS_PER_MS = 1_000_000
_AT_ONCE_NS = -1  # a portion of work ends at the next place to stop at
_LONG_TIME_MS = 1_800_000  # from here on ``VirtualWorld.advance`` leaps,
_MOMENTS_MAX = 1_024  # when so many moments had something that fell due
_LEAPS_MAX = 4_096

Done = Callable[[Any, BaseException | None], None]


class VirtualClock:
    """``env.Clock``, which a test moves; ``elapsed_ns`` is how much time has passed in this world."""

    def __init__(self) -> None:
        self.elapsed_ns = 0
        self.wall_ahead_ms = 0  # by which the wall clock is wrong

    def now_ms(self) -> int:
        return START_MS + self.wall_ahead_ms + self.elapsed_ns // _NS_PER_MS

    def monotonic_ms(self) -> int:
        return (_UP_SINCE_NS + self.elapsed_ns) // _NS_PER_MS

    def monotonic_ns(self) -> int:
        return _UP_SINCE_NS + self.elapsed_ns

    @property
    def elapsed_ms(self) -> int:
        return self.elapsed_ns // _NS_PER_MS

    def pass_ms(self, ms: int) -> None:
        """So much time passes and nothing runs, as while something holds the loop."""
        self.elapsed_ns += ms * _NS_PER_MS

    def pass_ns(self, ns: int) -> None:
        """The same, in nanoseconds."""
        self.elapsed_ns += ns


class VirtualTimer:
    """A scheduled callback."""

    __slots__ = ("args", "callback", "cancelled", "due_ns")

    def __init__(self, due_ns: int, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.due_ns = due_ns  # of ``VirtualClock.elapsed_ns``
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        """Do what was scheduled, unless that was called off."""
        if not self.cancelled:
            self.callback(*self.args)


class VirtualTimers:
    """``env.Timers`` by a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._queue: list[tuple[int, int, VirtualTimer]] = []
        self._order = itertools.count()

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> VirtualTimer:
        timer = VirtualTimer(self._clock.elapsed_ns + int(max(delay_ms, 0) * _NS_PER_MS), callback, args)
        heappush(self._queue, (timer.due_ns, next(self._order), timer))
        return timer

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> VirtualTimer:
        return self.call_later(0, callback, *args)

    @property
    def pending(self) -> list[VirtualTimer]:
        """All that are set and not called off, the one that falls due next first."""
        return [timer for _, _, timer in sorted(self._queue) if not timer.cancelled]

    @property
    def next_due_ns(self) -> int | None:
        """When the next one falls due, by ``VirtualClock.elapsed_ns``; None where none is set."""
        while self._queue and self._queue[0][2].cancelled:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    @property
    def is_due(self) -> bool:
        """Whether one is to run at once."""
        due_ns = self.next_due_ns
        return due_ns is not None and due_ns <= self._clock.elapsed_ns

    def take_next(self) -> VirtualTimer:
        """Take out the one that falls due next; there is one."""
        assert self.next_due_ns is not None, "no timer is set"
        return heappop(self._queue)[2]

    def take_due(self) -> list[VirtualTimer]:
        """Take out what is to run at once."""
        taken = []
        while self.is_due:
            taken.append(self.take_next())
        return taken

    def clear(self) -> None:
        """Forget all, as the death of a process does."""
        self._queue.clear()


class VirtualExecutor:
    """``env.Executor`` whose jobs run when the test says so; of work in portions each yield ends one.

    While it ``is_stuck`` its thread does nothing, as where a disk does not answer.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.jobs: deque[Job] = deque()
        self.finished: deque[Job] = deque()
        self.closed = self.is_stuck = self.has_owner = False
        self.portions = 0
        self._clock = clock

    def submit(self, work: Callable[[], Any], done: Done) -> Job:
        assert not self.closed, f"executor {self.name} is closed"
        job = Job(work, done)
        self.jobs.append(job)
        return job

    def work(self) -> None:
        """Let a job have its portion, as its thread would; its completion waits for the loop (``deliver``)."""
        self.portions += 1
        job = self.jobs.popleft()
        if job.go_on(self._clock.monotonic_ns, _AT_ONCE_NS, self.closed):
            self.finished.append(job)
        else:
            self.jobs.append(job)

    def deliver(self) -> None:
        """Run the completions of finished jobs, as the loop would."""
        while self.finished:
            self.finished.popleft().complete()

    def run(self) -> bool:
        """Run everything; whether there was anything to run."""
        any_job = bool(self.finished or (self.jobs and not self.is_stuck))
        while self.finished or (self.jobs and not self.is_stuck):
            if self.jobs and not self.is_stuck:
                self.work()
            self.deliver()
        return any_job

    def close(self) -> None:
        self.closed, self.is_stuck = True, False
        self.run()


class VirtualWorld:
    """An ``Env`` with its parts within reach; what asks for a thread where there are to be none fails."""

    def __init__(self, seed: int = 0, *, has_threads: bool = True, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.timers = VirtualTimers(self.clock)
        self.executors: dict[str, VirtualExecutor] = {}
        self._has_threads = has_threads
        self.env = Env(
            clock=self.clock,
            timers=self.timers,
            executor=self._executor,
            call_threadsafe=self._call_threadsafe,
            random=Random(seed),
        )

    def _call_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        assert self._has_threads, "there is one thread"
        self.timers.call_soon(callback, *args)

    def _executor(self, name: str, _niceness: int) -> VirtualExecutor:
        assert self._has_threads, f"no thread is needed, {name} was asked for"
        made = self.executors.get(name)
        if made is None or made.has_owner:
            made = self.executors[name] = VirtualExecutor(name, self.clock)
        made.has_owner = True
        return made

    def thread(self, name: str) -> VirtualExecutor:
        """The thread of that name, be it one that is first asked for later: a test may have it stuck by then."""
        if name not in self.executors:
            self.executors[name] = VirtualExecutor(name, self.clock)
        return self.executors[name]

    def executor(self, role: str) -> VirtualExecutor:
        """The (only) executor with a role: writer, reader, flusher of a log dir; store."""
        return next(executor for name, executor in self.executors.items() if f"-{role}-" in name)

    def run(self) -> None:
        """Everything that can happen without time passing: what is due on the loop, and the threads' work."""
        while self._run_executors() or self.timers.is_due:
            if self.timers.is_due:
                self.step()

    def _run_executors(self) -> bool:
        """Run all executors, once; whether any had something to run."""
        ran = [executor.run() for executor in list(self.executors.values())]
        return any(ran)

    def turn(self) -> None:
        """One turn of the loop: what is due now, but not what that makes due; the threads do nothing."""
        for timer in self.timers.take_due():
            timer.run()

    def advance(self, delay_ms: float = 0) -> None:
        """Let time pass, with everything that happens meanwhile in its order.

        A long time in which much happens passes in leaps after a while, so that callbacks are late by a small part of
        it, as on a busy machine: in a day of virtual time what a broker does every 100 ms would fall due 864,000 times.
        """
        self.run()
        clock, delay_ns = self.clock, int(delay_ms * _NS_PER_MS)
        end_ns, leap_ns, moments = clock.elapsed_ns + delay_ns, 0, 0
        while (due_ns := self.timers.next_due_ns) is not None and due_ns <= end_ns:
            moments += 1
            if moments == _MOMENTS_MAX and delay_ms >= _LONG_TIME_MS:
                leap_ns = delay_ns // _LEAPS_MAX
            clock.elapsed_ns = min(end_ns, max(clock.elapsed_ns, due_ns + leap_ns))
            while self.timers.is_due:
                self.step()
                self.run()
        clock.elapsed_ns = end_ns

    def leap(self, delay_ms: int) -> None:
        """Let time pass at once: what falls due meanwhile runs late, as after a pause of the process."""
        self.clock.pass_ms(delay_ms)
        self.run()

    def step(self) -> None:
        """Run the one callback that falls due next, be it later."""
        timer = self.timers.take_next()
        self.clock.elapsed_ns = max(self.clock.elapsed_ns, timer.due_ns)
        timer.run()


class MemoryPartitions:
    """The partitions of one topic: ports to write and read them, in memory; the knobs are attributes.

    ``append_error``: every append fails with this code.  ``hold_appends``: appends end when ``finish_appends`` is
    called.  ``hold_commits``: the high watermark moves when ``commit`` is called.  ``read_errors``: codes that reads
    of a partition fail with.  ``missing``: partitions whose log cannot be had.
    ``on_high_watermark(partition, offset)`` hears of what ``commit`` moves.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.logs: dict[int, bytearray] = {}
        self.ends: dict[int, int] = {}
        self.high_watermarks: dict[int, int] = {}
        self.append_error = 0
        self.verification_error = 0
        self.verifications: list[tuple[int, tuple[Any, ...], int]] = []
        self.read_errors: dict[int, int] = {}
        self.missing: set[int] = set()
        self.hold_appends = False
        self.hold_commits = False
        self.appends = 0
        self.reads = 0
        self.on_high_watermark: Callable[[int, int], None] = lambda _partition, _offset: None
        self._held: list[Callable[[], None]] = []

    def append(self, topic: str, partition: int, batch: bytes, done: Callable[[int, int], None]) -> None:
        assert topic == self.topic
        self.appends += 1
        error = self.append_error

        def finish() -> None:
            if error:
                done(error, -1)
            else:
                done(0, self.write(partition, batch))

        if self.hold_appends:
            self._held.append(finish)
        else:
            finish()

    def append_end_transaction(
        self, topic: str, partition: int, batch: bytes, _marker: Any, done: Callable[[int, int], None]
    ) -> None:
        self.append(topic, partition, batch, done)

    def verify_transaction(
        self, topic: str, partition: int, producer: Any, api_version: int, done: Callable[[int], None]
    ) -> None:
        assert topic == self.topic
        self.verifications.append((partition, tuple(producer), api_version))
        done(self.verification_error)

    def write(self, partition: int, batch: bytes) -> int:
        """Put a batch into the log; returns its last offset."""
        stamped = bytearray(batch)
        set_base_offset(stamped, self.ends.get(partition, 0))
        ((_, header),) = batches(stamped)
        self.logs.setdefault(partition, bytearray()).extend(stamped)
        self.ends[partition] = header.next_offset
        if not self.hold_commits:
            self.high_watermarks[partition] = header.next_offset
        return header.last_offset

    def finish_appends(self) -> None:
        held, self._held = self._held, []
        for finish in held:
            finish()

    def commit(self, partition: int) -> None:
        """Move the high watermark to the log's end."""
        self.high_watermarks[partition] = self.ends[partition]
        self.on_high_watermark(partition, self.ends[partition])

    def lose_the_leader(self) -> None:
        """The process is dead: what was not yet written never is, and another leader finds all replicas at its end."""
        self._held.clear()
        self.hold_appends = self.hold_commits = False
        self.high_watermarks = dict(self.ends)

    def high_watermark(self, topic: str, partition: int) -> int:
        return self.high_watermarks.get(partition, 0)

    def log_range(self, topic: str, partition: int) -> tuple[int, int] | None:
        return None if partition in self.missing else (0, self.ends.get(partition, 0))

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int, done: Callable[[int, memoryview], None]
    ) -> None:
        self.reads += 1
        if partition in self.read_errors:
            done(self.read_errors[partition], memoryview(b""))
            return
        log = self.logs.get(partition, bytearray())
        start = end = 0
        try:
            start = next((position for position, header in batches(log) if header.next_offset > offset), len(log))
            for position, header in batches(log, start):
                end = position + header.size_bytes
                if end - start >= max_bytes:
                    break
        except ProtocolError:
            end = len(log)  # what is no batch is handed out as it is
        done(0, memoryview(bytes(log[start:end])))

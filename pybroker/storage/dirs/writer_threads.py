"""The threads that make the large appends of one log directory, and whose turn it is.

Owns: which thread makes an append, and when. Writing is copying into the page cache. Where the kernel has to find the
memory for that first, it takes longer than all else that a request needs. One thread would leave the other processors
idle. While there are small requests beside the large ones it is one, because they wait for the loop, and every further
thread takes the processors and the interpreter from it.

Invariants: a lane's jobs run one after another, in order; a lane that has nothing with a thread may go to any.  No
thread is handed more than ``WRITER_JOBS_AHEAD``; what is more waits here for the first to be free.  Lanes take turns.

What has to be done before an append (``submit_steps``) is in no lane: who asks for it holds back what comes behind it.
A thread has ``WRITER_STEPS_AHEAD`` of those beside its other jobs, and turns to each of them after every portion. After
``WRITER_STEPS_PER_TURN`` steps one gives its place up to the next that waits. So an append waits for a portion of each.
What is quickly done does not wait for all of what takes long, however many logs there are for which it has to be done.

Kafka: the request handler threads, any of which appends, under the log's lock.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from pybroker.env import Clock, Executor, WorkGivenUp

# Threads that make a log dir's large appends: with two, four connections stored 1.2 times as much, and where the host
# has the memory half as much again and more; a third gave a little more, and its requests to others waited for longer.
WRITERS_PER_LOG_DIR = 2

# Appends that one of them is handed at once: it should not have to wait for the loop to come round.
WRITER_JOBS_AHEAD = 4

# Batches whose records one of them looks at, or writes anew, at the same time: an append waits for a portion of each
# (``WORK_PORTION_NS``).  After so many steps, of a few hundred microseconds each, the next that waits has its turn:
# large batches of producers are done by then, what goes on for seconds is not.
WRITER_STEPS_AHEAD = 2
WRITER_STEPS_PER_TURN = 100

# For so long after a small append one thread makes all the large ones: small requests beside two had twice the p99.
# Less niceness makes that worse: a thread that is put aside while it holds the interpreter keeps the loop waiting.
SMALL_APPENDS_REMEMBERED_MS = 1_000

logger = logging.getLogger("pybroker.storage")

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]
Steps = Generator[None, None, Any]


class Lane:
    """The jobs of one log."""

    __slots__ = ("handed_out", "is_ready", "waiting", "writer")

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[[], Any], Done]] = deque()
        self.writer: _Writer | None = None  # who has what is handed out
        self.handed_out = 0
        self.is_ready = False  # it stands among those whose jobs wait


class _Writer:
    """One thread, and how many jobs it has not brought back yet."""

    __slots__ = ("executor", "jobs", "steps")

    def __init__(self) -> None:
        self.executor: Executor | None = None
        self.jobs = 0
        self.steps = 0  # of work in steps


class Writers:
    """All writers of a log directory.  Everything runs on the loop."""

    __slots__ = ("_clock", "_closing", "_make", "_ready", "_seen", "_small_appends", "_small_ms", "_steps", "_writers")

    def __init__(self, clock: Clock, make: Callable[[int], Executor]) -> None:
        self._clock = clock
        self._make = make
        self._writers = [_Writer() for _ in range(WRITERS_PER_LOG_DIR)]
        self._ready: deque[Lane] = deque()  # whose jobs wait
        self._steps: deque[tuple[Steps, Done]] = deque()  # that wait for a thread
        self._small_appends = 0
        self._seen = 0
        self._closing = False
        self._small_ms = -SMALL_APPENDS_REMEMBERED_MS

    def submit(self, lane: Lane, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run ``work()`` in a thread behind the lane's other jobs; otherwise as ``pybroker.env.Executor.submit``."""
        lane.waiting.append((work, done))
        if not lane.is_ready:
            lane.is_ready = True
            self._ready.append(lane)
        self._hand_out()

    def submit_steps(
        self, steps: Generator[None, None, T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Take the steps in a thread, others' between them, then ``done(result, None)`` or ``done(None, error)``.

        At the end of the thread they are given up.
        """
        self._steps.append((steps, done))
        self._hand_out_steps()

    def note_small_append(self) -> None:
        """The loop has made a small append by itself: while such come, one thread makes the large ones."""
        self._small_appends += 1

    def close(self) -> None:
        """Finish the jobs that were submitted, give steps up and end the threads; blocks."""
        self._closing = True
        for writer in self._writers:
            if writer.executor is not None:
                writer.executor.close()
        while self._ready:
            lane = self._ready.popleft()
            while lane.waiting:
                self._run_here(*lane.waiting.popleft())
        while self._steps:
            steps, done = self._steps.popleft()
            self._run_here(partial(_give_up, steps), done)

    @staticmethod
    def _run_here(work: Callable[[], Any], done: Done) -> None:
        error: Exception | None = None
        try:
            result = work()
        except Exception as failure:  # handed to the submitter, as an executor does
            result, error = None, failure
        try:
            done(result, error)
        except Exception:  # the others wait for theirs
            logger.exception("a completion of a large append failed")

    def _hand_out(self) -> None:
        """Give the threads what they have space for, a job of each lane in turn."""
        in_use = self._writers[: self._count()]
        passed_over = 0
        while passed_over < len(self._ready) and _any_is_available(in_use) and not self._closing:
            lane = self._ready.popleft()
            writer = self._place_for(lane, in_use)
            if writer is None:
                passed_over += 1
            else:
                passed_over = 0
                self._start(lane, writer)
            if lane.waiting:
                self._ready.append(lane)
            else:
                lane.is_ready = False

    @staticmethod
    def _place_for(lane: Lane, in_use: list[_Writer]) -> _Writer | None:
        """The thread that may have the lane's next job now: the one that has those before it, or the least busy."""
        writer = lane.writer if lane.handed_out else min(in_use, key=_work_of)
        return writer if writer in in_use and _is_available(writer) else None

    def _start(self, lane: Lane, writer: _Writer) -> None:
        work, done = lane.waiting.popleft()
        lane.writer = writer
        lane.handed_out += 1
        writer.jobs += 1

        def finished(result: Any, error: BaseException | None) -> None:
            writer.jobs -= 1
            lane.handed_out -= 1
            self._hand_out()  # first: the thread has something to do meanwhile
            done(result, error)

        self._executor_of(writer).submit(work, finished)

    def _executor_of(self, writer: _Writer) -> Executor:
        if writer.executor is None:
            writer.executor = self._make(self._writers.index(writer))
        return writer.executor

    def _hand_out_steps(self) -> None:
        in_use = self._writers[: self._count()]
        while self._steps and not self._closing:
            free = [writer for writer in in_use if writer.steps < WRITER_STEPS_AHEAD]
            if not free:
                return
            self._take_turn(min(free, key=_work_of), *self._steps.popleft())

    def _take_turn(self, writer: _Writer, steps: Steps, done: Done) -> None:
        writer.steps += 1

        def finished(outcome: tuple[bool, Any] | None, error: BaseException | None) -> None:
            writer.steps -= 1
            has_ended, result = outcome or (True, None)
            if not has_ended:
                self._steps.append((steps, done))
            self._hand_out_steps()
            if has_ended:
                done(result, error)

        self._executor_of(writer).submit(partial(_turn, steps), finished)

    def _count(self) -> int:
        """How many threads are of use now."""
        now_ms = self._clock.monotonic_ms()
        if self._small_appends != self._seen:
            self._seen = self._small_appends
            self._small_ms = now_ms
        return 1 if now_ms - self._small_ms < SMALL_APPENDS_REMEMBERED_MS else len(self._writers)


def _turn(steps: Steps) -> Generator[None, None, tuple[bool, Any]]:
    """A turn of work in steps: whether it has come to its end, and what to."""
    try:
        for _ in range(WRITER_STEPS_PER_TURN):
            next(steps)
            yield
    except StopIteration as end:
        return True, end.value
    except GeneratorExit:
        steps.close()
        raise
    return False, None


def _give_up(steps: Steps) -> None:
    steps.close()
    raise WorkGivenUp


def _work_of(writer: _Writer) -> int:
    return writer.jobs + writer.steps


def _is_available(writer: _Writer) -> bool:
    return writer.jobs < WRITER_JOBS_AHEAD


def _any_is_available(writers: list[_Writer]) -> bool:
    """Whether any of them has; while none has, thousands of lanes may wait, and cost nothing."""
    return any(map(_is_available, writers))

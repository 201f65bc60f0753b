"""The outside world, as ports: clocks, timers, threads, randomness.

Owns: the small protocols by which every layer below ``net`` reaches time, timers, worker threads and
random ids, and the ``Env`` that carries them.  Owns no implementation: ``net/loop_env.py`` implements them
on an asyncio loop, a simulation implements them in virtual time.

Invariants:
- No module of the broker but the ports' implementation reads a clock or sleeps past them (``tests/test_clocks.py``).
- Callbacks (``done``, timer callbacks) always run on the broker's loop, never inside the call that registered them, and
  never concurrently with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Cancellable(Protocol):
    """A scheduled callback that can be called off; cancelling twice, or after it ran, does nothing."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Two clocks: the wall's, for what is written into logs, and one that never goes back, for waiting."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, as Kafka writes them into batches and records."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; only differences mean anything."""
        ...

    def monotonic_ns(self) -> int:
        """The same clock as ``monotonic_ms`` in nanoseconds, for what is measured within a turn of the loop.

        What asks for each request keeps this function, and asks it without the way by ``Env``.
        """
        ...


class Timers(Protocol):
    """One-shot timers on the broker's loop."""

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> Cancellable: ...

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Cancellable: ...


class WorkGivenUp(Exception):
    """Work that did not come to its end: its caller has gone, or its thread ends."""


class Executor(Protocol):
    """One worker thread with a queue of its own: jobs are begun one after another, in order of submission.

    Work that may take long is done in portions. What is submitted returns a generator, which yields wherever others may
    have their turn, every few hundred microseconds, and returns the result. After ``WORK_PORTION_NS`` the thread
    goes on with what else waits, and comes back to it: a caller that needs an order behind such work waits for its
    ``done``.
    """

    def submit(
        self,
        work: Callable[[], T | Generator[object, None, T]],
        done: Callable[[T | None, BaseException | None], None],
    ) -> Cancellable:
        """Run ``work()`` on the thread, then ``done(result, None)`` or ``done(None, error)`` on the loop, exactly once.

        What is cancelled is not begun, and what has begun goes no further than to its next yield: the error is
        ``WorkGivenUp`` then.
        """
        ...

    def close(self) -> None:
        """Finish what is queued, give work in portions up, then end the thread; blocks until it has ended."""
        ...


@dataclass(slots=True)
class Env:
    """Everything of the outside world that a broker is handed.

    ``executor(name, niceness)`` makes a new single-thread executor; its owner closes it.  Its thread is that much nicer
    than the loop's where processors are short, as far as the system knows a niceness of threads; 0 is as important.
    ``call_threadsafe(fn, *args)`` may be called from any thread and runs ``fn`` on the loop.
    """

    clock: Clock
    timers: Timers
    executor: Callable[[str, int], Executor]
    call_threadsafe: Callable[..., None]
    random: Random

    def new_secret(self) -> bytes:
        """Thirty-two bytes that cannot be guessed, as far as ``random`` cannot be guessed."""
        return self.random.randbytes(32)

    def new_uuid(self) -> bytes:
        """A random topic or incarnation id of 16 bytes, never one of Kafka's reserved ids (all zero but the last)."""
        while True:
            value = self.random.randbytes(16)
            # Kafka's Uuid.randomUuid also refuses ids whose base64 form begins with '-': tools take those for options.
            if value[:15] != bytes(15) and value[0] >> 2 != 62:
                return value

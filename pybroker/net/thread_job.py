"""Work that was given to a thread: as a whole or in portions, and the end of work whose caller has gone.

Owns ``Job``, one piece of work from its submission to its completion.  Does not own the thread, nor whose turn it is:
``loop_env`` has real threads, tests and the simulation have theirs, and all of them drive jobs of this kind.

Invariants: a job comes to exactly one completion, however it ends.  Work in portions that ends early is closed, in its
thread, so that it lets go of what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import GeneratorType
from typing import Any

from pybroker.env import WorkGivenUp

Done = Callable[[Any, BaseException | None], None]


class Job:
    """``go_on`` is for the thread until it says that the job has ended; then ``complete`` is for the loop."""

    __slots__ = ("_cancelled", "_done", "_steps", "_work", "error", "result")

    def __init__(self, work: Callable[[], Any], done: Done) -> None:
        self._work: Callable[[], Any] | None = work
        self._steps: Generator[object, None, Any] | None = None
        self._cancelled = False
        self._done: Done | None = done
        self.result: Any = None
        self.error: BaseException | None = None

    def cancel(self) -> None:
        """The job has no caller any more: called on the loop, heeded by the thread before the next portion."""
        self._cancelled = True

    def go_on(self, now_ns: Callable[[], int], ends_ns: int, is_closing: bool = False) -> bool:
        """Work until it is done, or at the first place to stop at past ``ends_ns``; whether it has ended.

        ``now_ns()`` is the monotonic clock that ``ends_ns`` is a time of.  While the thread is closing, work as a whole
        is done and work in portions is given up.
        """
        try:
            if self._work is not None:
                if self._cancelled:
                    raise WorkGivenUp
                work, self._work = self._work, None
                self.result = work()
                if self.result.__class__ is not GeneratorType:
                    return True
                self._steps, self.result = self.result, None
            assert self._steps is not None
            while not (self._cancelled or is_closing):
                next(self._steps)
                if now_ns() > ends_ns:
                    return False
            self._steps.close()
            raise WorkGivenUp
        except StopIteration as end:
            self.result = end.value
        except BaseException as error:  # handed to the submitter, who knows what it means
            self.error = error
        self._steps = None
        return True

    def complete(self) -> None:
        """Tell the submitter.  What is over refers to nothing: else each failed job is a cycle."""
        assert self._done is not None, "a job completes once"
        done, result, error = self._done, self.result, self.error
        self._done = self.result = self.error = None
        done(result, error)

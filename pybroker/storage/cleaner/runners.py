"""Who does a round's work: a thread of this process, or a process of its own.

Owns the ways to drive ``Round`` a step at a time.  ``begin`` and ``abort`` are called on the broker's loop, ``step``
and ``rest`` on the cleaner's worker thread; a step that an abort catches raises.

Invariants: the process lives only while there is something to clean, and never outlives the broker: its standard input
ends with the broker, however that ends.  What a killed process leaves half written is for the broker to remove.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pybroker_protocol
from pybroker.storage.cleaner.cleaner_jobs import (
    CleanedGroup,
    CleanerDied,
    CleaningAborted,
    CleaningFailed,
    CleaningJob,
    RoundEnd,
    RoundStats,
    Step,
)

_NEXT = b"next\n"
_REST_S = 5


class Runner(Protocol):
    """Cleans one log at a time."""

    # Whether steps take time that the broker's loop would like to have, so that there have to be pauses.
    shares_interpreter: bool

    def begin(self, job: CleaningJob) -> None:
        """The next steps are those of ``job``."""
        ...

    def step(self) -> Step:
        """Do the next step and wait for it.  Raises CleaningFailed, CleanerDied, CleaningAborted and OSError."""
        ...

    def abort(self) -> None:
        """Give the round up; the step under way, or the next one, raises."""
        ...

    def rest(self) -> None:
        """There is nothing to do for a while."""
        ...


class ThreadRunner:
    """Cleans on the worker thread itself, small pieces at a time."""

    shares_interpreter = True

    def __init__(self) -> None:
        self._steps: Iterator[Step] = iter(())
        self._aborted = False

    def begin(self, job: CleaningJob) -> None:
        """See ``Runner``."""
        from pybroker.storage.cleaner.round import Round

        self._aborted = False
        self._steps = Round(job).steps()

    def step(self) -> Step:
        """See ``Runner``."""
        if self._aborted:
            self._steps = iter(())  # the generator removes what it began
            raise CleaningAborted
        return next(self._steps)

    def abort(self) -> None:
        """See ``Runner``."""
        self._aborted = True

    def rest(self) -> None:
        """See ``Runner``."""
        self._steps = iter(())


class ProcessRunner:
    """Cleans in ``python -m pybroker.storage.cleaner``: a line goes in, a line comes out."""

    shares_interpreter = False

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._killed: subprocess.Popen[bytes] | None = None
        self._line = _NEXT
        self._aborted = False

    def begin(self, job: CleaningJob) -> None:
        """See ``Runner``."""
        self._aborted = False
        self._line = job.to_json().encode() + b"\n"

    def step(self) -> Step:
        """See ``Runner``."""
        line, self._line = self._line, _NEXT
        if line is not _NEXT:
            if self._is_gone():
                self._end()
            if self._process is None and not self._aborted:
                self._process = _start()
        process = self._process
        if self._aborted or process is None:
            self._end()
            raise CleaningAborted
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer.endswith(b"\n"):
            code = self._end()
            raise CleaningAborted if self._aborted else CleanerDied(f"the cleaner's process ended with {code}")
        return _decode(json.loads(answer))

    def abort(self) -> None:
        """See ``Runner``."""
        self._aborted = True
        process = self._process
        if process is not None:
            self._killed = process
            process.kill()

    def _is_gone(self) -> bool:
        """Whether the process of the rounds before has ended, or is about to: that is no fault of the next round.

        An abort may kill it when its last answer is on its way to the loop, and no step follows that would notice.
        """
        process = self._process
        return process is not None and (process is self._killed or process.poll() is not None)

    def rest(self) -> None:
        """See ``Runner``: the process ends with its standard input."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(_REST_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._end()

    def _end(self) -> int:
        """Forget the process, which has ended or is made to; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()
        return process.wait()


def _start() -> subprocess.Popen[bytes]:
    # It shall run what this process runs, however that was found.
    roots = [str(Path(__file__).parents[3]), str(Path(pybroker_protocol.__path__[0]).parent)]
    path = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "pybroker.storage.cleaner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )


def encode(step: CleanedGroup | RoundEnd | BaseException) -> str:
    """What the process answers."""
    if isinstance(step, CleanedGroup):
        return json.dumps({"cleaned": step})
    if isinstance(step, RoundEnd):
        return json.dumps({"end": step})
    if isinstance(step, OSError):
        return json.dumps({"os_error": [step.errno, step.strerror, step.filename and str(step.filename)]})
    return json.dumps({"failed": f"{type(step).__name__}: {step}"})


def _decode(answer: dict[str, Any]) -> CleanedGroup | RoundEnd:
    if "cleaned" in answer:
        return CleanedGroup(*answer["cleaned"])
    if "end" in answer:
        clean_offset, stats = answer["end"]
        return RoundEnd(clean_offset, RoundStats(*stats))
    if "os_error" in answer:
        raise OSError(*answer["os_error"])
    raise CleaningFailed(answer["failed"])

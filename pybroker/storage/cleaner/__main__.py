"""The cleaner's process: jobs come as lines on standard input, ``next`` asks on, answers go to standard output.

Owns the throttling (``log.cleaner.io.max.bytes.per.second``) and the process's low priority: it runs when no other
process wants the processors, unless they leave it nothing.  Ends with its standard input, even in the middle of a
round: then the broker is gone, or stops.

Its priority is SCHED_IDLE: niceness alone lets it finish a slice of milliseconds, which was most of a producer's p99
beside it.  If the others leave it nothing for long it asks for a share, once.
"""

from __future__ import annotations

import gc
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator

from pybroker.storage.cleaner.cleaner_jobs import CleaningJob, Progress, Step
from pybroker.storage.cleaner.round import Round
from pybroker.storage.cleaner.runners import encode
from pybroker.storage.files import os_process

# Waiting so long, and so many times longer than running, is not politeness any more: logs would grow without end.
_IDLE_WAIT_S = 5
_IDLE_WAIT_FACTOR = 20
_LOOK_INTERVAL_S = 1


def starves(ran_s: float, waited_s: float) -> bool:
    """Whether the other processes leave nothing to one that runs only when they do not."""
    return waited_s > _IDLE_WAIT_S and waited_s > _IDLE_WAIT_FACTOR * ran_s


class Share:
    """What this process asks of the processors: what others leave, until that turns out to be nothing."""

    def __init__(self) -> None:
        self._next_look_s = 0.0

    def look(self, now_s: float) -> None:
        """Ask for a share, once, if it is due; called at every piece of work, and looks once in a while only."""
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_INTERVAL_S
        if starves(*os_process.processor_seconds()):
            os_process.run_among_others()
            self._next_look_s = math.inf


def _read_lines(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def _throttled(job: CleaningJob, share: Share) -> Iterator[Step]:
    """The steps of a round but its progress, no faster than the job allows."""
    started, done_bytes = time.monotonic(), 0
    for step in Round(job).steps():
        if not isinstance(step, Progress):
            yield step
            continue
        share.look(time.monotonic())
        done_bytes += step.bytes
        ahead_s = done_bytes / job.bytes_per_second - (time.monotonic() - started)
        if ahead_s > 0:
            time.sleep(ahead_s)


def _answer(steps: Iterator[Step]) -> str:
    try:
        step = next(steps)
        assert not isinstance(step, Progress)
        return encode(step)
    except Exception as error:
        return encode(error)


def main() -> None:
    """Serve until standard input ends."""
    os_process.run_when_idle()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to the whole terminal; the broker ends us
    gc.disable()  # nothing here makes cycles
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    share = Share()
    steps: Iterator[Step] = iter(())
    while True:
        line = lines.get()
        if line != "next\n":
            steps = _throttled(CleaningJob.from_json(line), share)
        sys.stdout.write(_answer(steps) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Processes that keep every core busy, and brokers that stand still for a moment: nobody may be given up for either.

Owns: the load, the stalls, and the count of what must not happen.  A process of the load works for nine tenths of each
period on its own core; as a module it is such a process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from harness.child_process import ChildProcess

from failover.brokers import OFFSETS, TOPIC, Brokers

DUTY: Final = 0.9
PERIOD_S: Final = 0.1
STALL_S: Final = 0.3
BETWEEN_STALLS_S: Final = 0.7


class Steadiness(NamedTuple):
    """While nobody died: ``told`` has lines of fencings and elections, ``moved`` counts leader epochs that grew."""

    told: list[str]
    moved: int

    @property
    def failures(self) -> int:
        return len(self.told) + self.moved


@contextmanager
def busy_cores(directory: Path) -> Iterator[None]:
    """A process for each core."""
    with ExitStack() as stack:
        for core in sorted(os.sched_getaffinity(0)):
            process = ChildProcess([sys.executable, "-m", "failover.load", str(core)], directory / "load.log")
            stack.callback(process.kill)
        yield


def watched(brokers: Brokers, trouble: Callable[[], None]) -> Steadiness:
    """Count what happened meanwhile."""
    brokers.wait_in_sync()
    before, positions = brokers.leaderships(TOPIC, OFFSETS), brokers.log_positions()
    trouble()
    time.sleep(2)
    after = brokers.leaderships(TOPIC, OFFSETS)
    moved = sum(1 for partition, each in after.items() if each.epoch != before[partition].epoch)
    return Steadiness(brokers.fencings_and_elections(positions), moved)


def stall_in_turn(brokers: Brokers, count: int, say: Callable[[str], None]) -> None:
    """Stop one broker after the other where it is, each for a moment."""
    ids = sorted(brokers.processes)
    for number in range(count):
        broker_id = ids[number % len(ids)]
        brokers.pause(broker_id)
        time.sleep(STALL_S)
        brokers.resume(broker_id)
        # Not always at the same place in the brokers' rounds.
        time.sleep(BETWEEN_STALLS_S + 0.013 * (number % 10))
        if number % 50 == 49:
            say(f"{number + 1} stalls")


def work(core: int) -> None:
    """Be busy on a core, for ever."""
    os.sched_setaffinity(0, {core})
    while True:
        end = time.perf_counter() + DUTY * PERIOD_S
        while time.perf_counter() < end:
            pass
        time.sleep((1 - DUTY) * PERIOD_S)


if __name__ == "__main__":
    work(int(sys.argv[1]))

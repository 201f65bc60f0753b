"""What a part is handed: the contestants to measure, how much of everything, and where to put the figures."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import psutil

from bench import contestants
from bench.contestants import FLOOR, Contestant, ProduceContestant
from bench.floor import Floor
from bench.measurements import Measurements
from bench.process_stats import cpu_seconds, load_average

# Apache Kafka first looks for what is to be removed half a minute after its start.
REMOVAL_S_MAX = 60

# A broker is stopped while the other is measured: its own controller shall not take it for dead.  Not where brokers are
# killed: a start waits till the former session is over.
LONG_SESSIONS = {"broker.session.timeout.ms": "3600000"}


@dataclass(frozen=True, slots=True)
class Volume:
    """How much is done: rounds per broker, seconds per measurement, bytes per bulk transfer, offsets committed, months
    of flights."""

    rounds: int
    seconds: float
    warmup_seconds: float
    bulk_bytes: int
    recovery_bytes: int
    growth_seconds: float
    commits: int
    flight_months: int


QUICK = Volume(
    rounds=5,
    seconds=2.5,
    warmup_seconds=1.0,
    bulk_bytes=1_000_000_000,
    recovery_bytes=5_000_000_000,
    growth_seconds=300,
    commits=200_000,
    flight_months=3,
)
FULL = Volume(
    rounds=7,
    seconds=8.0,
    warmup_seconds=5.0,
    bulk_bytes=4_000_000_000,
    recovery_bytes=5_000_000_000,
    growth_seconds=300,
    commits=1_000_000,
    flight_months=12,
)


class Process(Protocol):
    """A contestant's process, which keeps files somewhere."""

    @property
    def data_directory(self) -> Path: ...

    @property
    def pid(self) -> int: ...


T = TypeVar("T", bound=Process)


@dataclass(slots=True)
class Context:
    """One run of the benchmark."""

    brokers: list[str]
    volume: Volume
    root: Path
    measurements: Measurements = field(default_factory=Measurements)
    part: str = ""
    has_floor: bool = False

    def add(self, name: str, unit: str, broker: str, value: float) -> None:
        """Add a sample of the current part, and say so."""
        self.measurements.add(self.part, name, unit, broker, value)
        self.say(f"{self.part:>10}  {broker:<9} {name}: {value:,.2f} {unit}   (load {load_average():.1f})")

    def say(self, text: str) -> None:
        """Progress, for whoever watches."""
        print(text, file=sys.stderr, flush=True)

    @contextmanager
    def running(self, properties: Mapping[str, str] | None = None) -> Iterator[dict[str, Contestant]]:
        """All brokers of this run, started on fresh directories."""
        with contestants.running(self.brokers, self.root, {**LONG_SESSIONS, **(properties or {})}) as brokers:
            yield brokers

    @contextmanager
    def running_one(self, name: str) -> Iterator[Contestant]:
        """One broker on a fresh directory, alone on the machine."""
        with contestants.running([name], self.root) as brokers:
            yield brokers[name]

    @property
    def fewer_rounds(self) -> int:
        """Of a part whose single measurement takes half a minute: half of the rounds, rounded up."""
        return (self.volume.rounds + 1) // 2

    def with_floor(self, brokers: Mapping[str, Contestant]) -> dict[str, ProduceContestant]:
        """The brokers and, where this run has one, the floor."""
        return {**brokers, FLOOR: Floor(self.root / FLOOR)} if self.has_floor else {**brokers}

    def alternate(
        self,
        brokers: Mapping[str, T],
        measure: Callable[[str, T], None],
        rounds: int | None = None,
        *,
        written_bytes: int = 0,
    ) -> None:
        """Measure each contestant once per round, in alternating order, one load at a time.

        ``written_bytes``: what a measurement writes to its log, where that is much.
        """
        names = list(brokers)
        for number in range(self.volume.rounds if rounds is None else rounds):
            for name in names if number % 2 == 0 else reversed(names):
                settle(brokers.values())
                back_with_memory(self.root, written_bytes)
                with stopped(broker.pid for other, broker in brokers.items() if other not in (name, FLOOR)):
                    measure(name, brokers[name])


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Keep processes, with all that they have started, from running while another broker is measured.

    A JVM at rest compiles and collects in pauses, and workers ask each other for news.  A parent stops before its
    children and goes on behind them, because a supervisor ends what it finds stopped.
    """
    asked: list[int] = []
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            asked.append(pid)
            for child in psutil.Process(pid).children(recursive=True):
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGSTOP)
                    asked.append(child.pid)
        yield
    finally:
        for pid in reversed(asked):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def settle(brokers: Collection[Process] = ()) -> None:
    """Let what the last measurement left go to disk, and its topics' files from it: both slow down the next one."""
    os.sync()
    time.sleep(0.3)  # a deleted topic's directories are renamed by now
    deadline = time.monotonic() + REMOVAL_S_MAX
    while any(next(broker.data_directory.glob("*-delete"), None) for broker in brokers):
        if time.monotonic() > deadline:
            raise TimeoutError(f"a deleted topic's files are still there after {REMOVAL_S_MAX} s")
        time.sleep(0.05)
    os.sync()


def back_with_memory(directory: Path, size: int) -> None:
    """Let the machine have ``size`` bytes of memory at hand for its page cache.

    A virtual machine's host takes back what is free for a second or two, and gives it again page by page: a GB in the
    page cache then takes 4 s of CPU instead of 0.3 s, of whichever broker comes later behind the other's deletions.
    The kernel takes blocks of memory that suit a write, and so this writes what a broker writes.
    """
    chunk = bytes(1_000_000)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(size // len(chunk)):
            file.write(chunk)


class CpuMeter:
    """CPU seconds of a broker since this meter was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._started = cpu_seconds(pid)

    def seconds(self) -> float:
        """CPU seconds so far."""
        return cpu_seconds(self._pid) - self._started

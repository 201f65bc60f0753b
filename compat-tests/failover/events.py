"""What a client saw, and when: one line per event.

Owns: the form of the lines, reading them while they are written, the longest silence in them, and the comparison of
what was acknowledged with what lies in the log.  Times are nanoseconds of the machine's monotonic clock, which all of
its processes share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

ACKNOWLEDGED: Final = "acknowledged"
READ: Final = "read"
COMMITTED: Final = "committed"
FAILED: Final = "failed"  # a record that the client gave up


class Event(NamedTuple):
    """``partition`` and ``value`` are -1 where the event has none."""

    kind: str
    at_ns: int
    partition: int = -1
    value: int = -1

    def line(self) -> str:
        return f"{self.kind} {self.at_ns} {self.partition} {self.value}\n"


def parse(line: str) -> Event | None:
    """The event of a line; None for what a client's library printed."""
    words = line.split()
    if len(words) != 4 or words[0] not in {ACKNOWLEDGED, READ, COMMITTED, FAILED}:
        return None
    return Event(words[0], int(words[1]), int(words[2]), int(words[3]))


class Journal:
    """The events in a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._times: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.values: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)

    def read(self) -> None:
        """Take in what was written since."""
        with self._path.open("rb") as lines:
            lines.seek(self._position)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                event = parse(line.decode(errors="replace"))
                if event is not None:
                    self._times[event.kind, event.partition].append(event.at_ns)
                    self.values[event.kind, event.partition][event.value] += 1

    def count(self, kind: str) -> int:
        return sum(len(times) for (each, _), times in self._times.items() if each == kind)

    def has_after(self, kind: str, partition: int, at_ns: int) -> bool:
        """Whether such an event happened later than that."""
        times = self._times[kind, partition]
        return bool(times) and max(times[-100:]) > at_ns

    def longest_gap_ms(self, kind: str, partition: int, from_ns: int, to_ns: int) -> float:
        """The longest time between two events of which the later is in that span; its end counts as an event."""
        return longest_gap_ms(self._times[kind, partition], from_ns, to_ns)


def longest_gap_ms(times: Iterable[int], from_ns: int, to_ns: int) -> float:
    """See ``Journal.longest_gap_ms``."""
    ordered = sorted(times)
    first, last = bisect_left(ordered, from_ns), bisect_right(ordered, to_ns)
    before = ordered[first - 1] if first else from_ns
    points = [before, *ordered[first:last], to_ns]
    return max(later - earlier for earlier, later in pairwise(points)) / 1e6


class Account(NamedTuple):
    """What became of the acknowledged records."""

    acknowledged: int
    lost: int
    repeated: int  # in the log more than once


def account(acknowledged: Mapping[int, Counter[int]], in_log: Mapping[int, Counter[int]]) -> Account:
    """Compare by partition: how often each value was acknowledged, and how often it lies in the log."""
    lost = repeated = 0
    for partition, values in acknowledged.items():
        there = in_log.get(partition, Counter())
        lost += sum(1 for value in values if not there[value])
        repeated += sum(1 for value in values if there[value] > 1)
    return Account(sum(len(values) for values in acknowledged.values()), lost, repeated)

"""Checks of what one reader was given after another: onward, without a gap, and from where its group had committed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from histories.anomalies import Report
from histories.history import BROKER, NEVER_NS, Operation
from histories.index import Index


@dataclass(slots=True)
class Reader:
    """One process: where it stands in each partition, and from where it has to start in those that it was given."""

    positions: dict[str, int] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)

    def forget(self, keys: list[str]) -> None:
        for key in keys:
            self.positions.pop(key, None)
            self.starts.pop(key, None)


class CommittedOffset:
    """The least that a group's next reader of one partition may start at.

    A commit that nobody answered may take effect after a later one, until the broker that has got it is dead.
    """

    __slots__ = ("_last", "_late")

    def __init__(self) -> None:
        self._last: tuple[int, int] = (0, 0)  # when it completed, the offset
        self._late = NEVER_NS

    @property
    def least(self) -> int:
        return min(self._last[1], self._late)

    def take(self, commit: Operation, offset: int) -> None:
        if commit.outcome == "info":
            self._late = min(self._late, offset)
        elif commit.outcome == "ok":
            completed_ns, last = self._last
            was_concurrent = commit.invoked_ns < completed_ns
            self._last = (commit.completed_ns, min(offset, last) if was_concurrent else offset)

    def broker_died(self) -> None:
        self._last = (self._last[0], self.least)
        self._late = NEVER_NS


def check_polls(index: Index, report: Report) -> None:
    readers: dict[int, Reader] = defaultdict(Reader)
    committed: dict[tuple[str, str], CommittedOffset] = defaultdict(CommittedOffset)
    ranks = {True: _ranks(index.committed_offsets), False: _ranks(index.offsets)}
    for operation in index.history:
        kind, process = operation.kind, operation.process
        if kind == "poll":
            if operation.value:
                reads_committed = index.client(process).reads_committed
                _check_poll(operation, readers[process], ranks[reads_committed], report)
        elif kind == "commit":
            group = index.client(process).group or ""
            for key, offset in operation.value.items():
                committed[group, key].take(operation, offset)
        elif kind == "assigned":
            group = index.client(process).group or ""
            readers[process].forget(operation.value)
            for key in operation.value:
                readers[process].starts[key] = committed[group, key].least
        elif kind in {"assign", "revoked"}:
            readers[process].forget(operation.value)
        elif kind == "kill" and process == BROKER:
            for offset in committed.values():
                offset.broker_died()
        elif kind == "committed" and operation.outcome == "ok":
            for key, least in _least_offsets(committed, operation.value["group"]).items():
                found = operation.value["offsets"].get(key, 0)
                if found < least:
                    report.add("lost-commit", f"{operation.value['group']} stands at {found} of {key} after {least}")


def _least_offsets(committed: dict[tuple[str, str], CommittedOffset], group: str) -> dict[str, int]:
    return {key: offset.least for (of, key), offset in committed.items() if of == group}


def _ranks(offsets: dict[str, list[int]]) -> dict[str, dict[int, int]]:
    return {key: {offset: rank for rank, offset in enumerate(found)} for key, found in offsets.items()}


def _check_poll(poll: Operation, reader: Reader, ranks: dict[str, dict[int, int]], report: Report) -> None:
    positions = reader.positions
    for key, records in poll.value:
        if not records:
            continue
        if reader.starts and (start := reader.starts.pop(key, None)) is not None and records[0][0] < start:
            report.add("lost-commit", f"{poll} starts at {records[0][0]} of {key}, committed was {start}")
        rank_of = ranks[key]
        position = positions.get(key, -1)
        rank = rank_of.get(position, -1)
        for offset, value in records:
            if offset <= position:
                report.add("nonmonotonic-poll", f"{poll} is given {value} at {offset} of {key} after {position}")
            next_rank = rank_of.get(offset, -1)
            if next_rank > rank + 1 and rank >= 0:
                report.add("poll-skip", f"{poll} is given {offset} of {key} after {position}, something lies between")
            if next_rank >= 0:
                rank = next_rank
            position = offset
        positions[key] = position

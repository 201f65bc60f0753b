"""Checks of what one reader was given after another: onward, without a gap, and from where it had to start.

Where a group has to start is known within bounds: at the least that its answered commits allow, and at most at what
somebody had asked to commit by then.  Between those and the first record there may be offsets that hold nothing for
the reader, so the bound is the first record that it may be given.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from histories.anomalies import Report
from histories.history import BROKER, Operation
from histories.index import Index

GroupPartition = tuple[str, str]  # group, key


class Start(NamedTuple):
    """From where a reader has to start in a partition; without a group, that is the beginning."""

    group: str | None
    least: int


@dataclass(slots=True)
class Reader:
    """One process: where it stands in each partition, and from where it has to start in those that it was given."""

    positions: dict[str, int] = field(default_factory=dict)
    starts: dict[str, Start] = field(default_factory=dict)

    def forget(self, keys: list[str]) -> None:
        for key in keys:
            self.positions.pop(key, None)
            self.starts.pop(key, None)


class CommittedOffset:
    """The least that a group's next reader of one partition may start at.

    A commit that nobody answered may take effect after a later one, until the broker that has got it is dead or the
    partition has another owner, whose generation fences it: then it has taken effect or never will, and what that owner
    commits is behind it.
    """

    __slots__ = ("_fenced", "_last", "_late", "_owner")

    def __init__(self) -> None:
        self._last = (0, 0)  # when it completed, the offset
        self._late: dict[int, int] = {}  # process -> the least of what it may still commit
        self._fenced: list[int] = []
        self._owner = (0, 0)  # when it was given the partition, the process

    @property
    def least(self) -> int:
        return min([self._last[1], *self._late.values(), *self._fenced])

    def take(self, commit: Operation, offset: int) -> None:
        if commit.outcome == "info":
            self._late[commit.process] = min(self._late.get(commit.process, offset), offset)
        elif commit.outcome == "ok":
            completed_ns, last = self._last
            was_concurrent = commit.invoked_ns < completed_ns
            self._last = (commit.completed_ns, min(offset, last) if was_concurrent else offset)
            assigned_ns, owner = self._owner
            if commit.process == owner and commit.invoked_ns > assigned_ns:
                self._fenced.clear()

    def assigned(self, process: int, at_ns: int) -> None:
        self._owner = (at_ns, process)
        self._fenced += [self._late.pop(other) for other in list(self._late) if other != process]

    def broker_died(self) -> None:
        self._last = (self._last[0], self.least)
        self._late.clear()
        self._fenced.clear()


class AskedCommits:
    """What anybody has asked a group to commit of one partition, whatever came of it, but for aborted transactions."""

    __slots__ = ("_most", "_times_ns", "offsets")

    def __init__(self, asked: list[tuple[int, int]]) -> None:
        """Of (when it was asked for, the offset)."""
        self.offsets = {offset for _, offset in asked}
        self._times_ns: list[int] = []
        self._most: list[int] = []
        for asked_ns, offset in sorted(asked):
            self._times_ns.append(asked_ns)
            self._most.append(max(offset, self._most[-1] if self._most else 0))

    def most(self, at_ns: int) -> int:
        """The most that can have been committed by then."""
        asked = bisect_right(self._times_ns, at_ns)
        return self._most[asked - 1] if asked else 0


NOTHING_ASKED = AskedCommits([])


def asked_commits(index: Index) -> dict[GroupPartition, AskedCommits]:
    asked: dict[GroupPartition, list[tuple[int, int]]] = defaultdict(list)
    for of, asked_ns, offset in _asked(index):
        asked[of].append((asked_ns, offset))
    return {of: AskedCommits(found) for of, found in asked.items()}


def _asked(index: Index) -> Iterator[tuple[GroupPartition, int, int]]:
    for operation in index.history:
        if operation.kind == "commit":
            # A refusal counts as well: it may be the answer to a second attempt of the client library.
            group = index.client(operation.process).group or ""
            for key, offset in operation.value.items():
                yield (group, key), operation.invoked_ns, offset
    for transaction in index.transactions:
        if transaction.group is not None and transaction.operation.outcome != "fail":
            for key, offset, _ in transaction.consumed:
                yield (transaction.group, key), transaction.operation.invoked_ns, offset + 1


class PollChecks:
    """One pass over a history, in the order of completion."""

    def __init__(self, index: Index, report: Report) -> None:
        self._index = index
        self._report = report
        self._readers: dict[int, Reader] = defaultdict(Reader)
        self._committed: dict[GroupPartition, CommittedOffset] = defaultdict(CommittedOffset)
        self._asked = asked_commits(index)
        # Offsets that readers of committed data, or else of everything, are to be given; and each with its rank.
        self._visible = {True: index.committed_offsets, False: index.offsets}
        self._ranks = {isolation: _ranks(offsets) for isolation, offsets in self._visible.items()}

    def take(self, operation: Operation) -> None:
        kind, process = operation.kind, operation.process
        if kind == "poll":
            for key, records in operation.value or ():
                if records:
                    self._check_start(operation, key, records[0][0])
                    self._check_order(operation, key, records)
        elif kind == "commit":
            group = self._index.client(process).group or ""
            for key, offset in operation.value.items():
                self._committed[group, key].take(operation, offset)
        elif kind == "assigned":
            self._readers[process].forget(operation.value)
            group = self._index.client(process).group or ""
            for key in operation.value:
                committed = self._committed[group, key]
                self._readers[process].starts[key] = Start(group, committed.least)
                committed.assigned(process, operation.completed_ns)
        elif kind == "assign":
            self._readers[process].forget(operation.value)
            for key in operation.value:
                self._readers[process].starts[key] = Start(self._index.client(process).group, 0)
        elif kind == "revoked":
            self._readers[process].forget(operation.value)
        elif kind == "kill" and process == BROKER:
            for committed in self._committed.values():
                committed.broker_died()
        elif kind == "committed" and operation.outcome == "ok":
            self._check_committed(operation.value["group"], operation.value["offsets"])

    def _check_start(self, poll: Operation, key: str, first: int) -> None:
        start = self._readers[poll.process].starts.pop(key, None)
        if start is None:
            return
        if first < start.least:
            self._report.add("lost-commit", f"{poll} starts at {first} of {key}, committed was {start.least}")
        most = 0 if start.group is None else self._asked_of(start.group, key).most(poll.completed_ns)
        visible = self._visible[self._index.client(poll.process).reads_committed].get(key, [])
        passed = bisect_left(visible, first) - bisect_left(visible, most)
        if passed > 0:
            example = f"{poll} starts at {first} of {key}, past {passed} records from {most} on"
            self._report.add("skipped-start", example)

    def _check_order(self, poll: Operation, key: str, records: list[list[int]]) -> None:
        positions = self._readers[poll.process].positions
        rank_of = self._ranks[self._index.client(poll.process).reads_committed][key]
        position = positions.get(key, -1)
        rank = rank_of.get(position, -1)
        for offset, value in records:
            if offset <= position:
                self._report.add("nonmonotonic-poll", f"{poll} is given {value} at {offset} of {key} after {position}")
            next_rank = rank_of.get(offset, -1)
            if next_rank > rank + 1 and rank >= 0:
                self._report.add(
                    "poll-skip", f"{poll} is given {offset} of {key} after {position}, something lies between"
                )
            if next_rank >= 0:
                rank = next_rank
            position = offset
        positions[key] = position

    def _check_committed(self, group: str, offsets: dict[str, int]) -> None:
        """What a group's offsets are found to be in the end."""
        least = {key: committed.least for (of, key), committed in self._committed.items() if of == group}
        for key in sorted(least.keys() | offsets.keys()):
            found = offsets.get(key, 0)
            if found < least.get(key, 0):
                self._report.add("lost-commit", f"{group} stands at {found} of {key} after {least[key]}")
            elif found > 0 and found not in self._asked_of(group, key).offsets:
                self._report.add("unasked-commit", f"{group} stands at {found} of {key}")

    def _asked_of(self, group: str, key: str) -> AskedCommits:
        return self._asked.get((group, key), NOTHING_ASKED)


def check_polls(index: Index, report: Report) -> None:
    checks = PollChecks(index, report)
    for operation in index.history:
        checks.take(operation)


def _ranks(offsets: dict[str, list[int]]) -> dict[str, dict[int, int]]:
    return {key: {offset: rank for rank, offset in enumerate(found)} for key, found in offsets.items()}

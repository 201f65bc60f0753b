"""A correct Kafka in miniature, which makes histories that have nothing wrong with them.

Owns: logs with transactions and markers, producers, readers and groups that take turns at random, and the events that
they record.  Everything follows from one seed, but that each role gets something done.  Shares no code with the checker
but the form of events.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from histories.history import BROKER, UNKNOWN_OFFSET, Event, EventType

PLAIN_KEYS = ("plain/0", "plain/1")
TRANSACTIONAL_KEYS = ("txn/0", "txn/1")
OUTPUT_KEY = "output/0"
KEYS = (*PLAIN_KEYS, *TRANSACTIONAL_KEYS, OUTPUT_KEY)
READERS_GROUP, TRANSFORM_GROUP = "readers", "transform"

Turns = Generator[None, None, Any]


@dataclass
class Entry:
    """One offset: a record, or a marker where ``value`` is ``None``."""

    value: int | None
    transaction: Open | None = None


@dataclass
class Open:
    """A transaction; what it wrote may be seen by readers of committed data once ``outcomes`` has the key."""

    first_offsets: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, bool] = field(default_factory=dict)  # key -> whether it was committed


class Model:
    """Records a history by playing it; ``events`` is it."""

    def __init__(self, seed: int, turns: int = 12) -> None:
        self.random = Random(seed)
        self.turns = turns
        self.events: list[Event] = []
        self.logs: dict[str, list[Entry]] = {key: [] for key in KEYS}
        self.open: set[int] = set()
        self._transactions: dict[int, Open] = {}
        self._now = 1_000
        self._next_value = 1
        self._next_process = 0
        self._has_committed: set[str | None] = set()  # of transactions, by group
        self.broker_is_dead = False
        self._play()

    def _play(self) -> None:
        actors: list[Turns] = [
            self._producer("plain"),
            self._producer("idempotent"),
            self._transactional_producer(),
            self._transactional_producer(),
            self._reader("read_committed"),
            self._reader("read_uncommitted"),
            self._group(),
            self._transform(),
            self._faults(),
        ]
        while actors:
            actor = self.random.choice(actors)
            try:
                next(actor)
            except StopIteration:
                actors.remove(actor)
        self._read_to_the_end("read_committed")
        self._read_to_the_end("read_uncommitted")

    # Events

    def process(self, **client: Any) -> int:
        self._next_process += 1
        self.event(self._next_process, "ok", "open", {"library": "model", **client})
        return self._next_process

    def event(self, process: int, event_type: EventType, kind: str, value: Any = None) -> None:
        self._now += self.random.randint(1, 50)
        self.events.append(Event(self._now, process, event_type, kind, value))

    def value(self) -> int:
        self._next_value += 1
        return self._next_value

    # The log

    def append(self, key: str, value: int | None, transaction: Open | None = None) -> int:
        self.logs[key].append(Entry(value, transaction))
        offset = len(self.logs[key]) - 1
        if transaction is not None and value is not None:
            transaction.first_offsets.setdefault(key, offset)
        return offset

    def end_transaction(self, transaction: Open, keys: set[str], commit: bool) -> Turns:
        """The markers, in any order; a coordinator that dies in between writes some of them twice."""
        for key in sorted(keys, key=lambda _: self.random.random()):
            yield
            self.append(key, None, transaction)
            transaction.outcomes[key] = commit
            if self.broker_is_dead and self.random.random() < 0.5:
                self.append(key, None, transaction)

    def last_stable_offset(self, key: str) -> int:
        log = self.logs[key]
        for offset, entry in enumerate(log):
            if entry.transaction is not None and key not in entry.transaction.outcomes:
                return offset
        return len(log)

    def read(self, key: str, position: int, isolation: str, records_max: int) -> tuple[list[list[int]], int]:
        """([offset, value] of what may be seen, where to go on)."""
        log = self.logs[key]
        end = self.last_stable_offset(key) if isolation == "read_committed" else len(log)
        found: list[list[int]] = []
        while position < end and len(found) < records_max:
            entry = log[position]
            aborted = entry.transaction is not None and not entry.transaction.outcomes.get(key, True)
            if entry.value is not None and not (aborted and isolation == "read_committed"):
                found.append([position, entry.value])
            position += 1
        return found, position

    # Producers

    def _producer(self, kind: str) -> Turns:
        process = self.process(producer=kind)
        for turn in range(self.turns):
            key = self.random.choice(KEYS[:-1])
            values = [self.value() for _ in range(self.random.randint(1, 3))]
            self.event(process, "invoke", "send", [[key, value, None] for value in values])
            yield
            outcomes = ["ok", "ok", "ok", "ok", "info, written", "info, nothing", "fail"]
            outcome = self.random.choice(outcomes) if turn > 0 else "ok"
            sent: list[list[Any]] = []
            for value in values:
                offset = self.append(key, value) if outcome in {"ok", "info, written"} else None
                if kind == "plain" and self.broker_is_dead and outcome == "ok":
                    self.append(key, value)
                if self.random.random() < 0.1 and offset is not None:
                    offset = UNKNOWN_OFFSET
                sent.append([key, value, offset if outcome == "ok" else None])
                yield
            if outcome == "ok":
                self.event(process, "ok", "send", sent)
            elif outcome == "fail":
                self.event(process, "fail", "send", sent)
            elif self.random.random() < 0.5:
                self.event(process, "info", "send", sent)
            else:  # never heard of again
                self.event(process, "info", "crash")
                process = self.process(producer=kind)

    def _transactional_producer(self) -> Turns:
        self._next_process += 1
        transactional_id = f"id {self._next_process}"
        process = self.process(producer="transactional", transactional_id=transactional_id)
        for _ in range(self.turns):
            targets = [self.random.choice(TRANSACTIONAL_KEYS) for _ in range(self.random.randint(1, 4))]
            lives = yield from self._transaction(process, targets, consumed=[], group=None, offsets={}, committed={})
            if not lives:
                process = self.process(producer="transactional", transactional_id=transactional_id)

    def _transaction(
        self,
        process: int,
        targets: list[str],
        consumed: list[Any],
        group: str | None,
        offsets: dict[str, int],
        committed: dict[str, int],
    ) -> Turns:
        """One transaction; returns whether its process is to go on, as a generator does."""
        sends: list[list[Any]] = [[key, self.value(), None] for key in targets]
        described: dict[str, Any] = {"consumed": consumed, "group": group, "commit": None}
        self.event(process, "invoke", "txn", {**described, "sends": [list(send) for send in sends]})
        transaction = Open()
        outcomes = ["ok", "ok", "ok", "abort", "info, committed", "info, aborted", "crash, committed", "crash, aborted"]
        outcome = self.random.choice(outcomes) if group in self._has_committed else "ok"
        self._has_committed.add(group)
        written = sends[: self.random.randint(0, len(sends))] if outcome == "crash, aborted" else sends
        for send in written:
            yield
            send[2] = self.append(send[0], send[1], transaction)
        commit = outcome == "ok" or outcome.endswith("committed")
        if outcome not in {"abort", "crash, aborted"}:
            self._now += 1
            described["commit"] = self._now
        yield from self.end_transaction(transaction, {send[0] for send in written}, commit)
        if commit:
            committed.update(offsets)
        yield
        value = {**described, "sends": sends}
        if outcome.startswith("crash"):
            return False
        self.event(process, {"ok": "ok", "abort": "fail"}.get(outcome, "info"), "txn", value)  # type: ignore[arg-type]
        return not outcome.startswith("info")

    # Readers

    def _reader(self, isolation: str) -> Turns:
        process = self.process(isolation=isolation)
        positions: dict[str, int] = {}
        turn, has_read = 0, False
        while turn < self.turns * 2 or not has_read:
            turn += 1
            if not positions or self.random.random() < 0.1:
                positions = dict.fromkeys(self.random.sample(KEYS, self.random.randint(1, len(KEYS))), 0)
                self.event(process, "ok", "assign", list(positions))
            brought = yield from self._poll(process, positions, isolation)
            has_read = has_read or bool(brought)

    def _poll(self, process: int, positions: dict[str, int], isolation: str) -> Turns:
        """One poll, which moves the positions; returns what it brought."""
        self.event(process, "invoke", "poll")
        yield
        brought = []
        for key, position in positions.items():
            records, positions[key] = self.read(key, position, isolation, self.random.randint(0, 6))
            if records:
                brought.append([key, records])
        self.event(process, "ok", "poll", brought)
        return brought

    def _group(self) -> Turns:
        """Two members with commits of their own, which are given the partitions anew now and then."""
        members = [self.process(isolation="read_committed", group=READERS_GROUP) for _ in range(2)]
        committed = dict.fromkeys(PLAIN_KEYS, 0)
        assignment: dict[int, dict[str, int]] = {member: {} for member in members}
        has_committed = False
        for turn in range(self.turns * 2):
            if turn == 0 or self.random.random() < 0.15:
                for member in members:
                    if assignment[member]:
                        self.event(member, "ok", "revoked", list(assignment[member]))
                    assignment[member] = {}
                for key in PLAIN_KEYS:
                    assignment[self.random.choice(members)][key] = committed[key]
                for member in members:
                    self.event(member, "ok", "assigned", list(assignment[member]))
            member = self.random.choice(members)
            yield from self._poll(member, assignment[member], "read_committed")
            if self.random.random() < 0.6:
                self.event(member, "invoke", "commit", dict(assignment[member]))
                yield
                outcome = self.random.choice(["ok", "ok", "info", "fail"]) if has_committed else "ok"
                has_committed = True
                if outcome == "ok" or (outcome == "info" and self.random.random() < 0.5):
                    committed.update(assignment[member])
                self.event(member, outcome, "commit")  # type: ignore[arg-type]
        self.event(members[0], "ok", "committed", {"group": READERS_GROUP, "offsets": committed})

    def _transform(self) -> Turns:
        """One member that consumes, writes and commits in one transaction; some of what it writes it is given again."""
        client = {
            "producer": "transactional",
            "transactional_id": TRANSFORM_GROUP,
            "isolation": "read_committed",
            "group": TRANSFORM_GROUP,
        }
        committed = dict.fromkeys(TRANSACTIONAL_KEYS, 0)
        process = -1
        positions: dict[str, int] = {}
        turn = 0
        while turn < self.turns * 2 or TRANSFORM_GROUP not in self._has_committed:
            turn += 1
            if not positions:
                process = self.process(**client)
                positions = dict(committed)
                self.event(process, "ok", "assigned", list(positions))
            consumed: Any = yield from self._poll(process, positions, "read_committed")
            if not consumed:
                continue
            targets = [self.random.choice((OUTPUT_KEY, *TRANSACTIONAL_KEYS)) for _ in range(self.random.randint(1, 2))]
            offsets = {key: records[-1][0] + 1 for key, records in consumed}
            lives = yield from self._transaction(process, targets, consumed, TRANSFORM_GROUP, offsets, committed)
            if not lives:
                positions = {}
            elif committed != positions:
                positions = dict(committed)
                self.event(process, "ok", "assign", list(positions))
        self.event(process, "ok", "committed", {"group": TRANSFORM_GROUP, "offsets": committed})

    # Faults and the end

    def _faults(self) -> Turns:
        for _ in range(3):
            for _ in range(self.turns * 4):
                yield
            kind = self.random.choice(["kill", "pause"])
            self.event(BROKER, "invoke", kind)
            self.broker_is_dead = kind == "kill"
            for _ in range(self.turns):
                yield
            self.broker_is_dead = False
            self.event(BROKER, "ok", kind)

    def _read_to_the_end(self, isolation: str) -> None:
        process = self.process(isolation=isolation)
        self.event(process, "ok", "assign", list(KEYS))
        for key in KEYS:
            position = 0
            while position < len(self.logs[key]):
                self.event(process, "invoke", "poll")
                records, position = self.read(key, position, isolation, 10)
                self.event(process, "ok", "poll", [[key, records]] if records else [])
        self.event(process, "ok", "final", {key: len(self.logs[key]) for key in KEYS})

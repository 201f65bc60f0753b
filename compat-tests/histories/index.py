"""What a history says of the logs: who wrote what, where it was read, and which transactions took effect.

Owns: one pass over the operations, and what several checks ask for.  Judges nothing.

Reads are believed: a value is where somebody read it.  An acknowledgement tells a place only of what nobody read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from histories.history import BROKER, Client, HistoryError, Operation

Record = tuple[str, int, int]  # key, offset, value
NO_CLIENT = Client()


@dataclass(slots=True)
class Write:
    """One value that was sent; ``offset`` is the acknowledgement's, or ``UNKNOWN_OFFSET``, or ``None`` without one."""

    value: int
    key: str
    offset: int | None
    operation: Operation

    @property
    def is_acknowledged(self) -> bool:
        return self.offset is not None

    @property
    def is_transactional(self) -> bool:
        return self.operation.kind == "txn"

    def __str__(self) -> str:
        return f"{self.value} in {self.key} by {self.operation}"


@dataclass(slots=True)
class Transaction:
    """One transaction; ``committed`` is ``None`` where the history does not tell."""

    operation: Operation
    transactional_id: str
    writes: list[Write]
    consumed: list[Record]
    group: str | None
    commit_ns: int | None
    committed: bool | None = None


@dataclass(slots=True)
class FinalReading:
    """What the readers of one isolation level found that read everything, after everything else."""

    ends: dict[str, int] = field(default_factory=dict)
    values: set[int] = field(default_factory=set)


class Index:
    """The operations of a history by what they touched."""

    def __init__(self, history: Sequence[Operation]) -> None:
        self.history = history
        self.clients: dict[int, Client] = {}
        self.writes: dict[int, Write] = {}
        self.acknowledged: dict[str, set[int]] = defaultdict(set)  # key -> offsets
        self.transactions: list[Transaction] = []
        self.kills: list[Operation] = []
        self.pauses: list[Operation] = []
        self.faults: list[Operation] = []  # of a cluster
        self.log: dict[str, dict[int, int]] = {}  # key -> offset -> the first value read there
        self.overlaps: dict[tuple[str, int], set[int]] = {}
        self.places: dict[int, tuple[str, int]] = {}  # value -> where it was read first
        self.further_places: dict[int, set[tuple[str, int]]] = {}
        self.first_committed_read: dict[int, Operation] = {}
        self.final_committed = FinalReading()
        self.final_uncommitted = FinalReading()
        self._final_processes: set[int] = set()
        self._take_writes_and_clients()
        self._take_reads()
        self._resolve_transactions()
        # By key, the offsets, in order, that readers of committed data and readers of everything are to be given.
        self.committed_offsets = {key: self._committed_offsets(log) for key, log in self.log.items()}
        self.offsets = {
            key: sorted(offset for offset, value in log.items() if value in self.writes)
            for key, log in self.log.items()
        }

    def client(self, process: int) -> Client:
        return self.clients.get(process, NO_CLIENT)

    def place(self, write: Write) -> int | None:
        """The offset at which a write lies, as far as that is known."""
        if write.value in self.further_places:
            return min((offset for key, offset in self.further_places[write.value] if key == write.key), default=None)
        found = self.places.get(write.value)
        if found is not None and found[0] == write.key:
            return found[1]
        return write.offset if write.offset is not None and write.offset >= 0 else None

    def _take_writes_and_clients(self) -> None:
        for operation in self.history:
            kind, value = operation.kind, operation.value
            if kind == "send":
                self._writes_of(operation, value)
            elif kind == "txn":
                self._take_transaction(operation)
            elif kind == "open":
                self.clients[operation.process] = Client(**value)
            elif kind == "kill" and operation.process == BROKER:
                self.kills.append(operation)
            elif kind == "pause" and operation.process == BROKER:
                self.pauses.append(operation)
            elif kind == "fault":
                self.faults.append(operation)
            elif kind == "final" and operation.outcome == "ok":
                committed = self.client(operation.process).reads_committed
                final = self.final_committed if committed else self.final_uncommitted
                final.ends.update(value)
                self._final_processes.add(operation.process)

    def _writes_of(self, operation: Operation, sends: Sequence[Any]) -> list[Write]:
        written: list[Write] = []
        for key, value, offset in sends:
            if value in self.writes:
                raise HistoryError(f"{value} is written twice: by {operation} and by {self.writes[value].operation}")
            write = self.writes[value] = Write(value, key, offset, operation)
            written.append(write)
            if offset is not None and offset >= 0:
                self.acknowledged[key].add(offset)
        return written

    def _take_transaction(self, operation: Operation) -> None:
        value = operation.value
        consumed = [(key, offset, read) for key, records in value["consumed"] for offset, read in records]
        client = self.client(operation.process)
        transactional_id = client.transactional_id or f"process {operation.process}"
        writes = self._writes_of(operation, value["sends"])
        self.transactions.append(
            Transaction(operation, transactional_id, writes, consumed, value["group"], value["commit"])
        )

    def _take_reads(self) -> None:
        for operation in self.history:
            if operation.kind != "poll" or not operation.value:
                continue
            reads_committed = self.client(operation.process).reads_committed
            final: set[int] | None = None
            if operation.process in self._final_processes:
                final = (self.final_committed if reads_committed else self.final_uncommitted).values
            for key, records in operation.value:
                self._take_records(key, records)
                if final is not None:
                    final.update(value for _, value in records)
                if reads_committed:
                    for _, value in records:
                        self.first_committed_read.setdefault(value, operation)

    def _take_records(self, key: str, records: Sequence[tuple[int, int]]) -> None:
        log = self.log.setdefault(key, {})
        for offset, value in records:
            known = log.setdefault(offset, value)
            if known != value:
                self.overlaps.setdefault((key, offset), {known}).add(value)
            place = self.places.get(value)
            if place is None:
                self.places[value] = (key, offset)
            elif place[1] != offset or place[0] != key:
                self.further_places.setdefault(value, {place}).add((key, offset))

    def _resolve_transactions(self) -> None:
        """What nobody was told took effect when a committed read shows any of it, and did not when all was read."""
        for transaction in self.transactions:
            outcome = transaction.operation.outcome
            if outcome != "info":
                transaction.committed = outcome == "ok"
            elif any(write.value in self.first_committed_read for write in transaction.writes):
                transaction.committed = True
            elif transaction.writes and all(write.key in self.final_committed.ends for write in transaction.writes):
                transaction.committed = False

    def _committed_offsets(self, log: dict[int, int]) -> list[int]:
        return sorted(
            offset
            for offset, value in log.items()
            if value in self.first_committed_read
            and (write := self.writes.get(value)) is not None
            and write.operation.outcome != "fail"
        )

    def polls(self) -> Iterator[Operation]:
        """The polls that brought something."""
        return (operation for operation in self.history if operation.kind == "poll" and operation.value)

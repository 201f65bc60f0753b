"""What the simulation knows to be true: what was written, acknowledged, assigned and committed; and the invariants.

Owns: the oracles.  Each hears of what clients sent and were told, and looks at the broker's files and offsets after
every event.  Owns no event and no client.

The logs are read from their files, by the tests' own reader, never through the broker.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NamedTuple

from tests.storage.batches import parse

CONTROL, TRANSACTIONAL = 0x20, 0x10
HEADER_BYTES = 61
OFFSETS_TOPIC = "__consumer_offsets"
FLEETING = "fleeting"  # a topic that is deleted and made anew, and whose records are deleted
DELETION = b""  # the value of a record that deletes its key, as ``Batch.records`` gives it
# What the cleaner writes into a batch: a delete horizon, and that there is one.
DELETE_HORIZON = 0x40


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(invariant, detail)
        self.invariant = invariant
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"


# How often each invariant was checked in this process, and each rare state was reached.
CHECKED: Counter[str] = Counter()
REACHED: Counter[str] = Counter()


def check(condition: bool, invariant: str, detail: str) -> None:
    """Raise ``Violation`` unless the condition holds."""
    CHECKED[invariant] += 1
    if not condition:
        raise Violation(invariant, detail)


class Batch(NamedTuple):
    """A batch as it lies in a log."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    sequence: int
    attributes: int
    data: bytes

    @property
    def leader_epoch(self) -> int:
        """Whose leader of the partition has written it."""
        return int.from_bytes(self.data[12:16], "big", signed=True)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def commits(self) -> bool:
        """Of a control batch: whether it is a commit marker."""
        return self._marks(b"\0\1")

    @property
    def aborts(self) -> bool:
        """Of a control batch: whether it is an abort marker; what the cleaner leaves of either has no record."""
        return self._marks(b"\0\0")

    def _marks(self, kind: bytes) -> bool:
        return any(key[2:4] == kind for _, key, _ in self.records())

    def is_left_of(self, written: Batch) -> bool:
        """Whether this is what may be left of a batch that was written, after some rounds of cleaning."""
        same = self._replace(data=b"", attributes=self.attributes & ~DELETE_HORIZON)
        return same == written._replace(data=b"") and {*self.records()} <= {*written.records()}

    def records(self) -> list[tuple[int, bytes, bytes]]:
        """(offset, key, value) of each record; a missing key or value is empty."""
        found, position = [], 61
        count = struct.unpack_from(">i", self.data, 57)[0]
        for _ in range(count):
            _, position = _varint(self.data, position)
            _, position = _varint(self.data, position + 1)
            delta, position = _varint(self.data, position)
            key, position = _field(self.data, position)
            value, position = _field(self.data, position)
            headers, position = _varint(self.data, position)
            assert headers == 0, "nothing here writes headers"
            found.append((self.base_offset + delta, key, value))
        return found


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position + 1
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def _field(data: bytes, position: int) -> tuple[bytes, int]:
    length, position = _varint(data, position)
    if length < 0:
        return b"", position
    return data[position : position + length], position + length


def batches_of(data: bytes) -> Iterator[Batch]:
    """The batches of ``data``, each whole and with its checksum right."""
    for base_offset, last_offset, piece in parse(data):
        attributes = struct.unpack_from(">h", piece, 21)[0]
        producer_id, epoch, sequence = struct.unpack_from(">qhi", piece, 43)
        yield Batch(base_offset, last_offset, producer_id, epoch, sequence, attributes, piece)


def whole_batches(data: bytes) -> Iterator[Batch]:
    """The batches of ``data`` up to the first that is not all there."""
    position = 0
    while position + HEADER_BYTES <= len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        if size < HEADER_BYTES or position + size > len(data):
            return
        try:
            yield from batches_of(data[position : position + size])
        except AssertionError:
            return  # its checksum is wrong
        position += size


class LogModel:
    """One partition: every batch that was ever written to it, and what was acknowledged.

    Of a ``compacted`` one records may be missing that another superseded, that were aborted or, if ``deletions_go``,
    that delete their key.
    """

    def __init__(self, name: str, compacted: bool = False, deletions_go: bool = True) -> None:
        self.name = name
        self.compacted = compacted
        self.deletions_go = deletions_go
        self._keyed: dict[int, tuple[bytes, bytes]] = {}  # of a compacted one: offset -> key and value
        self._offsets: dict[bytes, list[int]] = {}  # and key -> its offsets
        self.batches: list[Batch] = []
        self.end_offset = 0
        self.start_offset = 0  # the furthest that any replica has begun at: what is before it may be gone
        self.acknowledged_end = 0  # what a power failure has to leave
        self.values: dict[int, bytes] = {}
        self.offset_of: dict[bytes, int] = {}
        self._sequences: dict[tuple[int, int], int] = {}  # (producer id, epoch) -> the next sequence number
        self.open_transactions: dict[int, int] = {}  # producer id -> its first offset
        self._markers: dict[int, list[Batch]] = {}
        self._skipped: dict[int, int] = {}  # offsets that nobody gets, by their first: past their last

    def batches_from(self, offset: int) -> Iterator[Batch]:
        """The batches at an offset and behind."""
        start = bisect_left(self.batches, offset, key=lambda batch: batch.base_offset)
        return map(self.batches.__getitem__, range(start, len(self.batches)))

    @property
    def first_open_offset(self) -> int:
        """Where the first transaction begins that has no marker yet."""
        return min(self.open_transactions.values(), default=1 << 62)

    def append(self, batch: Batch) -> None:
        """A batch has come to lie at the end."""
        if batch.base_offset == self._skipped.get(self.end_offset):
            self.end_offset = batch.base_offset
        check(
            batch.base_offset == self.end_offset,
            "offsets are given once and without a gap",
            f"{self.name}: a batch at {batch.base_offset} where {self.end_offset} is next",
        )
        if batch.producer_id >= 0 and not batch.is_control and batch.sequence >= 0:
            self._check_sequence(batch)
        if batch.is_control:
            self.open_transactions.pop(batch.producer_id, None)
            self._markers.setdefault(batch.producer_id, []).append(batch)
        elif batch.is_transactional:
            self.open_transactions.setdefault(batch.producer_id, batch.base_offset)
        self.batches.append(batch)
        self.end_offset = batch.last_offset + 1
        if self.compacted and not batch.is_control:
            for offset, key, value in batch.records():
                self._keyed[offset] = key, value
                self._offsets.setdefault(key, []).append(offset)
        if not batch.is_control and not self.name.startswith("__"):
            for offset, _, value in batch.records():
                check(
                    value not in self.offset_of or value == DELETION,
                    "no duplicate (producer id, epoch, sequence)",
                    f"{self.name}: {value[:40]!r} lies at {self.offset_of.get(value)} and at {offset}",
                )
                self.values[offset] = value
                self.offset_of[value] = offset

    def _check_sequence(self, batch: Batch) -> None:
        key = (batch.producer_id, batch.producer_epoch)
        expected = self._sequences.get(key, batch.sequence if self.name.startswith("__") else 0)
        check(
            batch.sequence == expected,
            "no duplicate (producer id, epoch, sequence)",
            f"{self.name}: {key} wrote sequence {batch.sequence} at offset {batch.base_offset}, {expected} was next",
        )
        self._sequences[key] = batch.sequence + batch.last_offset - batch.base_offset + 1

    def recovered(self, found: list[Batch], must_keep: int) -> int:
        """The log after a restart: what was there, cut at ``must_keep`` at the earliest.  Returns what was lost."""
        same, kept = self._common_start(found)
        end = self.batches[kept - 1].last_offset + 1 if kept else 0
        check(
            end >= must_keep,
            "acknowledged data is there after recovery",
            f"{self.name}: what was written up to {must_keep} is the same up to {end} only",
        )
        lost = self.end_offset - end
        if lost:
            self._truncate(kept)
        for batch in found[same:]:
            self.append(batch)
        return lost

    def skip_to(self, offset: int) -> None:
        """A new segment's name was on the disk, and the end of the one before, which nobody had synced, was not.

        Its offsets are not given again: in a compacted log nobody could tell them from cleaned ones.
        """
        if offset > self.end_offset:
            self._skipped[self.end_offset] = offset
            self.end_offset = offset

    def _common_start(self, found: list[Batch]) -> tuple[int, int]:
        """How many batches of ``found``, and of those that were written, are the same."""
        if not self.compacted:
            same = 0
            while same < len(found) and same < len(self.batches) and found[same] == self.batches[same]:
                same += 1
            return same, same
        written = {batch.base_offset: position for position, batch in enumerate(self.batches)}
        same = kept = 0
        there: set[int] = set()
        for batch in found:
            position = written.get(batch.base_offset)
            if position is None or not batch.is_left_of(self.batches[position]):
                break
            there.update(offset for offset, _, _ in batch.records())
            same, kept = same + 1, position + 1
        self._check_cleaned(0, self.batches[kept - 1].last_offset + 1 if kept else 0, there)
        return same, kept

    def check_replica(self, where: str, found: list[Batch], start: int, end: int, invariant: str) -> None:
        """A replica's files from ``start`` to ``end`` are the log, or what the cleaner may have left of it."""
        expected = {
            batch.base_offset: batch
            for batch in takewhile(lambda batch: batch.base_offset < end, self.batches_from(start))
        }
        there: set[int] = set()
        for batch in found:
            written = expected.pop(batch.base_offset, None)
            if written is None:
                check(
                    not start <= batch.base_offset < end, invariant, f"{where}: nothing begins at {batch.base_offset}"
                )
                continue
            same = batch.is_left_of(written) if self.compacted else batch == written
            check(same, invariant, f"{where}: other bytes from {batch.base_offset} to {batch.last_offset}")
            if self.compacted:
                there.update(offset for offset, _, _ in batch.records())
        if self.compacted:
            self._check_cleaned(start, end, there)
        else:
            check(not expected, invariant, f"{where}: nothing is left of {list(expected)}")

    def _check_cleaned(self, start: int, end: int, there: set[int]) -> None:
        """Only those records from ``start`` to ``end`` are missing that the cleaner may take away."""
        for offset in range(start, end):
            if offset not in there and offset in self._keyed:
                key, value = self._keyed[offset]
                check(
                    (value == DELETION and self.deletions_go)
                    or self._is_aborted(offset)
                    or self._is_superseded(offset, key),
                    "cleaning leaves the last value of every key",
                    f"{self.name}: {key!r} at {offset} is missing, and nothing superseded it",
                )

    def _is_superseded(self, offset: int, key: bytes) -> bool:
        later = self._offsets[key]
        return any(self.is_visible(other) for other in later[bisect_right(later, offset) :])

    def _is_aborted(self, offset: int) -> bool:
        return not self.is_visible(offset) and self.outcome_at(offset) is False

    def _truncate(self, kept: int) -> None:
        batches = self.batches[:kept]
        self.batches, self.values, self.offset_of, self._sequences, self.end_offset = [], {}, {}, {}, 0
        self.open_transactions, self._markers, self._keyed, self._offsets = {}, {}, {}, {}
        for batch in batches:
            self.append(batch)

    def check_read(self, records: list[tuple[int, bytes]], start: int, end: int, read_committed: bool) -> None:
        """A client has read ``records``, and that is all that it was given of the offsets from ``start`` to ``end``."""
        expected = [
            (offset, self.values[offset])
            for offset in range(start, end)
            if offset in self.values and (not read_committed or self.is_visible(offset))
        ]
        if self.compacted:
            given = {offset for offset, _ in records}
            hidden = {offset for offset in range(start, end) if read_committed and not self.is_visible(offset)}
            self._check_cleaned(start, end, given | hidden)
            expected = [record for record in expected if record[0] in given]
        check(
            records == expected,
            "a consumer reads what was written, committed transactions whole, and nothing else",
            f"{self.name} from {start} to {end}: {_short(records)} instead of {_short(expected)}",
        )

    def readable_end(self, read_committed: bool) -> int:
        """The offset behind the last record that a consumer may see."""
        visible = (offset for offset in reversed(self.values) if not read_committed or self.is_visible(offset))
        return next(visible, -1) + 1

    def is_visible(self, offset: int) -> bool:
        """Whether a read_committed consumer may see the record at an offset."""
        batch = self.batches[bisect_right(self.batches, offset, key=lambda other: other.base_offset) - 1]
        return not batch.is_transactional or self.outcome_of(batch) is True

    def outcome_at(self, offset: int) -> bool | None:
        """Whether the transaction of the batch with an offset was committed; None while it is open."""
        return self.outcome_of(self.batches[bisect_right(self.batches, offset, key=lambda b: b.base_offset) - 1])

    def outcome_of(self, batch: Batch) -> bool | None:
        """Whether the transaction of a batch was committed; None while it is open."""
        for marker in self._markers.get(batch.producer_id, ()):
            if marker.base_offset > batch.base_offset:
                return marker.commits
        return None


def _short(records: list[tuple[int, bytes]]) -> str:
    return str([(offset, value[:40]) for offset, value in records])


class CommittedOffsets:
    """A committed offset of a group, as a register with unique values: each commit is named by its metadata."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._count = 0
        self._sent: dict[str, tuple[int, int]] = {}  # name -> (offset, when it was sent)
        self._settled: dict[str, int] = {}  # name -> when it was known to have happened
        self._pending: set[str] = set()  # within transactions
        self._impossible: set[str] = set()  # refused, or overwritten by one that came after it had settled
        self._latest_settled = ("", -1)  # the settled commit that was sent last, and when it was sent

    def send(self, offset: int, now_us: int, settles: bool = True) -> str:
        """A commit leaves; gives it its name.  One within a transaction does not settle with the broker's death."""
        self._count += 1
        name = f"{self.name}#{self._count}"
        if not settles:
            self._pending.add(name)
        self._sent[name] = (offset, now_us)
        return name

    def acknowledge(self, name: str, now_us: int) -> None:
        """A commit has happened."""
        self._settled[name] = now_us
        sent_us = self._sent[name][1]
        for other, settled_us in self._settled.items():
            if settled_us < sent_us:
                self._impossible.add(other)
        if sent_us > self._latest_settled[1]:
            self._latest_settled = (name, sent_us)

    def refuse(self, name: str) -> None:
        """A commit was answered with an error that says that it did not happen."""
        self._impossible.add(name)

    def settle_unknown(self, now_us: int) -> None:
        """The broker's process has ended: what had not been answered has happened before this, or never will."""
        for name in self._sent:
            if name not in self._pending:
                self._settled.setdefault(name, now_us)

    @property
    def impossible_now(self) -> set[str]:
        """What an OffsetFetch that is sent now can no longer find."""
        return set(self._impossible)

    @property
    def must_be_there(self) -> bool:
        return bool(self._latest_settled[0])

    def fetched(self, metadata: str, offset: int, impossible: set[str], must_be_there: bool) -> None:
        """OffsetFetch gave ``offset``; ``impossible`` and ``must_be_there`` are as they were when it was sent."""
        invariant = "committed offsets never go back without being asked"
        if offset < 0:
            check(not must_be_there, invariant, f"{self.name}: a commit was acknowledged and there is none")
            return
        check(metadata in self._sent, invariant, f"{self.name}: {offset} ({metadata!r}) was never committed")
        check(self._sent[metadata][0] == offset, invariant, f"{self.name}: {metadata} is {offset}")
        check(metadata not in impossible, invariant, f"{self.name}: {metadata} ({offset}) had been overwritten")


def identity(member_id: str) -> str:
    """Who a member is: a static one keeps its generation, and its share, under a new member id."""
    return member_id[: -len("-00000000-0000-0000-0000-000000000000")] if member_id.startswith("static-") else member_id


class Generation:
    """What members were told of one generation of a classic group."""

    def __init__(self) -> None:
        self.leader: str | None = None
        self.protocol: str | None = None
        self.sent: list[dict[str, bytes]] = []  # assignments that its leader sent
        self.received: dict[str, bytes] = {}
        self.owners: dict[tuple[str, int], str] = {}

    @property
    def is_persisted(self) -> bool:
        """Whether a restart finds it for sure: its assignment was written before anybody heard of it."""
        return bool(self.received)


class GroupModel:
    """One classic group: its generations, and who owns what in them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generations: dict[int, Generation] = {}
        self.latest_generation = 0

    def _of(self, generation: int) -> Generation:
        return self.generations.setdefault(generation, Generation())

    def joined(self, generation: int, leader: str, protocol: str) -> None:
        """JoinGroup was answered."""
        leader = identity(leader)
        known = self._of(generation)
        invariant = "one leader and one protocol per generation"
        for before, now in ((known.leader, leader), (known.protocol, protocol)):
            check(before in (None, now), invariant, f"{self.name} generation {generation}: {before} and {now}")
        known.leader, known.protocol = leader, protocol

    def process_ended(self) -> None:
        """A generation that nobody was synced in may not have been written: its number may be given again."""
        for generation in self.generations.values():
            if not generation.is_persisted:
                generation.leader = generation.protocol = None

    def assigns(self, generation: int, assignments: dict[str, bytes]) -> None:
        """The leader sends what it decided."""
        self._of(generation).sent.append({identity(member): value for member, value in assignments.items()})

    def synced(self, generation: int, member: str, assignment: bytes, partitions: list[tuple[str, int]]) -> None:
        """SyncGroup was answered."""
        member = identity(member)
        known = self._of(generation)
        where = f"{self.name} generation {generation}"
        check(
            any(sent.get(member, b"") == assignment for sent in known.sent),
            "members get what their generation's leader decided",
            f"{where}: {member} got {assignment!r}",
        )
        self.latest_generation = max(self.latest_generation, generation)
        before = known.received.setdefault(member, assignment)
        check(before == assignment, "one assignment per member and generation", f"{where}: {member} got another")
        for partition in partitions:
            owner = known.owners.setdefault(partition, member)
            check(
                owner == member,
                "one owner per partition per generation",
                f"{where}: {partition[0]}-{partition[1]} belongs to {owner} and to {member}",
            )


class Owners:
    """Who has which partition of a KIP-848 group: assigned, and not said to be given back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._has: dict[str, set[tuple[str, int]]] = {}

    def says(self, member: str, owned: list[tuple[str, int]]) -> None:
        """A heartbeat leaves that names all that the member has: the rest is given back."""
        self._has.setdefault(member, set()).intersection_update(owned)

    def gone(self, member: str) -> None:
        """A member knows that it is none any more."""
        self._has.pop(member, None)

    def heartbeat(self, member: str, sent_epoch: int, epoch: int) -> None:
        """A heartbeat was answered."""
        check(epoch >= sent_epoch, "a member's epoch only grows", f"{self.name}: {member} from {sent_epoch} to {epoch}")

    def assigned(self, member: str, epoch: int, partitions: list[tuple[str, int]], members: set[str]) -> None:
        """A member hears of its assignment; ``members`` are those that the coordinator has not fenced."""
        if member in members:
            for other, owned in self._has.items():
                both = owned.intersection(partitions) if other != member and other in members else None
                check(
                    not both,
                    "one owner per partition per epoch",
                    f"{self.name}: {both} are given to {member} in epoch {epoch} while {other} has them",
                )
        self._has.setdefault(member, set()).update(partitions)


class Transaction:
    """What a producer knows of one of its transactions."""

    def __init__(self) -> None:
        self.values: list[tuple[str, int, bytes]] = []  # sent, acknowledged or not
        self.outcomes = {False}  # what may become of it: False aborted, True committed


class Model:
    """Everything that is known of one run."""

    def __init__(self) -> None:
        self.compacted_topics: dict[str, bool] = {}  # whether deletions go before the end of the run
        self.logs: dict[tuple[str, int], LogModel] = {}
        self.groups: dict[str, GroupModel] = {}
        self.offsets: dict[tuple[str, str, int], CommittedOffsets] = {}
        self.transactions: dict[str, Transaction] = {}
        self._owners: dict[str, Owners] = {}

    def log(self, topic: str, partition: int) -> LogModel:
        """One partition's."""
        log = self.logs.get((topic, partition))
        if log is None:
            log = self.logs[topic, partition] = LogModel(
                f"{topic}-{partition}", topic in self.compacted_topics, self.compacted_topics.get(topic, True)
            )
        return log

    @staticmethod
    def topic(name: str, topic_id: bytes | None) -> str:
        """What a topic is called here: those that had one name after another are not the same."""
        return f"{name}@{(topic_id or b'').hex()}" if name == FLEETING else name

    def group(self, name: str) -> GroupModel:
        """One classic group's."""
        return self.groups.setdefault(name, GroupModel(name))

    def owners(self, group: str) -> Owners:
        """One KIP-848 group's."""
        return self._owners.setdefault(group, Owners(group))

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffsets:
        """One committed offset's."""
        key = (group, topic, partition)
        return self.offsets.setdefault(key, CommittedOffsets(f"{group}/{topic}-{partition}"))

    def acknowledged(self, topic: str, partition: int, base_offset: int, values: list[bytes]) -> None:
        """A producer was told that its batch lies at ``base_offset``."""
        log = self.log(topic, partition)
        for offset, value in enumerate(values, base_offset):
            check(
                log.values.get(offset) == value,
                "acknowledged data is where the acknowledgement says",
                f"{log.name} offset {offset} is {log.values.get(offset, b'')[:40]!r}, not {value[:40]!r}",
            )
        log.acknowledged_end = max(log.acknowledged_end, base_offset + len(values))

    # --- transactions ------------------------------------------------------------------------------------------------

    def transaction_begins(self, name: str) -> None:
        """A producer begins a transaction."""
        self.transactions[name] = Transaction()

    def transaction_writes(self, name: str, topic: str, partition: int, values: list[bytes]) -> None:
        """It sends records."""
        self.transactions[name].values += [(topic, partition, value) for value in values]

    def transaction_ends(self, name: str, commit: bool) -> None:
        """It sends EndTxn: from now on it may be committed."""
        self.transactions[name].outcomes.add(commit)

    def transaction_ended(self, name: str, commit: bool) -> None:
        """EndTxn was acknowledged."""
        self.transactions[name].outcomes = {commit}

    def transaction_lost(self, name: str) -> None:
        """The producer was fenced or died: what had not been asked for does not happen."""
        self.transactions.setdefault(name, Transaction())

    def check_transactions(self) -> None:
        """At rest: every transaction has one outcome in all of its partitions, and one that it may have."""
        invariant = "a transaction is visible all or none"
        for name, transaction in self.transactions.items():
            found: set[bool] = set()
            missing = []
            for topic, partition, value in transaction.values:
                log = self.log(topic, partition)
                offset = log.offset_of.get(value)
                if offset is None:
                    missing.append(value)
                    continue
                outcome = log.outcome_at(offset)
                check(outcome is not None, "no transaction hangs", f"{name} at offset {offset} of {log.name}")
                found.add(bool(outcome))
            check(len(found) < 2, invariant, f"{name} is committed in one partition and aborted in another")
            check(found <= transaction.outcomes, invariant, f"{name} became {found}, not {transaction.outcomes}")
            check(not missing or True not in found, invariant, f"{name} is committed without {missing}")
            lost = transaction.outcomes == {True} and missing
            check(not lost, invariant, f"{name} was acknowledged and lacks {missing}")

    def process_ended(self, now_us: int) -> None:
        """The broker died or stopped."""
        for offsets in self.offsets.values():
            offsets.settle_unknown(now_us)
        self.coordinator_moved()

    def coordinator_moved(self) -> None:
        """What a coordinator had not written may be decided anew."""
        for group in self.groups.values():
            group.process_ended()


def read_directory(path: Any) -> list[Batch]:
    """What a recovery of a partition's directory has to keep: every batch before the first that is not whole.

    A broker that has started recovers a partition only once it is touched.
    """
    found: list[Batch] = []
    for file in sorted(path.glob("*.log")):
        data = file.read_bytes()
        batches = list(whole_batches(data))
        found += batches
        if sum(len(batch.data) for batch in batches) < len(data):
            break
    return found

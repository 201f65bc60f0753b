"""One planted anomaly of every kind: each function takes a history without any and breaks it in that way alone.

Each returns ``None`` where the history has no place for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, TypeVar

from histories.history import Event, Operation, operations
from histories.session_checks import TOLERANCE_NS
from histories.tests.model import KEYS, PLAIN_KEYS, READERS_GROUP, TRANSFORM_GROUP

T = TypeVar("T")
History = list[Event]
Records = list[list[int]]
Change = Callable[[Event, str, Records], Records]
STRANGE_VALUE, STRANGER = 1_000_000, 1_000_000  # what the model does not write, and a process that it does not have


def with_polls(history: History, change: Change) -> History:
    """The history with other records in what polls brought."""
    return [
        event._replace(value=[[key, change(event, key, records)] for key, records in event.value])
        if event.kind == "poll" and event.value
        else event
        for event in history
    ]


def with_sends(history: History, change: Callable[[list[Any]], list[Any]]) -> History:
    """The history with other ``[key, value, offset]`` in what was written."""

    def changed(event: Event) -> Event:
        if event.kind == "send":
            return event._replace(value=list(map(change, event.value)))
        if event.kind == "txn":
            return event._replace(value={**event.value, "sends": list(map(change, event.value["sends"]))})
        return event

    return list(map(changed, history))


def with_transactions(history: History, of: Operation, **fields: Any) -> History:
    """The history with other fields in one transaction's value."""
    return [
        event._replace(value={**event.value, **fields})
        if event.kind == "txn" and event.process == of.process and of.invoked_ns <= event.time_ns <= of.completed_ns
        else event
        for event in history
    ]


def reads(history: History) -> Iterator[tuple[Event, str, int, int]]:
    """(poll, key, offset, value) of everything that was read."""
    for event in history:
        if event.kind == "poll" and event.value:
            for key, records in event.value:
                for offset, value in records:
                    yield event, key, offset, value


def places(history: History) -> dict[int, tuple[str, int]]:
    """Where the values are that lie at one place alone."""
    found = {(key, offset, value) for _, key, offset, value in reads(history)}
    count = Counter(value for _, _, value in found)
    return {value: (key, offset) for key, offset, value in found if count[value] == 1}


def of_kind(history: History, kind: str, outcome: str) -> list[Operation]:
    return [found for found in operations(history) if found.kind == kind and found.outcome == outcome]


def final_processes(history: History) -> dict[str, int]:
    """Who read to the end, by isolation."""
    isolation = {event.process: event.value.get("isolation") for event in history if event.kind == "open"}
    return {isolation[event.process]: event.process for event in history if event.kind == "final"}


def pick(random: Random, found: Sequence[T]) -> T | None:
    return random.choice(found) if found else None


def also_read(history: History, process: int, key: str, offset: int, value: int) -> History:
    """The history in which a process that reads to the end is given one more record, in its place."""
    changed: History = []
    is_read = False
    for event in history:
        if event.process == process and not is_read:
            if event.kind == "final":
                changed.append(event._replace(kind="poll", value=[[key, [[offset, value]]]]))
                is_read = True
            elif event.kind == "poll" and any(of == key and found[-1][0] > offset for of, found in event.value or ()):
                is_read = True
                more = [[of, sorted([*found, [offset, value]]) if of == key else found] for of, found in event.value]
                changed.append(event._replace(value=more))
                continue
        changed.append(event)
    return changed


def at_the_end(history: History, key: str, value: int) -> History:
    """The value as one more record of the key, read by those who read to the end."""
    end = next(event.value[key] for event in history if event.kind == "final")
    for process in final_processes(history).values():
        history = also_read(history, process, key, end, value)
    return [
        event._replace(value={**event.value, key: end + 1}) if event.kind == "final" else event for event in history
    ]


def not_read(history: History, value: int) -> History:
    return with_polls(history, lambda _, __, records: [record for record in records if record[1] != value])


def lost_write(history: History, random: Random) -> History | None:
    known = places(history)
    acknowledged = [
        value
        for send in of_kind(history, "send", "ok")
        for _, value, offset in send.value
        if offset >= 0 and value in known
    ]
    value = pick(random, acknowledged)
    return None if value is None else not_read(history, value)


def torn_transaction(history: History, random: Random) -> History | None:
    torn = pick(random, [txn for txn in of_kind(history, "txn", "ok") if len(txn.value["sends"]) > 1])
    return None if torn is None else not_read(history, random.choice(torn.value["sends"])[1])


def aborted_read(history: History, random: Random) -> History | None:
    aborted = pick(random, of_kind(history, "txn", "fail"))
    if aborted is None:
        return None
    key, value, offset = random.choice(aborted.value["sends"])
    return also_read(history, final_processes(history)["read_committed"], key, offset, value)


def precommitted_read(history: History, random: Random) -> History | None:
    transaction = pick(random, of_kind(history, "txn", "ok"))
    if transaction is None:
        return None
    return with_transactions(history, transaction, commit=history[-1].time_ns)


def unwritten_read(history: History, random: Random) -> History | None:
    return at_the_end(history, random.choice(KEYS), STRANGE_VALUE)


def duplicate(history: History, random: Random) -> History | None:
    known = places(history)
    once = [value for txn in of_kind(history, "txn", "ok") for _, value, _ in txn.value["sends"]]
    value = pick(random, once)
    return None if value is None else at_the_end(history, known[value][0], value)


def misplaced(history: History, random: Random) -> History | None:
    known = places(history)
    acknowledged = [
        value
        for kind in ("send", "txn")
        for operation in of_kind(history, kind, "ok")
        for _, value, offset in (operation.value if kind == "send" else operation.value["sends"])
        if value in known and offset >= 0
    ]
    victim = pick(random, acknowledged)
    if victim is None:
        return None
    elsewhere = known[victim][1] + random.choice([1, 2, 1000])
    return with_sends(
        history,
        lambda send: [send[0], send[1], elsewhere] if send[1] == victim and send[2] is not None else send,
    )


def offset_overlap(history: History, random: Random) -> History | None:
    finals = set(final_processes(history).values())
    seen = [read for read in reads(history) if read[0].process not in finals and read[1] in PLAIN_KEYS]
    victim = pick(random, seen)
    if victim is None:
        return None
    poll, key, at, _ = victim
    start = history[0].time_ns
    strange_write = [
        Event(start, STRANGER, "ok", "open", {"library": "model", "producer": "idempotent"}),
        Event(start, STRANGER, "invoke", "send", [[key, STRANGE_VALUE, None]]),
    ]

    def replaced(event: Event, of: str, records: Records) -> Records:
        if event is not poll or of != key:
            return records
        return [[offset, STRANGE_VALUE if offset == at else value] for offset, value in records]

    return strange_write + with_polls(history, replaced)


def offset_gap(history: History, random: Random) -> History | None:
    key = random.choice(PLAIN_KEYS)
    end = next(event.value[key] for event in history if event.kind == "final")
    if end == 0:
        return None
    gap = random.randrange(end)
    moved = with_sends(
        history,
        lambda send: [key, send[1], send[2] + 1] if send[0] == key and send[2] is not None and send[2] >= gap else send,
    )
    moved = with_polls(
        moved,
        lambda _, of, records: [[offset + (of == key and offset >= gap), value] for offset, value in records],
    )
    changed: History = []
    for event in moved:
        if event.kind in {"commit", "final"} and event.value and event.value.get(key, 0) > gap:
            event = event._replace(value={**event.value, key: event.value[key] + 1})  # noqa: PLW2901
        elif event.kind == "committed" and event.value["offsets"].get(key, 0) > gap:
            offsets = {**event.value["offsets"], key: event.value["offsets"][key] + 1}
            event = event._replace(value={**event.value, "offsets": offsets})  # noqa: PLW2901
        changed.append(event)
    return changed


def nonmonotonic_send(history: History, random: Random) -> History | None:
    known = places(history)
    sends = [send for send in of_kind(history, "send", "ok") if all(value in known for _, value, _ in send.value)]
    pairs = [
        (earlier.value[-1], later.value[0])
        for earlier in sends
        for later in sends
        if earlier.completed_ns < later.invoked_ns and earlier.value[0][0] == later.value[0][0]
    ]
    pair = pick(random, pairs)
    if pair is None:
        return None
    (_, first, first_offset), (_, second, second_offset) = pair
    values = {first: second, second: first}
    offsets = {first: second_offset, second: first_offset}
    swapped = with_sends(
        history,
        lambda send: [send[0], send[1], offsets[send[1]]] if send[1] in offsets and send[2] is not None else send,
    )
    swapped = with_polls(
        swapped, lambda _, __, records: [[offset, values.get(value, value)] for offset, value in records]
    )
    return [
        event._replace(
            value={
                **event.value,
                "consumed": [
                    [key, [[offset, values.get(value, value)] for offset, value in records]]
                    for key, records in event.value["consumed"]
                ],
            }
        )
        if event.kind == "txn"
        else event
        for event in swapped
    ]


def nonmonotonic_poll(history: History, random: Random) -> History | None:
    victim = pick(random, list(reads(history)))
    if victim is None:
        return None
    poll, key, at, value = victim

    def repeated(event: Event, of: str, records: Records) -> Records:
        if event is not poll or of != key:
            return records
        position = records.index([at, value])
        return [*records[:position], [at, value], *records[position:]]

    return with_polls(history, repeated)


def poll_skip(history: History, random: Random) -> History | None:
    finals = set(final_processes(history).values())
    candidates = [
        (event, key, records)
        for event in history
        if event.kind == "poll" and event.value and event.process not in finals
        for key, records in event.value
        if len(records) > 2
    ]
    victim = pick(random, candidates)
    if victim is None:
        return None
    poll, key, records = victim
    skipped = random.choice(records[1:-1])
    return with_polls(
        history,
        lambda event, of, found: [record for record in found if event is not poll or of != key or record != skipped],
    )


def lost_commit(history: History, random: Random) -> History | None:
    # What was answered stays: a commit without an answer might have taken effect late.
    answered = [
        event._replace(type="fail") if event.kind == "commit" and event.type == "info" else event for event in history
    ]
    last: dict[str, int] = {}
    for commit in of_kind(answered, "commit", "ok"):
        last.update(commit.value)
    key = pick(random, [key for key, offset in last.items() if offset > 0])
    if key is None:
        return None
    return [
        event._replace(value={**event.value, "offsets": {**event.value["offsets"], key: last[key] - 1}})
        if event.kind == "committed" and event.value["group"] == READERS_GROUP
        else event
        for event in answered
    ]


def skipped_start(history: History, random: Random) -> History | None:
    """A reader of no group, or a group that has committed nothing yet, is not given the first record."""
    clients = {event.process: event.value for event in history if event.kind == "open"}
    finals = set(final_processes(history).values())
    has_committed: set[str] = set()
    to_start: set[tuple[int, str]] = set()
    victims: list[tuple[Event, str]] = []
    for event in history:
        group = clients.get(event.process, {}).get("group")
        if event.kind in {"commit", "txn"} and group is not None:
            has_committed.add(group)
        elif event.kind in {"assign", "assigned"} and event.process not in finals and group not in has_committed:
            to_start |= {(event.process, key) for key in event.value}
        elif event.kind == "poll":
            for key, records in event.value or ():
                if (event.process, key) in to_start and group not in has_committed and len(records) > 1:
                    victims.append((event, key))
                to_start.discard((event.process, key))
    victim = pick(random, victims)
    if victim is None:
        return None
    return with_polls(
        history, lambda event, key, found: found[1:] if event is victim[0] and key == victim[1] else found
    )


def unasked_commit(history: History, random: Random) -> History | None:
    key = random.choice(PLAIN_KEYS)
    asked = [event.value.get(key, 0) for event in history if event.kind == "commit" and event.type == "invoke"]
    found = max(asked, default=0) + random.choice([1, 2, 1000])
    return [
        event._replace(value={**event.value, "offsets": {**event.value["offsets"], key: found}})
        if event.kind == "committed" and event.value["group"] == READERS_GROUP
        else event
        for event in history
    ]


def nothing_done(history: History, random: Random) -> History | None:
    """All that a group commits is refused."""
    return [
        event._replace(type="fail") if event.kind == "commit" and event.type == "ok" else event for event in history
    ]


def served_beyond_session(history: History, random: Random) -> History | None:
    """A connection that has logged in twice is answered long after the second session's end."""
    now_ns, lifetime_ms = history[-1].time_ns, random.randint(1, 10_000)
    late_ns = now_ns + lifetime_ms * 1_000_000 + TOLERANCE_NS + random.randint(3, 1_000_000)
    return [
        *history,
        Event(now_ns, STRANGER, "ok", "open", {"library": "wire", "login": "once"}),
        Event(now_ns + 1, STRANGER, "ok", "login", random.randint(1, 10_000)),
        Event(now_ns + 2, STRANGER, "ok", "login", lifetime_ms),
        Event(late_ns, STRANGER, "ok", "ask"),
    ]


def _processing(history: History) -> list[Operation]:
    return [txn for txn in of_kind(history, "txn", "ok") if txn.value["group"] == TRANSFORM_GROUP]


def processed_twice(history: History, random: Random) -> History | None:
    transactions = _processing(history)
    if len(transactions) < 2:
        return None
    first, second = sorted(random.sample(transactions, 2), key=lambda txn: txn.invoked_ns)
    key, records = random.choice(first.value["consumed"])
    consumed = [*second.value["consumed"], [key, [random.choice(records)]]]
    return with_transactions(history, second, consumed=consumed)


def processed_never(history: History, random: Random) -> History | None:
    transaction = pick(random, _processing(history))
    if transaction is None:
        return None
    consumed = transaction.value["consumed"]
    # The last one says what is committed.
    left_out = pick(random, [record for _, records in consumed for record in records[:-1]])
    if left_out is None:
        return None
    left = [[key, [record for record in records if record != left_out]] for key, records in consumed]
    return with_transactions(history, transaction, consumed=left)


def circular_reads(history: History, random: Random) -> History | None:
    known = places(history)
    transactions = [txn for txn in of_kind(history, "txn", "ok") if txn.value["group"] is None]
    if len(transactions) < 2:
        return None
    first, second = random.sample(transactions, 2)
    for reader, writer in ((first, second), (second, first)):
        _, value, _ = random.choice(writer.value["sends"])
        key, offset = known[value]
        history = with_transactions(history, reader, consumed=[[key, [[offset, value]]]])
    return history


def stuck(history: History, random: Random) -> History:
    kind = random.choice(["end", "final", "committed"])
    return [*history, Event(history[-1].time_ns, STRANGER, "fail", kind, "it takes too long")]


PLANTS: dict[str, Callable[[History, Random], History | None]] = {
    "lost-write": lost_write,
    "torn-transaction": torn_transaction,
    "aborted-read": aborted_read,
    "precommitted-read": precommitted_read,
    "unwritten-read": unwritten_read,
    "duplicate": duplicate,
    "misplaced": misplaced,
    "offset-overlap": offset_overlap,
    "offset-gap": offset_gap,
    "nonmonotonic-send": nonmonotonic_send,
    "nonmonotonic-poll": nonmonotonic_poll,
    "poll-skip": poll_skip,
    "lost-commit": lost_commit,
    "processed-twice": processed_twice,
    "processed-never": processed_never,
    "skipped-start": skipped_start,
    "unasked-commit": unasked_commit,
    "nothing-done": nothing_done,
    "stuck": stuck,
    "served-beyond-session": served_beyond_session,
    "G1c": circular_reads,
}

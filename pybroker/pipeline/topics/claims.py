"""Which run of a query writes: a claim on the query's group, without which none of its tasks writes a row.

A run of a query divides each of its micro-batches into tasks in one way, and so all attempts of a task of one run have
the same rows.  Another run (the query was started again) may divide the same micro-batch otherwise.  Two rules keep
rows from being written by both:

- A run claims the group before its first row, and fences all producers that earlier runs may still have.  A claim is an
  offset of a consumer group (its number) with metadata; it is made by the holder of a transactional id of that name.
  It is announced first, then everybody is fenced, then it is ready.  A task registers its producer and looks at
  the claim after that: either it finds the announcement, and stops, or it has registered before, and is fenced.
- What is then committed stays as it is, and the claim tells: the last micro-batch of earlier runs, and which of its
  tasks are committed.  Where the new run has to write that micro-batch again, ``transactions`` holds its rows back
  until the driver has seen that it is divided as it was.

Owns the claim and its protocol.  The number of transactional ids that may ever have been registered (``slots``) is part
of it: it is raised before a task beyond it registers.
"""

import json
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pybroker.pipeline.topics.answers import QueryRun
from pybroker.pipeline.topics.client_calls import (
    REQUEST_TIMEOUT_S,
    Committed,
    NoAnswer,
    admin,
    answered,
    committed,
    group_metadata,
    send_offset,
)

NO_EPOCH = -1

CLAIM_WITHIN_S = 90.0
SLOTS_MIN = 4

# How long a transaction is left to end, and another task of the same run to finish the claim that it has announced:
# longer for each slot, since it registers a producer and reads a mark for each.
_ANNOUNCED_FOR_S = 3.0
_ANNOUNCED_FOR_EACH_SLOT_S = 0.05
_PAUSE_S = 0.05
_FENCED_AT_ONCE = 8

# What does not change by asking again.
_REFUSALS = (
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError._INVALID_ARG,  # a setting that librdkafka does not know, or not beside others
)


class NameTaken(RuntimeError):
    """Another query writes by this name, or this one has gone back behind what it had committed."""


class Overtaken(RuntimeError):
    """Another run of the query has begun to write."""


class Mark(NamedTuple):
    """What a task has committed last: the epoch, how many rows, a checksum of their keys, and in which run.

    ``save`` tells the writes of one micro-batch apart, where there may be several (``foreachBatch``).
    """

    epoch: int
    rows: int
    keys: int
    run: str
    query: str
    save: str = ""

    @staticmethod
    def is_one(found: Committed) -> bool:
        """Whether an offset is a mark, and none that others have committed to a group of such a name."""
        return found.metadata.startswith("[")

    @classmethod
    def read(cls, found: Committed) -> "Mark":
        """The mark that an offset and its metadata are."""
        return cls(found.offset, *json.loads(found.metadata))

    @property
    def committed(self) -> Committed:
        """The offset and its metadata."""
        said = [self.rows, self.keys, self.run, self.query]
        return Committed(self.epoch, json.dumps([*said, self.save] if self.save else said))


NO_MARK = Mark(NO_EPOCH, 0, 0, "", "")


class Claim(NamedTuple):
    """The last claim of a group.

    ``tasks`` are those whose rows of ``epoch``, the last one of earlier runs, are committed.
    """

    number: int
    is_ready: bool
    run: str
    query: str
    slots: int
    epoch: int
    tasks: frozenset[int]

    @classmethod
    def read(cls, found: Committed) -> "Claim":
        """The claim that an offset and its metadata are."""
        is_ready, run, query, slots, epoch, tasks = json.loads(found.metadata)
        bits = int(tasks, 16)
        return cls(
            found.offset, is_ready, run, query, slots, epoch, frozenset(i for i in range(slots) if bits >> i & 1)
        )

    @property
    def committed(self) -> Committed:
        """The offset and its metadata."""
        tasks = f"{sum(1 << task for task in self.tasks):x}"
        said = [self.is_ready, self.run, self.query, self.slots, self.epoch, tasks]
        return Committed(self.number, json.dumps(said, separators=(",", ":")))

    def is_of(self, query_run: QueryRun, task: int) -> bool:
        """Whether the task may register."""
        return self.is_ready and self.run == query_run.run and self.query == query_run.query and task < self.slots


NO_CLAIM = Claim(0, False, "", "", 0, NO_EPOCH, frozenset())


def read_marks(client: Mapping[str, str], query_run: QueryRun, tasks: range, *, is_stable: bool = True) -> list[Mark]:
    """The last mark of each of the tasks; ``is_stable`` as in `committed`."""
    found = committed(client, [query_run.slot(task) for task in tasks], is_stable=is_stable)
    return [max(map(Mark.read, each), default=NO_MARK) for each in found]


def read_claim(client: Mapping[str, str], group: str, within_s: float = REQUEST_TIMEOUT_S) -> Claim:
    """The last claim, as ``QueryRun.claim`` names its group."""
    (found,) = committed(client, [group], within_s)
    return max(map(Claim.read, found), default=NO_CLAIM)


def read_claim_and_mark(client: Mapping[str, str], query_run: QueryRun, task: int) -> tuple[Claim, Mark]:
    """The last claim and the task's last mark, for a task that has registered: asked at once, in any order.

    Who changes either behind this look has fenced the task's producer, which commits nothing then.
    """
    claims, marks = committed(client, [query_run.claim, query_run.slot(task)])
    return max(map(Claim.read, claims), default=NO_CLAIM), max(map(Mark.read, marks), default=NO_MARK)


def claimed(client: Mapping[str, str], query_run: QueryRun, task: int, epoch: int, topic: str) -> Claim:
    """The claim of this run, which is made where there is none; ``topic`` as `fenced` wants it.

    Raises `NameTaken`, and `NoAnswer` where others claim again and again.
    """
    deadline = time.monotonic() + CLAIM_WITHIN_S
    patience = _Patience()
    checked: int | None = None
    expired = NO_CLAIM
    last: KafkaException | None = None
    while time.monotonic() < deadline:
        try:
            found = _readable_claim(client, query_run.claim)
            if found is None:
                fenced(client, query_run.claim, topic)
            elif found.is_of(query_run, task):
                check_epoch(query_run, found.epoch, epoch)
                return found
            elif found.run != query_run.run and found.number != checked:
                # Who may not write is told before it has fenced anybody.  Then the claim is looked at again: of tasks
                # that begin at once one has announced it meanwhile, and the others leave it to that one.
                expired = NO_CLAIM if found.number else _told_by_marks(client, query_run)
                slots = max(found.slots, expired.slots)
                _check(query_run, read_marks(client, query_run, range(slots), is_stable=False), epoch)
                checked = found.number
            elif found.run == query_run.run and not found.is_ready and patience.has(found):
                time.sleep(_PAUSE_S)
            else:
                _Claimant(client, query_run, topic).claim(task, epoch, expired)
        except KafkaException as error:
            if error.args[0].code() in _REFUSALS:
                raise
            # Another one has taken the claim's transactional id, or the broker is away: look again.
            last = error
            time.sleep(_PAUSE_S * random.uniform(1, 4))
    raise NoAnswer(f"{query_run.group} could not be claimed within {CLAIM_WITHIN_S:.0f} s: {last}")


class _Patience:
    """With another task of the same run that has announced a claim."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._until = 0.0

    def has(self, announced: Claim) -> bool:
        """Whether this one may still be finished; it begins anew where yet another task has announced one."""
        if announced.number != self._number:
            self._number = announced.number
            self._until = time.monotonic() + _ANNOUNCED_FOR_S + _ANNOUNCED_FOR_EACH_SLOT_S * announced.slots
        return time.monotonic() < self._until


def _readable_claim(client: Mapping[str, str], group: str) -> Claim | None:
    """The claim; None where it is not to be read, because who was about to change it died or is slow."""
    try:
        return read_claim(client, group, _ANNOUNCED_FOR_S)
    except KafkaException:
        return None


def check_epoch(query_run: QueryRun, last: int, epoch: int) -> None:
    """Raises `NameTaken` where later rows than those of ``epoch`` are committed."""
    if last > epoch:
        raise NameTaken(
            f"{query_run.group} has committed micro-batch {last}, and this is {epoch}: another run of the query is "
            "ahead, or its checkpoint is old. With a new transactionGroup it writes again what it reads again"
        )


def _check(query_run: QueryRun, marks: list[Mark], epoch: int) -> None:
    """Raises `NameTaken` where the marks are another query's, or later than ``epoch``."""
    if others := [mark for mark in marks if mark != NO_MARK and mark.query != query_run.query]:
        last = max(others)
        raise NameTaken(
            f"another query, {last.query}, has written by the name {query_run.group} (until its micro-batch "
            f"{last.epoch}): give this one a transactionGroup of its own"
        )
    check_epoch(query_run, max(marks, default=NO_MARK).epoch, epoch)


def _slots_for(task: int) -> int:
    return 1 << task.bit_length()


def _told_by_marks(client: Mapping[str, str], query_run: QueryRun) -> Claim:
    """The last claim, where it has expired: a run commits it only at its start, and may outlive it.

    Tasks without rows have no mark, so that the last one is not to be found by asking for one after the other.
    """
    listed = admin(client).list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S)
    if listed.errors:
        raise listed.errors[0]
    prefix = query_run.slot_prefix
    numbers = [each.group_id.removeprefix(prefix) for each in listed.valid if each.group_id.startswith(prefix)]
    tasks = [int(number) for number in numbers if number.isdecimal()]
    found = committed(client, map(query_run.slot, tasks), is_stable=False)
    marks = [(Mark.read(at), task) for task, each in zip(tasks, found, strict=True) for at in each if Mark.is_one(at)]
    if not marks:
        return NO_CLAIM
    last, _ = max(marks)
    slots = _slots_for(max(task for _, task in marks))
    return Claim(NO_CLAIM.number, True, last.run, last.query, slots, NO_EPOCH, frozenset())


class _Claimant:
    """The holder of a claim's transactional id, until another one takes it."""

    def __init__(self, client: Mapping[str, str], query_run: QueryRun, topic: str) -> None:
        self._client = client
        self._query_run = query_run
        self._topic = topic
        self._producer = fenced(client, query_run.claim, topic)
        self._group_metadata = group_metadata(client, query_run.claim)

    def claim(self, task: int, epoch: int, expired: Claim) -> None:
        """Announce, fence, and say which rows are there; or have room for ``task`` in what is claimed.

        ``expired`` is the last claim, where there is none to be read.
        """
        client, query_run = self._client, self._query_run
        found = max(read_claim(client, query_run.claim), expired)
        slots = max(found.slots, SLOTS_MIN, _slots_for(task))
        if found.is_ready and (found.run, found.query) == (query_run.run, query_run.query):
            self._commit(found._replace(number=found.number + 1, slots=slots))
            return
        announced = Claim(found.number + 1, False, query_run.run, query_run.query, slots, NO_EPOCH, frozenset())
        self._commit(announced)
        _fence(client, query_run, range(found.slots), self._topic)
        marks = read_marks(client, query_run, range(found.slots))
        _check(query_run, marks, epoch)
        earlier = {at: mark for at, mark in enumerate(marks) if mark != NO_MARK and mark.run != query_run.run}
        last = max((mark.epoch for mark in earlier.values()), default=NO_EPOCH)
        tasks = frozenset(at for at, mark in earlier.items() if mark.epoch == last)
        self._commit(announced._replace(number=announced.number + 1, is_ready=True, epoch=last, tasks=tasks))

    def _commit(self, claim: Claim) -> None:
        self._producer.begin_transaction()
        send_offset(self._producer, self._group_metadata, self._topic, claim.committed)
        answered(self._producer.commit_transaction, REQUEST_TIMEOUT_S)


def fenced(
    client: Mapping[str, str],
    transactional_id: str,
    topic: str,
    on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
) -> Producer:
    """A producer of the id; whoever had it before has lost it, with the transaction that was open.

    ``topic`` is one that it needs: where it is not there, asking for it has the broker make it, where it may.
    """
    settings: dict[str, Any] = {**client, "transactional.id": transactional_id}
    if on_delivery is not None:
        settings |= {"on_delivery": on_delivery, "delivery.report.only.error": True}
    admin(client)  # who is not let in is told at once
    producer = Producer(settings)
    # Also for a connection to stand: librdkafka looks for a coordinator at once then, else half a second later.  That
    # to the bootstrap address, whose broker has no id, it gives up as soon as it has been told of the brokers.
    if producer.list_topics(topic, REQUEST_TIMEOUT_S).orig_broker_id < 0:
        producer.list_topics(topic, REQUEST_TIMEOUT_S)
    answered(producer.init_transactions, REQUEST_TIMEOUT_S)
    return producer


def _fence(client: Mapping[str, str], query_run: QueryRun, tasks: range, topic: str) -> None:
    with ThreadPoolExecutor(_FENCED_AT_ONCE) as pool:
        for _ in pool.map(lambda task: fenced(client, query_run.slot(task), topic), tasks):
            pass

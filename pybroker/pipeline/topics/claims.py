"""Which run of a query writes: a claim, without which none of its tasks writes a row.

A run of a query divides each of its micro-batches into tasks in one way, and so all attempts of a task of one run have
the same rows.  Another run (the query was started again) may divide the same micro-batch otherwise.  Two rules keep
rows from being written by both:

- A run claims the query's name before its first row, and fences all producers that earlier runs may still have.  A
  claim is a text of ``marks_topic``; it is made by the holder of a transactional id of that name.
  It is announced first, then everybody is fenced, then it is ready.  A task registers its producer and looks at
  the claim after that: either it finds the announcement, and stops, or it has registered before, and is fenced.
- What is then committed stays as it is, and the claim tells: the last micro-batch of earlier runs, and which of its
  tasks are committed.  Where the new run has to write that micro-batch again, ``epoch_transactions`` holds its rows
  back until the driver has seen that it is divided as it was.

Owns the claim and its protocol.  The number of transactional ids that may ever have been registered (``slots``) is part
of it: it is raised before a task beyond it registers.

Marks of an earlier version (``former_marks``) are taken over by the first claim. That version's group of the claim goes
before any query is fenced, so that a task of it stops, too. Its marks are copied by the transaction that says that the
claim is ready.
"""

import json
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pybroker.pipeline.topics import marks_topic
from pybroker.pipeline.topics.client_calls import REQUEST_TIMEOUT_S, NoAnswer, admin, answered, delete_groups
from pybroker.pipeline.topics.client_log import with_client_log
from pybroker.pipeline.topics.former_marks import NO_GROUPS, former_groups, read_former
from pybroker.pipeline.topics.marks_topic import CLAIM_AT, slot_at
from pybroker.pipeline.topics.task_commits import QueryRun

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

    @classmethod
    def read(cls, text: str) -> "Mark":
        """The mark that a text is."""
        return cls(*json.loads(text))

    @property
    def text(self) -> str:
        """What `read` reads."""
        said = [self.epoch, self.rows, self.keys, self.run, self.query]
        return json.dumps([*said, self.save] if self.save else said)


NO_MARK = Mark(NO_EPOCH, 0, 0, "", "")


class Claim(NamedTuple):
    """The last claim of a name.

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
    def read(cls, text: str) -> "Claim":
        """The claim that a text is."""
        number, is_ready, run, query, slots, epoch, tasks = json.loads(text)
        bits = int(tasks, 16)
        return cls(number, is_ready, run, query, slots, epoch, frozenset(i for i in range(slots) if bits >> i & 1))

    @property
    def text(self) -> str:
        """What `read` reads."""
        tasks = f"{sum(1 << task for task in self.tasks):x}"
        said = [self.number, self.is_ready, self.run, self.query, self.slots, self.epoch, tasks]
        return json.dumps(said, separators=(",", ":"))

    def is_of(self, query_run: QueryRun, task: int) -> bool:
        """Whether the task may register."""
        return self.is_ready and self.run == query_run.run and self.query == query_run.query and task < self.slots


NO_CLAIM = Claim(0, False, "", "", 0, NO_EPOCH, frozenset())


def read_marks(client: Mapping[str, str], query_run: QueryRun, tasks: range, *, is_stable: bool = True) -> list[Mark]:
    """The last mark of each of the tasks; ``is_stable`` as in `marks_topic.read`."""
    found = marks_topic.read(client, query_run, map(slot_at, tasks), is_stable=is_stable)
    return [_mark_in(found, task) for task in tasks]


def read_claim(client: Mapping[str, str], query_run: QueryRun, within_s: float = REQUEST_TIMEOUT_S) -> Claim:
    """The last claim."""
    return _claim_in(marks_topic.read(client, query_run, [CLAIM_AT], within_s))


def read_claim_and_mark(client: Mapping[str, str], query_run: QueryRun, task: int) -> tuple[Claim, Mark]:
    """The last claim and the task's last mark, for a task that has registered: asked at once, in any order.

    Who changes either behind this look has fenced the task's producer, which commits nothing then.
    """
    found = marks_topic.read(client, query_run, [CLAIM_AT, slot_at(task)])
    return _claim_in(found), _mark_in(found, task)


def _claim_in(found: Mapping[int, str]) -> Claim:
    return Claim.read(found[CLAIM_AT]) if CLAIM_AT in found else NO_CLAIM


def _mark_in(found: Mapping[int, str], task: int) -> Mark:
    return Mark.read(found[slot_at(task)]) if slot_at(task) in found else NO_MARK


def claimed(client: Mapping[str, str], query_run: QueryRun, task: int, epoch: int) -> Claim:
    """The claim of this run, which is made where there is none.

    Raises `NameTaken`, `MarksRefused`, and `NoAnswer` where others claim again and again.
    """
    deadline = time.monotonic() + CLAIM_WITHIN_S
    start_timeout = _StartTimeout()
    checked: int | None = None
    expired = NO_CLAIM
    last: KafkaException | None = None
    while time.monotonic() < deadline:
        try:
            found = _readable_claim(client, query_run)
            if found is None:
                fenced(client, query_run.claim, query_run.marks_topic)
            elif found.is_of(query_run, task):
                check_epoch(query_run, found.epoch, epoch)
                return found
            elif found.run != query_run.run and found.number != checked:
                # A query that may not write fails before it has fenced another.  Then the claim is looked at again: of
                # tasks that begin at once one has announced it meanwhile, and the others leave it to that one.
                marks = _marks_of_all(client, query_run, found)
                expired = NO_CLAIM if found.number else _claim_of(marks)
                _check(query_run, marks, epoch)
                checked = found.number
            elif found.run == query_run.run and not found.is_ready and start_timeout.has(found):
                time.sleep(_PAUSE_S)
            else:
                _Claimant(client, query_run, task).claim(epoch, expired)
        except KafkaException as error:
            if error.args[0].code() in _REFUSALS:
                raise
            # Another one has taken the claim's transactional id, or the broker is away: look again.
            last = error
            time.sleep(_PAUSE_S * random.uniform(1, 4))
    raise NoAnswer(f"{query_run.group} could not be claimed within {CLAIM_WITHIN_S:.0f} s: {last}")


class _StartTimeout:
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


def _readable_claim(client: Mapping[str, str], query_run: QueryRun) -> Claim | None:
    """The claim; None where it is not to be read, because who was about to change it died or is slow."""
    try:
        return read_claim(client, query_run, _ANNOUNCED_FOR_S)
    except KafkaException:
        return None


def check_epoch(query_run: QueryRun, last: int, epoch: int) -> None:
    """Raises `NameTaken` where later rows than those of ``epoch`` are committed."""
    if last > epoch:
        raise NameTaken(
            f"{query_run.group} has committed micro-batch {last}, and this is {epoch}: another run of the query is "
            "ahead, or its checkpoint is old. With a new transactionGroup it writes again what it reads again"
        )


def _check(query_run: QueryRun, marks: Mapping[int, Mark], epoch: int) -> None:
    """Raises `NameTaken` where the marks are another query's, or later than ``epoch``."""
    if others := [mark for mark in marks.values() if mark.query != query_run.query]:
        last = max(others)
        raise NameTaken(
            f"another query, {last.query}, has written by the name {query_run.group} (until its micro-batch "
            f"{last.epoch}): give this one a transactionGroup of its own"
        )
    check_epoch(query_run, max(marks.values(), default=NO_MARK).epoch, epoch)


def slots_for(task: int) -> int:
    """How many task numbers there is space for where one is wanted: few claims and partitions are made for more."""
    return max(1 << task.bit_length(), SLOTS_MIN)


def _marks_of_all(client: Mapping[str, str], query_run: QueryRun, claim: Claim) -> dict[int, Mark]:
    """The marks that there are, by task number; one that a transaction may still change counts as it was.

    Tasks without rows have no mark, so that the last one is not to be found by asking for one after the other.
    """
    tasks = range(marks_topic.slots(client, query_run))
    marks = dict(zip(tasks, read_marks(client, query_run, tasks, is_stable=False), strict=True))
    former = NO_GROUPS if claim.is_ready else former_groups(client, query_run)
    return _with_former(marks, read_former(client, former.by_task, is_stable=False))


def _with_former(marks: Mapping[int, Mark], former: Mapping[int, list[str]]) -> dict[int, Mark]:
    """The last mark of each task number that has one, in either way."""
    found = {task: [Mark.read(text) for text in texts] for task, texts in former.items()}
    last = {task: max([marks.get(task, NO_MARK), *found.get(task, ())]) for task in {*marks, *found}}
    return {task: mark for task, mark in sorted(last.items()) if mark != NO_MARK}


def _claim_of(marks: Mapping[int, Mark]) -> Claim:
    """The last claim, where it has expired: a run commits it only at its start, and may outlive it."""
    if not marks:
        return NO_CLAIM
    last = max(marks.values())
    return Claim(NO_CLAIM.number, True, last.run, last.query, slots_for(max(marks)), NO_EPOCH, frozenset())


class _Claimant:
    """The holder of a claim's transactional id, until another one takes it; ``task`` wants to write."""

    def __init__(self, client: Mapping[str, str], query_run: QueryRun, task: int) -> None:
        self._client = client
        self._query_run = query_run
        self._slots_min = slots_for(task)
        marks_topic.ensure_slots(client, query_run, self._slots_min)
        self._producer = fenced(client, query_run.claim, query_run.marks_topic)
        self._group_metadata = marks_topic.group_metadata(client, query_run)

    def claim(self, epoch: int, expired: Claim) -> None:
        """Announce, fence, and say which rows are there; or have space for the task in what is claimed.

        ``expired`` is the last claim, where there is none to be read.
        """
        client, query_run = self._client, self._query_run
        last_claim = read_claim(client, query_run)
        former = NO_GROUPS if last_claim.is_ready else former_groups(client, query_run)
        found = max(last_claim, expired)
        used = range(max(found.slots, former.slots))
        slots = max(len(used), self._slots_min)
        marks_topic.ensure_slots(client, query_run, slots)
        if found.is_ready and (found.run, found.query) == (query_run.run, query_run.query):
            self._commit(found._replace(number=found.number + 1, slots=slots))
            return
        announced = Claim(found.number + 1, False, query_run.run, query_run.query, slots, NO_EPOCH, frozenset())
        self._commit(announced)
        delete_groups(client, former.others)
        _fence(client, query_run, used)
        marks = dict(enumerate(read_marks(client, query_run, used)))
        marks = _with_former(marks, read_former(client, former.by_task, is_stable=True))
        _check(query_run, marks, epoch)
        earlier = {task: mark for task, mark in marks.items() if mark.run != query_run.run}
        last = max((mark.epoch for mark in earlier.values()), default=NO_EPOCH)
        tasks = frozenset(task for task, mark in earlier.items() if mark.epoch == last)
        taken_over = {task: marks[task] for task in former.by_task if task in marks}
        ready = announced._replace(number=announced.number + 1, is_ready=True, epoch=last, tasks=tasks)
        self._commit(ready, taken_over)
        delete_groups(client, [former.by_task[task] for task in taken_over])

    def _commit(self, claim: Claim, marks: Mapping[int, Mark] = MappingProxyType({})) -> None:
        texts = {CLAIM_AT: claim.text, **{slot_at(task): mark.text for task, mark in marks.items()}}
        self._producer.begin_transaction()
        marks_topic.send(self._producer, self._group_metadata, self._query_run, texts)
        answered(self._producer.commit_transaction, REQUEST_TIMEOUT_S)


def fenced(
    client: Mapping[str, str],
    transactional_id: str,
    topic: str,
    on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
) -> Producer:
    """A producer of the id; its holder before has lost it, with the transaction that was open.

    ``topic`` is one that it needs: where it is not there, asking for it has the broker make it, where it may.
    """
    settings: dict[str, Any] = {**client, "transactional.id": transactional_id}
    if on_delivery is not None:
        settings |= {"on_delivery": on_delivery, "delivery.report.only.error": True}
    admin(client)  # a login that is refused fails at once
    producer = Producer(with_client_log(settings))
    # Also for a connection to stand: librdkafka looks for a coordinator at once then, else half a second later.  That
    # to the bootstrap address, whose broker has no id, it gives up as soon as it knows the brokers.
    if producer.list_topics(topic, REQUEST_TIMEOUT_S).orig_broker_id < 0:
        producer.list_topics(topic, REQUEST_TIMEOUT_S)
    answered(producer.init_transactions, REQUEST_TIMEOUT_S)
    return producer


def _fence(client: Mapping[str, str], query_run: QueryRun, tasks: range) -> None:
    with ThreadPoolExecutor(_FENCED_AT_ONCE) as pool:
        for _ in pool.map(lambda task: fenced(client, query_run.slot(task), query_run.marks_topic), tasks):
            pass

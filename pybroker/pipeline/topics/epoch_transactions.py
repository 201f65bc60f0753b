"""Writes a task's rows of an epoch exactly once: one Kafka transaction with the rows and a mark that they are there.

Owns the protocol by which a task that runs again finds that its rows have been committed, and does nothing. The task,
the driver or the broker may have died before:

- Each task number of a write has a transactional id, which is named by it, and a partition of `marks_topic`.  To begin,
  the producer is registered anew, which ends what an earlier attempt left open and fences a producer that still writes
  there.
- Then the mark is read, the last epoch that was committed.  Where it is this one, nothing is to do.
- The rows and the mark become visible by one commit.

Invariants: the mark moves with the rows or not at all.  A producer that this process keeps for the next epoch needs no
look at the mark: a producer that committed that epoch would have fenced it.  It is kept for one run of the query,
because a query that is started again registers anew, perhaps in another process, and would find this one's producer
fenced.

Where the query was started again in the middle of an epoch, some tasks of it are committed; ``claims`` says which. It
is not known yet whether it is divided into tasks as it was: Spark tells a task neither how many there are nor what the
others have. So the rows of the other tasks are sent, and held back: their transactions stay open in the tasks'
processes. They are over once the driver, which hears of all tasks, has seen that each of the committed ones is there
and has what it had (`decide`). Then they are committed; or the query stops, and nothing was written twice.

What it asks of a query: a task that runs again has the same rows, or, with ``deterministic`` false, rows that may stand
for the same.  A mark tells how many they were and a checksum of their keys.  Values are not compared, since a sum of
floating point numbers differs with the order in which they come.
"""

import atexit
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message

from pybroker.pipeline.topics import marks_topic
from pybroker.pipeline.topics.claims import (
    NO_CLAIM,
    Claim,
    Mark,
    Overtaken,
    check_epoch,
    claimed,
    fenced,
    read_claim_and_mark,
    read_marks,
    slots_for,
)
from pybroker.pipeline.topics.client_calls import REQUEST_TIMEOUT_S, NoAnswer, answered, delete_groups, without_calls
from pybroker.pipeline.topics.marks_topic import DECISION_AT, slot_at
from pybroker.pipeline.topics.process_end import put_off_for
from pybroker.pipeline.topics.record_refusals import PURGED, failed_by, forget_records, refusal
from pybroker.pipeline.topics.rows import ProducerRecord, records
from pybroker.pipeline.topics.sink_options import TRANSACTION_TIMEOUT
from pybroker.pipeline.topics.task_commits import Outcome, QueryRun, Written

IDLE_PRODUCERS_MAX = 16

# The driver waits so long for rows that were held back; their tasks' processes wait a transaction's time for it.
DECIDED_WITHIN_S = 60.0

# Produced between two looks at what has been delivered, and how long a full queue is given.
_RECORDS_BETWEEN_POLLS = 10_000
_QUEUE_POLL_S = 0.1
_DECISION_POLL_S = 0.05

# Said by a task whose rows are there already; who reads logs counts them.
SKIPPED = "was committed by an earlier attempt: skipped"
HELD = "is held back until the driver has seen how the micro-batch is divided"

_NO_DECISION = '[-1, "", false]'

_log = logging.getLogger(__name__)


class RowsChanged(RuntimeError):
    """A micro-batch that was written again was divided into tasks in another way, or had other rows."""


class SecondWrite(RuntimeError):
    """A micro-batch has two writes of one name, of which the second would be taken for the first, tried again."""


class NotDelivered(RuntimeError):
    """A record was refused; its transaction was aborted."""


class TransactionTimedOut(RuntimeError):
    """The broker ended a transaction that was open for longer than it may be."""


class Write(NamedTuple):
    """What all tasks of a write have in common.

    ``is_single`` says that there is no other run: a write of a name that is used once. ``outlives_task``, that this
    process does not end with its task, so that rows may be held back. ``save`` names one of several writes that a
    micro-batch may have.
    """

    client: Mapping[str, str]
    query_run: QueryRun
    topic: str | None
    is_deterministic: bool = True
    is_single: bool = False
    outlives_task: bool = True
    save: str = ""


def write_epoch(write: Write, task: int, epoch: int, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of ``batches`` unless they are there.

    Raises `RowsChanged`, `SecondWrite`, `NameTaken`, `Overtaken`, `MarksRefused`, `NotDelivered`,
    `TransactionTimedOut`, `NoAnswer`, ValueError for a row that is no record, and librdkafka's `KafkaException`.
    """
    key = (*sorted(write.client.items()), write.query_run, task)
    slot = _idle.pop(key, None)
    if slot is not None and slot.epoch + 1 != epoch:
        slot = None
    # Spark makes epochs without rows, and tasks without rows: nothing is registered for those.
    rows = iter(batches)
    first = next((batch for batch in rows if batch.num_rows), None)
    if first is None:
        return Written(task, 0, Outcome.EMPTY, write.query_run, epoch)
    slot = slot or SlotWriter(write, task, epoch)
    written = slot.write(write, epoch, _chain(first, rows))
    if written.outcome is not Outcome.HELD:
        _idle[key] = slot
        if len(_idle) > IDLE_PRODUCERS_MAX:
            _idle.popitem(last=False)
    return written


def decide(write: Write, written: Sequence[Written | None]) -> None:
    """In the driver, when all tasks of an epoch are done: have what they held back be committed.

    Raises `RowsChanged` where what is committed belongs to another division of the epoch into tasks, and `NoAnswer`
    where a task's process has ended meanwhile.  The epoch is to be written again then.
    """
    said = [each for each in written if each is not None]
    before = frozenset[int]().union(*(each.before for each in said))
    held = [each for each in said if each.outcome is Outcome.HELD]
    wanted = {Outcome.FOUND} if write.is_deterministic else {Outcome.FOUND, Outcome.EMPTY}
    lost = before - {each.task for each in said if each.outcome in wanted}
    if held:
        first = held[0]
        decision = json.dumps([first.epoch, first.query_run.run, not lost])
        marks_topic.commit(write.client, first.query_run, DECISION_AT, decision)
    if lost:
        raise RowsChanged(
            f"rows of task {min(lost)} of micro-batch {said[0].epoch} are committed, and this run, whose tasks are "
            f"{len(written)}, has none for it: {_DIVIDED}"
        )
    if held:
        _await_marks(write, held)


_DIVIDED = (
    "the micro-batch was divided into tasks in another way before. Run the query with the settings it had (partitions "
    "of shuffles, minPartitions, spark.sql.adaptive.streaming.stateless.enabled=false) until it is done"
)


def _await_marks(write: Write, held: Sequence[Written]) -> None:
    deadline = time.monotonic() + DECIDED_WITHIN_S
    left = {each.task for each in held}
    query_run, epoch = held[0].query_run, held[0].epoch
    while left:
        marks = read_marks(write.client, query_run, range(max(left) + 1), is_stable=False)
        left = {task for task in left if (marks[task].epoch, marks[task].run) != (epoch, query_run.run)}
        if left and time.monotonic() > deadline:
            raise NoAnswer(
                f"rows of tasks {sorted(left)} of micro-batch {epoch} were held back, and lost: with their processes, "
                f"or because other tasks took longer than kafka.{TRANSACTION_TIMEOUT}. Set that to more then"
            )
        if left:
            time.sleep(_DECISION_POLL_S)


def forget(write: Write) -> None:
    """Delete the marks of a write that is over: its rows are there."""
    delete_groups(write.client, [write.query_run.marks])


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield first
    yield from rest


class _Count:
    """Of rows, and a checksum of their keys in any order."""

    __slots__ = ("_keys", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._keys = 0

    def add(self, record: ProducerRecord) -> None:
        self.rows += 1
        if record.key is not None:
            self._keys += crc32(record.key)

    @property
    def keys(self) -> int:
        return self._keys & 0xFFFF_FFFF


class SlotWriter:
    """The producer of a task number."""

    def __init__(self, write: Write, task: int, epoch: int) -> None:
        """Register for ``epoch``."""
        self._write = write
        self._task = task
        self._refused: str | None = None
        self._begun_s = 0.0
        client, query_run = write.client, write.query_run
        if write.is_single:
            marks_topic.ensure_slots(client, query_run, slots_for(task))
        else:
            claimed(client, query_run, task, epoch)
        # Ends an earlier attempt's transaction, so that the mark read behind it is the last one.
        self._producer = fenced(client, query_run.slot(task), query_run.marks_topic, self._on_delivery)
        self._claim, self._mark = self._found_after_registration()
        self._group_metadata = marks_topic.group_metadata(client, query_run)

    @property
    def epoch(self) -> int:
        """The last epoch that is committed, as far as this producer knows."""
        return self._mark.epoch

    def write(self, write: Write, epoch: int, batches: Iterable[pa.RecordBatch]) -> Written:
        """Commit the rows and the mark, or hold them back, or find them committed.

        ``write`` is one of the run that has registered: in ``foreachBatch`` each micro-batch is another.
        """
        self._write = write
        check_epoch(self._write.query_run, self._mark.epoch, epoch)
        before = self._claim.tasks if self._claim.epoch == epoch else frozenset[int]()
        if self._mark.epoch == epoch:
            return self._skip(epoch, batches, before)
        if before and not self._write.outlives_task:
            raise RuntimeError(
                f"micro-batch {epoch} was written in part by an earlier run, and is finished by tasks' processes, "
                "which must not end with their tasks: set spark.python.worker.reuse to true"
            )
        self._begun_s = time.monotonic()
        self._producer.begin_transaction()
        try:
            mark = self._send_all(epoch, batches)
            if not before:
                answered(self._producer.commit_transaction, REQUEST_TIMEOUT_S)
        except NoAnswer:
            # Nothing more can be asked of this producer; the next attempt's registration ends its transaction.
            forget_records(self._producer)
            raise
        except BaseException as error:
            self._give_up(error)
            raise
        self._mark = mark
        if not before:
            return self._written(mark.rows, Outcome.WRITTEN, epoch, before)
        _log.warning("micro-batch %d of %s, %d rows, %s", epoch, self._name, mark.rows, HELD)
        holder = threading.Thread(target=self._await_decision, args=(epoch,), name=f"held {self._name}", daemon=True)
        holder.start()
        put_off_for(holder)
        return self._written(mark.rows, Outcome.HELD, epoch, before)

    @property
    def _name(self) -> str:
        return self._write.query_run.slot(self._task)

    @property
    def _timeout_s(self) -> float:
        return int(self._write.client[TRANSACTION_TIMEOUT]) / 1_000

    def _found_after_registration(self) -> tuple[Claim, Mark]:
        client, query_run, task = self._write.client, self._write.query_run, self._task
        if self._write.is_single:
            (mark,) = read_marks(client, query_run, range(task, task + 1))
            return NO_CLAIM, mark
        claim, mark = read_claim_and_mark(client, query_run, task)
        if not claim.is_of(query_run, task):
            raise Overtaken(f"another run of the query writes by the name {query_run.group} now")
        return claim, mark

    def _written(self, rows: int, outcome: Outcome, epoch: int, before: frozenset[int]) -> Written:
        return Written(self._task, rows, outcome, self._write.query_run, epoch, before)

    def _skip(self, epoch: int, batches: Iterable[pa.RecordBatch], before: frozenset[int]) -> Written:
        count = _Count()
        for batch in batches:
            for record in records(batch, self._write.topic):
                count.add(record)
        mark = self._mark
        if mark.save and mark.run == self._write.query_run.run and mark.save != self._write.save:
            raise SecondWrite(
                f"micro-batch {epoch} is written a second time by the name {self._write.query_run.group}: each write "
                "of a micro-batch needs a transactionGroup of its own"
            )
        if self._write.is_deterministic and (mark.rows, mark.keys) != (count.rows, count.keys):
            other = "other keys" if mark.rows == count.rows else f"had committed {mark.rows}"
            raise RowsChanged(
                f"task {self._task} of micro-batch {epoch} has {count.rows} rows and {other}: {_DIVIDED}. Where rows "
                "or keys differ by themselves from attempt to attempt, set the option deterministic to false: what is "
                "committed stays as it is"
            )
        _log.warning("micro-batch %d of %s, %d rows, %s", epoch, self._name, count.rows, SKIPPED)
        return self._written(count.rows, Outcome.FOUND, epoch, before)

    def _send_all(self, epoch: int, batches: Iterable[pa.RecordBatch]) -> Mark:
        """Have all rows and the mark be in the transaction."""
        count = _Count()
        for batch in batches:
            for record in records(batch, self._write.topic):
                self._send(record)
                count.add(record)
                if not count.rows % _RECORDS_BETWEEN_POLLS:
                    self._look()
        query_run = self._write.query_run
        mark = Mark(epoch, count.rows, count.keys, query_run.run, query_run.query, self._write.save)
        marks_topic.send(self._producer, self._group_metadata, query_run, {slot_at(self._task): mark.text})
        return mark

    def _await_decision(self, epoch: int) -> None:
        """In a thread of its own, after the task: commit, abort, or be fenced."""
        write, deadline = self._write, self._begun_s + self._timeout_s
        while time.monotonic() < deadline:
            time.sleep(_DECISION_POLL_S)
            try:
                found = marks_topic.read(write.client, write.query_run, [DECISION_AT])
                decided, run, is_as_it_was = json.loads(found.get(DECISION_AT, _NO_DECISION))
                if (decided, run) != (epoch, write.query_run.run):
                    continue
                if is_as_it_was:
                    answered(self._producer.commit_transaction, REQUEST_TIMEOUT_S)
                else:
                    self._abort()
            except (KafkaException, NoAnswer) as error:
                # The driver misses the mark, and has the epoch be written again.
                _log.warning("micro-batch %d of %s, held back, was not committed: %s", epoch, self._name, error)
                forget_records(self._producer)
            return
        self._abort()

    def _send(self, record: ProducerRecord) -> None:
        while True:
            try:
                if record.headers is None:
                    self._producer.produce(*record[:4], timestamp=record.timestamp)
                else:
                    self._producer.produce(*record[:4], headers=record.headers, timestamp=record.timestamp)
            except BufferError:
                self._look(_QUEUE_POLL_S)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._STATE:
                    raise  # for what was sent before
                size = len(record.value or b"") + len(record.key or b"")
                raise NotDelivered(refusal(record.topic, size, error.args[0])) from error
            else:
                return

    def _look(self, timeout_s: float = 0.0) -> None:
        self._producer.poll(timeout_s)
        if self._refused is not None:
            raise NotDelivered(self._refused)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        # What an abort, or a transaction that has failed, throws away is reported as well, and is no reason.
        if error is not None and self._refused is None and error.code() not in PURGED:
            self._refused = refusal(message.topic() or "", len(message), error)

    def _give_up(self, error: BaseException) -> None:
        """Take the rows back, and tell why, where more is known than the error says."""
        # An abort tells of each record that it throws away: what was refused was refused before.
        with suppress(KafkaException):  # of a producer that was fenced, even this is
            self._producer.poll(0)
        refused, open_s = self._refused, time.monotonic() - self._begun_s
        if refused is None and isinstance(error, KafkaException) and error.args[0].code() == KafkaError._STATE:
            refused = f"the transaction of {self._name} has failed: {failed_by(self._producer).str()}"
        self._abort()
        if isinstance(error, KafkaException | NotDelivered) and open_s > self._timeout_s:
            raise TransactionTimedOut(
                f"the transaction of {self._name} was open for {open_s:.0f} s, and the broker ends one after "
                f"{self._timeout_s:.0f}. Set the option kafka.{TRANSACTION_TIMEOUT} to more (the broker's "
                "transaction.max.timeout.ms bounds it), or have smaller micro-batches or more tasks"
            ) from error
        if refused is not None:
            raise NotDelivered(refused) from error

    def _abort(self) -> None:
        """Take the rows back now; where even that fails, the next attempt's registration does it."""
        try:
            answered(self._producer.abort_transaction, REQUEST_TIMEOUT_S)
        except (KafkaException, NoAnswer) as error:
            without_calls(error)
            forget_records(self._producer)


_idle: OrderedDict[object, SlotWriter] = OrderedDict()


@atexit.register
def close_idle() -> None:
    """Let the producers go."""
    _idle.clear()

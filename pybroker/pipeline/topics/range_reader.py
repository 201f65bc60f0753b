"""Reads one range of a partition in a task: the part of a read whose speed is the read's.

Owns this process's idle consumers, so that the next micro-batch of a partition begins with what librdkafka has fetched
ahead.  A consumer is used by one range at a time; one that fails is closed.

Invariants: all records from ``start`` to before ``end`` are given, in order and once; where they are gone, that is an
error or, without ``failOnDataLoss``, a warning.  A batch is bounded in rows and in bytes.  No record is given of
another topic than the one that was planned, and none that the partition did not have when its range began:

- Before a range the cluster is asked how the partition stands (`PartitionStatus`).  What was fetched ahead is taken
from where
  the log begins now, and only if the topic's id and the leader's epoch are what they were when that consumer began.
  Otherwise the consumer begins anew.
- Before rows are given the topic's id is asked for once more: librdkafka goes on with a topic that was made anew, at
  the same offset, without a word.  No id comes back, so that all rows are of the planned topic where it is still there.

The id tells another cluster at the same address, too.  A cluster that gives topics no ids has its consumers begin anew.
What nothing tells apart: a log with the same id and epoch that was put back from a copy of its files.
"""

import gc
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from pybroker.pipeline.topics import cluster_queries
from pybroker.pipeline.topics.client_log import with_client_log
from pybroker.pipeline.topics.cluster_queries import PartitionStatus, kept_queries
from pybroker.pipeline.topics.ranges import OffsetRange
from pybroker.pipeline.topics.source_columns import record_batch
from pybroker.pipeline.topics.source_options import LOSS_ADVICE

ROWS_MAX = 10_000

# What is taken and made columns of at once, while it is in the processor's cache: with 10,000 instead a row costs
# a quarter more.
PORTION_ROWS = 500

BYTES_MAX = 16 * 1024 * 1024
POLL_S = 1.0

# What a consumer holds of records that no task has asked for yet, in KiB and in records: the bound that is met first.
# librdkafka counts keys and values alone, and has some 300 bytes more for each record: by KiB alone, records of 70
# bytes took 90 MB.  Consumers that wait for their next range hold it, too: together 230 MB at the worst in each of
# Spark's Python processes, which end after a minute without work.
AHEAD_KBYTES = 16 * 1024
AHEAD_RECORDS = 40_000
IDLE_CONSUMERS_MAX = 8

# How soon a consumer that holds so much asks for more.  By librdkafka's default of a second a task would wait for most
# of its time: it takes 16 MiB, or 40,000 records, in a tenth of one.
AHEAD_LOOKED_AT_MS = 20

# How long brokers may take to hear of a topic one after another: a range is not lost before all that are asked say so.
SETTLES_WITHIN_S = 2.0
_PAUSE_S = 0.1

T = TypeVar("T")

# What librdkafka tells of a position that a partition does not have, when it may not choose another one itself.
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_PARTITION)

_log = logging.getLogger(__name__)


class DataLoss(RuntimeError):
    """Records that should have been read are not there any more."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}{LOSS_ADVICE}")


class ReadTimeout(RuntimeError):
    """No record came within ``kafkaConsumer.pollTimeoutMs``."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What all ranges of a query have in common."""

    client: Mapping[str, str]
    schema: pa.Schema
    poll_timeout_s: float
    fail_on_data_loss: bool

    def tell_loss(self, what: str) -> None:
        """Raise `DataLoss`, or warn where the query may go on."""
        if self.fail_on_data_loss:
            raise DataLoss(what)
        _log.warning("%s", what)


def read_range(reading: Reading, found: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range.

    Raises `DataLoss`, `ReadTimeout`, librdkafka's `KafkaException`, and what `ClusterQueries` raises.
    """
    if found.size <= 0:
        return
    begun = _status(reading, found, found.start)
    if begun is None:
        return
    key = (*sorted(reading.client.items()), found.topic_partition)
    consumer = _taken_up(key, reading, begun)
    try:
        yield from _batches(consumer, reading, found._replace(topic_id=begun.topic_id), begun)
    except BaseException:
        consumer.close()
        raise
    if not begun.topic_id:
        consumer.close()
        return
    _idle[key] = consumer
    if len(_idle) > IDLE_CONSUMERS_MAX:
        _idle.popitem(last=False)[1].close()


def _taken_up(key: object, reading: Reading, begun: PartitionStatus) -> "_PositionedConsumer":
    """The idle consumer of this topic, or a new one: librdkafka keeps to what it knew of a topic's former leaders."""
    consumer = _idle.pop(key, None)
    if consumer is not None and consumer.topic_id != begun.topic_id:
        consumer.close()
        consumer = None
    return consumer or _PositionedConsumer(reading.client, begun.topic_id)


class _PositionedConsumer:
    """A consumer of one partition that knows which offset comes next, and keeps what was taken too early."""

    def __init__(self, client: Mapping[str, str], topic_id: str) -> None:
        self.topic_id = topic_id
        self.position: int | None = None
        self._early: list[Message] = []
        # How the partition stood before the first of the records was fetched that are held.
        self._begun: PartitionStatus | None = None
        settings = {
            "queued.max.messages.kbytes": str(AHEAD_KBYTES),
            "queued.min.messages": str(AHEAD_RECORDS),
            "fetch.queue.backoff.ms": str(AHEAD_LOOKED_AT_MS),
            **client,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            # Without it a range that ends in markers of transactions would wait for the record behind them.
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
        }
        self._consumer = Consumer(with_client_log(settings))

    def go_to(self, found: OffsetRange, position: int, now: PartitionStatus) -> None:
        """Have the record at ``position``, or the first one behind it, come next."""
        if self.position != position or not self._holds(found, now):
            # Assigned anew instead of sought: what was fetched for the position before is dropped in either case.
            self._early = []
            self._consumer.assign([ClientTopicPartition(*found.topic_partition, position)])
            self.position = position
            self._begun = now

    def _holds(self, found: OffsetRange, now: PartitionStatus) -> bool:
        """Whether what was fetched ahead is what the range has now."""
        begun = self._begun
        return begun is not None and now.has_history_of(begun) and found.end <= now.end

    def take(self, count: int) -> list[Message]:
        """At most ``count`` messages and events, as soon as there is one."""
        if self._early:
            taken, self._early = self._early, []
            return taken
        first = self._consumer.poll(POLL_S)
        return [] if first is None else [first, *(self._consumer.consume(count - 1, 0) if count > 1 else ())]

    def give_back(self, messages: list[Message]) -> None:
        """What lies behind the range, for the next one."""
        self._early = messages

    def close(self) -> None:
        """Leave; the broker forgets the connection."""
        self._consumer.close()


_idle: OrderedDict[object, _PositionedConsumer] = OrderedDict()


def close_idle() -> None:
    """Close what waits for its next range: for tests, since Spark's processes end without looking back."""
    while _idle:
        _idle.popitem()[1].close()
    cluster_queries.close_idle()


class _Rows:
    """Messages until they make a record batch: a portion of them as they came, those before it as columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._messages: list[Message] = []
        self._portions: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, messages: list[Message]) -> None:
        self._messages += messages
        self._rows += len(messages)
        self._bytes += sum(map(len, messages))
        if len(self._messages) >= PORTION_ROWS:
            self._make_columns()

    @property
    def is_full(self) -> bool:
        return self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX

    def batches(self) -> Iterator[pa.RecordBatch]:
        """What has been added, if anything, and no more from then on."""
        self._make_columns()
        if self._portions:
            yield pa.concat_batches(self._portions)
        self._portions, self._rows, self._bytes = [], 0, 0

    def _make_columns(self) -> None:
        if self._messages:
            self._portions.append(record_batch(self._messages, self._schema))
            self._messages = []


def _batches(
    consumer: _PositionedConsumer, reading: Reading, found: OffsetRange, begun: PartitionStatus
) -> Iterator[pa.RecordBatch]:
    position = _behind_deleted(reading, found, found.start, begun)
    consumer.go_to(found, position, begun)
    rows = _Rows(reading.schema)
    give_up_s = time.monotonic() + reading.poll_timeout_s
    while position < found.end:
        before = position
        with _collector_at_rest():
            taken, behind = _divided(consumer.take(min(PORTION_ROWS, found.end - position)), found.end)
            records, events = _sorted_out(taken)
            if behind:
                # With the events among them: librdkafka reports an end once, and the next range may need it.
                consumer.give_back(behind)
                position = found.end
            elif records:
                position = _offset(records[-1]) + 1
            rows.add(records)
            del taken, records
        consumer.position = position
        for event in events:
            position = _behind_event(consumer, reading, found, position, event)
        if rows.is_full and not (yield from _of_the_planned_topic(rows, reading, found)):
            consumer.position = None
            return
        if position > before:
            give_up_s = time.monotonic() + reading.poll_timeout_s
        elif not events and not _is_still_there(reading, found):
            # Another topic may end before this range: no record and no error would come from it.
            consumer.position = None
            return
        elif time.monotonic() > give_up_s:
            raise ReadTimeout(
                f"no record of {found.topic_partition} from {position} on within {reading.poll_timeout_s:g} s"
            )
    yield from _of_the_planned_topic(rows, reading, found)
    consumer.position = position


def _of_the_planned_topic(rows: _Rows, reading: Reading, found: OffsetRange) -> Generator[pa.RecordBatch, None, bool]:
    """The rows, unless they may be another topic's: then they are dropped, reported as lost, and False comes back."""
    batches = list(rows.batches())
    if batches and not _is_still_there(reading, found):
        return False
    yield from batches
    return True


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """No cycles are looked for meanwhile: messages make none, and thousands of them would have it look all the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _divided(taken: list[Message], end: int) -> tuple[list[Message], list[Message]]:
    """What was taken before the first record at ``end`` or behind it, and the rest."""
    if not taken or (taken[-1].error() is None and _offset(taken[-1]) < end):
        return taken, []
    for at, message in enumerate(taken):
        if message.error() is None and _offset(message) >= end:
            return taken[:at], taken[at:]
    return taken, []


def _sorted_out(taken: list[Message]) -> tuple[list[Message], list[Message]]:
    """Records, and errors and ends among them."""
    if not any(map(Message.error, taken)):
        return taken, []
    return [each for each in taken if each.error() is None], [each for each in taken if each.error() is not None]


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "what was read lies somewhere"
    return offset


def _behind_event(
    consumer: _PositionedConsumer, reading: Reading, found: OffsetRange, position: int, event: Message
) -> int:
    """The position behind what librdkafka reported instead of a record."""
    error = event.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        # What is before the end and was not given are markers of transactions, or was compacted away.
        return max(position, event.offset() or position)
    if error.code() not in _UNKNOWN and error.code() not in _OUT_OF_RANGE:
        raise KafkaException(error)
    now = _status(reading, found, position)
    if now is None:
        return found.end
    position = _behind_deleted(reading, found, position, now)
    if position > now.end:
        at = found.topic_partition
        reading.tell_loss(f"{at} ends at {now.end} by now: what was to be read from {position} to {found.end} is lost")
        return found.end
    consumer.position = None
    consumer.go_to(found, position, now)
    return position


def _behind_deleted(reading: Reading, found: OffsetRange, position: int, now: PartitionStatus) -> int:
    """The position, or the first one behind what is deleted, which is reported."""
    if position >= now.begin:
        return position
    at = found.topic_partition
    reading.tell_loss(f"{at} begins at {now.begin} by now: what was before, from {position} on, is lost")
    return min(now.begin, found.end)


def _status(reading: Reading, found: OffsetRange, position: int) -> PartitionStatus | None:
    """How the partition stands; ``None`` where the planned topic is not there any more, which is reported."""

    def ask() -> tuple[str | None, PartitionStatus | None]:
        now = kept_queries(reading.client).status(found.topic_partition, reading.poll_timeout_s)
        return (now.topic_id if now else None), now

    return _of_the_plan(reading, found, position, ask)


def _is_still_there(reading: Reading, found: OffsetRange) -> bool:
    """Whether the topic is the planned one; where it is not, that is reported."""
    topic = found.topic_partition.topic

    def ask() -> tuple[str | None, bool]:
        return kept_queries(reading.client).topic_ids([topic], reading.poll_timeout_s).get(topic), True

    return not found.topic_id or bool(_of_the_plan(reading, found, found.start, ask))


def _of_the_plan(
    reading: Reading, found: OffsetRange, position: int, ask: Callable[[], tuple[str | None, T]]
) -> T | None:
    """What is said beside the topic's id, where that is the planned one; else the loss is reported."""
    deadline = time.monotonic() + SETTLES_WITHIN_S
    while True:
        topic_id, said = ask()
        if topic_id is not None and found.topic_id in ("", topic_id):
            return said
        if time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_S)
    at = found.topic_partition
    if topic_id is None:
        reading.tell_loss(f"{at} is gone: what was to be read from {position} to {found.end} is lost")
    else:
        reading.tell_loss(f"{at} was made anew: what was not read of the former one is lost")
    return None

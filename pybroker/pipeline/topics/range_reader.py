"""Reads one range of a partition in a task: the part of a read whose speed is the read's.

Owns this process's idle consumers, so that the next micro-batch of a partition begins with what librdkafka has fetched
ahead.  A consumer is used by one range at a time; who fails is closed.

Invariants: all records from ``start`` to before ``end`` are given, in order and once; where they are gone, that is an
error or, without ``failOnDataLoss``, a warning.  A batch is bounded in rows and in bytes.
"""

import gc
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from pybroker.pipeline.topics.columns import record_batch
from pybroker.pipeline.topics.ranges import OffsetRange
from pybroker.pipeline.topics.topic_partitions import TopicPartition

ROWS_MAX = 10_000

# What is taken and made columns of at once, while it is in the processor's cache: with 10,000 instead a row costs
# a quarter more.
PORTION_ROWS = 500

BYTES_MAX = 16 * 1024 * 1024
POLL_S = 1.0

# What a consumer holds of records that nobody has asked for yet, KiB.  Those that wait for their next range hold it,
# too: together 128 MiB in each of Spark's Python processes, which end after a minute without work.
AHEAD_KBYTES = 16 * 1024
IDLE_CONSUMERS_MAX = 8

# How soon a consumer that holds so much asks for more.  By librdkafka's default of a second a task would wait for most
# of its time: it takes 16 MiB in a tenth of one.
AHEAD_LOOKED_AT_MS = 20

# What librdkafka tells of a position that a partition does not have, when it may not choose another one itself.
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_PARTITION)

_log = logging.getLogger(__name__)


class DataLoss(RuntimeError):
    """Records that should have been read are not there any more."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; with failOnDataLoss=false the query goes on with what is there")


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
    """The records of a range; raises `DataLoss`, `ReadTimeout` and librdkafka's `KafkaException`."""
    key = (*sorted(reading.client.items()), found.topic_partition)
    consumer = _idle.pop(key, None) or _PositionedConsumer(reading.client)
    try:
        yield from _batches(consumer, reading, found)
    except BaseException:
        consumer.close()
        raise
    _idle[key] = consumer
    if len(_idle) > IDLE_CONSUMERS_MAX:
        _idle.popitem(last=False)[1].close()


class _PositionedConsumer:
    """A consumer of one partition that knows which offset comes next, and keeps what was taken too early."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._early: list[Message] = []
        self.position: int | None = None
        self._consumer = Consumer(
            {
                "queued.max.messages.kbytes": str(AHEAD_KBYTES),
                "queued.min.messages": "1000000",
                "fetch.queue.backoff.ms": str(AHEAD_LOOKED_AT_MS),
                **client,
                "enable.auto.commit": "false",
                "enable.auto.offset.store": "false",
                # Without it a range that ends in markers of transactions would wait for the record behind them.
                "enable.partition.eof": "true",
                "auto.offset.reset": "error",
            }
        )

    def go_to(self, at: TopicPartition, position: int) -> None:
        """Have the record at ``position``, or the first one behind it, come next."""
        if self.position != position:
            # Assigned anew instead of sought: what was fetched for the position before is dropped in either case.
            self._early = []
            self._consumer.assign([ClientTopicPartition(*at, position)])
            self.position = position

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

    def edges(self, at: TopicPartition) -> tuple[int, int]:
        """Where the partition begins and ends now."""
        return self._consumer.get_watermark_offsets(ClientTopicPartition(*at), POLL_S * 10)

    def finds(self, at: TopicPartition) -> bool:
        """Whether the cluster has the partition now, whatever this consumer knew of it."""
        found = self._consumer.list_topics(at.topic, POLL_S * 10).topics[at.topic]
        return found.error is None and at.partition in found.partitions

    def close(self) -> None:
        """Leave; the broker forgets the connection."""
        self._consumer.close()


_idle: OrderedDict[object, _PositionedConsumer] = OrderedDict()


def close_idle() -> None:
    """Close what waits for its next range: for tests, since Spark's processes end without looking back."""
    while _idle:
        _idle.popitem()[1].close()


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


def _batches(consumer: _PositionedConsumer, reading: Reading, found: OffsetRange) -> Iterator[pa.RecordBatch]:
    position = found.start
    consumer.go_to(found.topic_partition, position)
    rows = _Rows(reading.schema)
    patience = time.monotonic() + reading.poll_timeout_s
    while position < found.end:
        before = position
        with _collector_at_rest():
            taken, behind = _divided(consumer.take(min(PORTION_ROWS, found.end - position)), found.end)
            records, events = _sorted_out(taken)
            if behind:
                # With what is told among them: librdkafka tells an end once, and the next range may need it.
                consumer.give_back(behind)
                position = found.end
            elif records:
                position = _offset(records[-1]) + 1
            rows.add(records)
            del taken, records
        consumer.position = position
        for event in events:
            position = _behind_event(consumer, reading, found, position, event)
        if rows.is_full:
            yield from rows.batches()
        if position > before:
            patience = time.monotonic() + reading.poll_timeout_s
        elif time.monotonic() > patience:
            raise ReadTimeout(
                f"no record of {found.topic_partition} from {position} on within {reading.poll_timeout_s:g} s"
            )
    yield from rows.batches()
    consumer.position = position


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
    """Records, and what is told of errors and ends among them."""
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
    """The position behind what librdkafka told instead of a record."""
    error = event.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        # What is before the end and was not given are markers of transactions, or was compacted away.
        return max(position, event.offset() or position)
    at = found.topic_partition
    if error.code() in _UNKNOWN:
        if not consumer.finds(at):
            reading.tell_loss(f"{at} is gone: what was to be read from {position} to {found.end} is lost")
            return found.end
        # It was made anew since this consumer began, or is just being made.
    elif error.code() not in _OUT_OF_RANGE:
        raise KafkaException(error)
    begin, end = consumer.edges(at)
    if position < begin:
        reading.tell_loss(f"{at} begins at {begin} by now: what was before, from {position} on, is lost")
        position = min(begin, found.end)
    elif position > end:
        reading.tell_loss(f"{at} ends at {end} by now: what was to be read from {position} to {found.end} is lost")
        return found.end
    consumer.position = None
    consumer.go_to(at, position)
    return position

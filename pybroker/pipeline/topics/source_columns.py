"""The table's columns: Spark's schema, and record batches of Arrow made of librdkafka's messages.

Names, types and nulls are those of Spark's Kafka connector (its class KafkaRecordToRowConverter).
"""

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from pybroker.values.timestamps import TIMESTAMP_MS_MAX

# librdkafka counts the kinds of timestamps from 0 (none), Kafka from -1.
_TIMESTAMP_TYPE_SHIFT = -1


class UnreadableHeaders(RuntimeError):
    """A record's headers are not what librdkafka's Python can give."""


class UnreadableTimestamp(RuntimeError):
    """A record's timestamp is beyond those of Spark."""


def record_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of ``messages``, all of one partition; ``schema`` is the table's, with headers or without."""
    count = len(messages)
    first = messages[0]
    # By map instead of comprehensions: half a microsecond per record is what all of this costs.
    stamps = list(map(Message.timestamp, messages))
    arrays = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.repeat(pa.scalar(first.topic(), pa.string()), count),
        pa.repeat(pa.scalar(first.partition(), pa.int32()), count),
        _offsets(messages),
        _timestamps(messages, list(map(itemgetter(1), stamps)), schema.field("timestamp").type),
        _timestamp_types(list(map(itemgetter(0), stamps))),
    ]
    if len(schema.names) > len(arrays):
        arrays.append(pa.array([_headers(message) for message in messages], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _offsets(messages: Sequence[Message]) -> pa.Array:
    first, last = messages[0].offset(), messages[-1].offset()
    assert first is not None, "what was read lies somewhere"
    if last == first + len(messages) - 1:
        return pa.array(np.arange(first, first + len(messages)))  # without a gap, as nearly always
    return pa.array(list(map(Message.offset, messages)), pa.int64())


def _timestamps(messages: Sequence[Message], stamps_ms: list[int], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(stamps_ms, pa.int64()).view(pa.timestamp("ms", "UTC")).cast(kind)
    except pa.ArrowInvalid:
        at = next(at for at, stamp_ms in enumerate(stamps_ms) if abs(stamp_ms) > TIMESTAMP_MS_MAX)
        said = f"{_record(messages[at])} has the timestamp {stamps_ms[at]} ms, which is beyond those of Spark"
        raise UnreadableTimestamp(said) from None


def _timestamp_types(kinds: list[int]) -> pa.Array:
    if kinds.count(kinds[0]) == len(kinds):  # a topic's, nearly always
        return pa.repeat(pa.scalar(kinds[0] + _TIMESTAMP_TYPE_SHIFT, pa.int32()), len(kinds))
    return pc.add(pa.array(kinds, pa.int32()), pa.scalar(_TIMESTAMP_TYPE_SHIFT, pa.int32()))


def _headers(message: Message) -> list[dict[str, str | bytes | None]] | None:
    # librdkafka's are a list where they were read, a dict only where they are to be written.
    try:
        headers = message.headers()
    except (SystemError, UnicodeDecodeError) as error:
        raise UnreadableHeaders(
            f"{_record(message)} has a header whose key is no UTF-8; with includeHeaders=false the query goes on, "
            "without headers"
        ) from error
    return [{"key": name, "value": value} for name, value in headers] if isinstance(headers, list) else None


def _record(message: Message) -> str:
    """Which one it is, for the message."""
    return f"the record of {message.topic()}-{message.partition()} at offset {message.offset()}"

"""The table's columns: Spark's schema, and record batches of Arrow made of librdkafka's messages.

Names, types and nulls are those of Spark's Kafka connector (its class KafkaRecordToRowConverter).
"""

from collections.abc import Sequence
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

# librdkafka counts the kinds of timestamps from 0 (none), Kafka from -1.
_TIMESTAMP_TYPE_SHIFT = -1


def record_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of ``messages``, all of one partition; ``schema`` is the table's, with headers or without."""
    count = len(messages)
    first = messages[0]
    # By map instead of comprehensions: a microsecond per record is what all of this costs.
    stamps = list(map(Message.timestamp, messages))
    arrays = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.repeat(pa.scalar(first.topic(), pa.string()), count),
        pa.repeat(pa.scalar(first.partition(), pa.int32()), count),
        pa.array(list(map(Message.offset, messages)), pa.int64()),
        pa.array(list(map(itemgetter(1), stamps)), pa.timestamp("ms", "UTC")).cast(schema.field("timestamp").type),
        pc.add(pa.array(list(map(itemgetter(0), stamps)), pa.int32()), pa.scalar(_TIMESTAMP_TYPE_SHIFT, pa.int32())),
    ]
    if len(schema.names) > len(arrays):
        arrays.append(pa.array([_headers(message) for message in messages], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(message: Message) -> list[dict[str, str | bytes | None]] | None:
    # librdkafka's are a list where they were read, a dict only where they are to be written.
    headers = message.headers()
    return [{"key": name, "value": value} for name, value in headers] if isinstance(headers, list) else None

"""Rows on their way to topics: what a DataFrame must look like, and the records that its rows are.

Columns are those of Spark's Kafka connector (its class KafkaWriter): ``value`` of string or binary, and, where they
are there, ``key``, ``topic``, ``partition`` and ``headers``; ``timestamp`` is ours.  Arrow is imported by who has rows.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

if TYPE_CHECKING:
    import pyarrow as pa

Headers = list[tuple[str, str | bytes | None]]

_TEXT_OR_BYTES = (StringType, BinaryType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}
HEADERS_TYPE = "array<struct<key:string,value:binary>>"

# A partition that the producer's partitioner chooses, by the key.
ANY_PARTITION = -1
# A timestamp that the producer chooses: the time of day.
NOW = 0

_US_PER_MS = 1_000


class ProducerRecord(NamedTuple):
    """What `confluent_kafka.Producer.produce` is given, in its order; the timestamp, ms since 1970, by its name."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: Headers | None
    timestamp: int = NOW


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises ValueError where rows of ``schema`` are no records."""
    for field in schema.fields:
        if field.name not in _TYPES:
            raise ValueError(f"column {field.name} has no meaning in a topic: {', '.join(_TYPES)} have")
        if not isinstance(field.dataType, _TYPES[field.name]):
            wanted = " or ".join(kind.typeName() for kind in _TYPES[field.name])
            raise ValueError(f"column {field.name} must be {wanted}, is {field.dataType.simpleString()}")
        if isinstance(field.dataType, ArrayType) and not _are_headers(field.dataType.elementType):
            raise ValueError(f"column {field.name} must be {HEADERS_TYPE}, is {field.dataType.simpleString()}")
    if "value" not in schema.names:
        raise ValueError("there is no column value")
    if topic is None and "topic" not in schema.names:
        raise ValueError("there is no column topic; without it the option topic must be set")


def records(batch: "pa.RecordBatch", topic: str | None) -> Iterator[ProducerRecord]:
    """The records that the rows of ``batch`` are; raises ValueError for a row that is none."""
    count = batch.num_rows
    topics = [topic] * count if topic is not None else batch.column("topic").to_pylist()
    if None in topics:
        raise ValueError("a row has no topic: its column is null, and the option topic is not set")
    partitions = [ANY_PARTITION if at is None else partition_of(at) for at in _column(batch, "partition")]
    headers = [_headers(found) for found in _column(batch, "headers")]
    columns = (topics, _bytes(batch, "value"), _bytes(batch, "key"), partitions, headers, _timestamps(batch))
    return map(ProducerRecord, *columns)


def partition_of(at: int) -> int:
    """The partition that a row names; raises ValueError for one that there cannot be."""
    if at < 0:
        raise ValueError(f"a row has partition {at}; null lets the producer choose one")
    return at


def timestamp_of(at_us: int) -> int:
    """A row's timestamp in ms; raises ValueError for one that producers do not take."""
    at_ms = at_us // _US_PER_MS
    if at_ms <= 0:
        raise ValueError(f"a row has timestamp {at_ms} ms; one of a record is after 1970 began, null is now")
    return at_ms


def header_key(key: str | None) -> str:
    """The key of a row's header; raises ValueError where there is none."""
    if key is None:
        raise ValueError("a header has no key")
    return key


def _column(batch: "pa.RecordBatch", name: str) -> list[Any]:
    found: list[Any] = batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
    return found


def _bytes(batch: "pa.RecordBatch", name: str) -> list[bytes | None]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    found: list[bytes | None] = batch.column(name).cast("binary").to_pylist()
    return found


def _timestamps(batch: "pa.RecordBatch") -> list[int]:
    if "timestamp" not in batch.schema.names:
        return [NOW] * batch.num_rows
    # Spark's are microseconds.
    found = batch.column("timestamp").cast("int64").to_pylist()
    return [NOW if at_us is None else timestamp_of(at_us) for at_us in found]


def _are_headers(element: DataType) -> bool:
    if not isinstance(element, StructType) or element.names != ["key", "value"]:
        return False
    key, value = (field.dataType for field in element.fields)
    return isinstance(key, StringType) and isinstance(value, _TEXT_OR_BYTES)


def _headers(found: list[dict[str, Any] | None] | None) -> Headers | None:
    return [_header(header) for header in found] if found else None


def _header(found: dict[str, Any] | None) -> tuple[str, str | bytes | None]:
    return (header_key(None), None) if found is None else (header_key(found["key"]), found["value"])

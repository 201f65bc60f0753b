"""The topics of a test: a folder each, and in it a Parquet file for all that was piped at once.

Owns the rows' form, which is that of Spark's Kafka connector, and offsets.  A stream is Spark's own source of files, so
that a pipe is a micro-batch; what ``batch`` gives is read anew by each micro-batch, as a topic is.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pybroker.pipeline.records import Record, as_bytes, as_ms

_SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key string, value binary>>"
)
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
_CREATE_TIME = 0
_PATTERN = "*.parquet"


class PipedTopics:
    """What a job under test is given as its topics."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._pipes = 0
        self._offsets: dict[tuple[str, int], int] = {}
        self.read: set[str] = set()
        spark.dataSource.register(PipedTopicSource)

    def stream(self, topic: str) -> DataFrame:
        """See `pybroker.pipeline.streams.jobs.Topics`."""
        return self._spark.readStream.schema(_SPARK_SCHEMA).parquet(str(self._of(topic)))

    def batch(self, topic: str) -> DataFrame:
        """See `pybroker.pipeline.streams.jobs.Topics`."""
        return self._spark.read.format(PipedTopicSource.name()).load(str(self._of(topic)))

    def add(self, records: Mapping[str, Iterable[Record]], now_ms: int) -> None:
        """Have ``records`` be there, by topic.

        Raises ValueError for a topic that the job does not read, and what a record raises that is none; then nothing
        is there.
        """
        offsets = dict(self._offsets)
        tables: dict[str, pa.Table] = {}
        for topic, some in records.items():
            if topic not in self.read:
                raise ValueError(f"the job does not read {topic}: it reads {', '.join(sorted(self.read))}")
            rows = [_row(topic, record, now_ms, offsets) for record in some]
            tables[topic] = pa.Table.from_pylist(rows, _ARROW_SCHEMA)
        self._offsets = offsets
        for topic, table in tables.items():
            self._pipes += 1
            # Spark's source looks at no file with such a name.
            hidden = self._of(topic) / f".{self._pipes}"
            pq.write_table(table, hidden)
            hidden.rename(hidden.with_name(f"{self._pipes:06}.parquet"))

    def _of(self, topic: str) -> Path:
        self.read.add(topic)
        folder = self._folder / quote(topic)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class PipedTopicSource(DataSource):
    """All that a folder's files have, looked for at each execution of a plan."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "pybroker-piped"

    def schema(self) -> str:
        """The columns of Spark's Kafka connector."""
        return _SPARK_SCHEMA

    def reader(self, schema: StructType) -> "DataSourceReader":
        """Reads the folder ``path``."""
        return _FolderReader(self.options["path"])


class _FolderReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._folder)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        for path in sorted(Path(partition.value).glob(_PATTERN)):
            yield from pq.read_table(path, schema=_ARROW_SCHEMA).to_batches()


def _row(topic: str, record: Record, now_ms: int, offsets: dict[tuple[str, int], int]) -> dict[str, object]:
    """A record at the next of ``offsets``."""
    partition = record.partition or 0
    offset = offsets.get((topic, partition), 0)
    offsets[topic, partition] = offset + 1
    return {
        "key": as_bytes(record.key),
        "value": as_bytes(record.value),
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": 1_000 * (now_ms if record.timestamp is None else as_ms(record.timestamp)),
        "timestampType": _CREATE_TIME,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }

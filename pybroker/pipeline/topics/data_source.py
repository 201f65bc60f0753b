"""The data source of the name ``pybroker``, which Spark finds by way of ``pyspark_pybroker``.

Owns the entry alone; imports neither librdkafka nor Arrow, since Spark loads it for every session that uses any data
source of Python's.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pybroker.pipeline.topics.rows import HEADERS_TYPE
from pybroker.pipeline.topics.sink_options import read_sink_options
from pybroker.pipeline.topics.source_options import includes_headers, read_source_options

NAME = "pybroker"

# Names and types, as Spark's types say themselves.
_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
_HEADERS = {"headers": HEADERS_TYPE}


class TopicDataSource(DataSource):
    """``spark.read.format("pybroker")`` and its kin."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return NAME

    def schema(self) -> str:
        """The columns of Spark's Kafka connector."""
        return ", ".join(f"{name} {kind}" for name, kind in self._columns().items())

    def reader(self, schema: StructType):  # type: ignore[no-untyped-def]
        """Reads what is there."""
        from pybroker.pipeline.topics.readers import BatchReader

        self._check(schema)
        return BatchReader(read_source_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType):  # type: ignore[no-untyped-def]
        """Reads on.

        Spark loses what is raised here (it stops a reader that it does not have), so that the reader raises it.
        """
        from pybroker.pipeline.topics.readers import RefusedStream, StreamReader

        try:
            self._check(schema)
            return StreamReader(read_source_options(self.options, streaming=True), schema)
        except ValueError as error:
            return RefusedStream(str(error))

    def writer(self, schema: StructType, overwrite: bool):  # type: ignore[no-untyped-def]
        """Writes a DataFrame."""
        from pybroker.pipeline.topics.writers import BatchWriter

        _refuse_overwrite(overwrite)
        return BatchWriter(read_sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool):  # type: ignore[no-untyped-def]
        """Writes a query's output."""
        from pybroker.pipeline.topics.writers import StreamWriter

        return StreamWriter(read_sink_options(self.options), schema)

    def _check(self, schema: StructType) -> None:
        """Raise ValueError for columns that the user has named otherwise."""
        if {field.name: field.dataType.simpleString() for field in schema.fields} != self._columns():
            raise ValueError(f"a topic's columns are {self.schema()}; a read cannot be given others by schema()")

    def _columns(self) -> dict[str, str]:
        return _COLUMNS | (_HEADERS if includes_headers(self.options) else {})


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise ValueError("a topic cannot be overwritten: use mode append")

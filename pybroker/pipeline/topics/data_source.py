"""The data source of the name ``pybroker``, which Spark finds by way of ``pyspark_pybroker``.

Owns the entry alone; imports neither librdkafka nor Arrow, since Spark loads it for every session that uses any data
source of Python's.
"""

import sys
from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pybroker.pipeline.topics.librdkafka_settings import CLIENT_PREFIX
from pybroker.pipeline.topics.rows import HEADERS_TYPE
from pybroker.pipeline.topics.sink_options import SinkOptions, read_sink_options
from pybroker.pipeline.topics.source_options import SourceOptions, includes_headers, read_source_options

NAME = "pybroker"

_ADDRESS = f"{CLIENT_PREFIX}bootstrap.servers"

# What a task that reads or writes imports beside PySpark.
NEEDED = ("confluent_kafka", "pyarrow")
# Before it a stream's source did not know where a micro-batch begins.
PYSPARK_MIN = (4, 2)

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

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Of one read or write; raises ModuleNotFoundError where Spark's Python lacks what tasks need."""
        check_python()
        super().__init__(options)

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
        options = read_source_options(self.options, streaming=False)
        _check_consumer(options)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType):  # type: ignore[no-untyped-def]
        """Reads on.

        Spark loses what is raised here (it stops a reader that it does not have), so that the reader raises it.
        """
        from pybroker.pipeline.topics.readers import RefusedStream, StreamReader

        try:
            self._check(schema)
            options = read_source_options(self.options, streaming=True)
            _check_consumer(options)
            return StreamReader(options, schema)
        except ValueError as error:
            return RefusedStream(str(error))

    def writer(self, schema: StructType, overwrite: bool):  # type: ignore[no-untyped-def]
        """Writes a DataFrame."""
        from pybroker.pipeline.topics.writers import BatchWriter

        _refuse_overwrite(overwrite)
        return BatchWriter(_checked_sink(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool):  # type: ignore[no-untyped-def]
        """Writes a query's output."""
        from pybroker.pipeline.topics.writers import StreamWriter

        return StreamWriter(_checked_sink(self.options), schema)

    def _check(self, schema: StructType) -> None:
        """Raise ValueError for columns that the user has named otherwise."""
        if {field.name: field.dataType.simpleString() for field in schema.fields} != self._columns():
            raise ValueError(f"a topic's columns are {self.schema()}; a read cannot be given others by schema()")

    def _columns(self) -> dict[str, str]:
        return _COLUMNS | (_HEADERS if includes_headers(self.options) else {})


def check_python() -> None:
    """Raise ModuleNotFoundError, in one sentence, where this Python, which is Spark's, lacks what tasks need.

    The environment in which the job was started may be another one.
    """
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < PYSPARK_MIN:
        raise ModuleNotFoundError(
            f'format("pybroker") needs PySpark {".".join(map(str, PYSPARK_MIN))} or newer, '
            f"and {sys.executable} has {pyspark.__version__}"
        )
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"Spark's Python, {sys.executable}, has no {' and no '.join(missing)}: let PYSPARK_PYTHON name the Python "
            "of an environment with pybroker-kafka[spark] before the session begins"
        )


def _check_consumer(options: SourceOptions) -> None:
    from pybroker.pipeline.topics.settings_check import check_consumer

    check_consumer(options.client)


def _checked_sink(given: Mapping[str, str]) -> SinkOptions:
    """The options; librdkafka is loaded where it has settings of the user's to judge.

    Spark makes a writer in the process that hears a micro-batch's end, too, which has no other use for it.
    """
    options = read_sink_options(given)
    if _has_settings(given):
        from pybroker.pipeline.topics.settings_check import check_producer

        check_producer(options.client)
    return options


def _has_settings(given: Mapping[str, str]) -> bool:
    return any(name.lower().startswith(CLIENT_PREFIX) and name.lower() != _ADDRESS for name in given)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise ValueError("a topic cannot be overwritten: use mode append")

"""FileSource: files of a directory as they arrive, each line or row a record.

A file is read once, when it is there whole: it has to be moved into the directory.  Each record is written exactly
once: Spark's checkpoint has the files that were read, and a micro-batch is one transaction per task.

A line that is no row ends the query, and the reason has its file and its number.  Where errors are tolerated such
lines are passed over and counted, and are dead letters where a topic is named for them.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pybroker.connectors.declared.common_keys import DEAD_LETTERS
from pybroker.connectors.declared.transforms import transforms_of
from pybroker.connectors.kinds.connector_runs import QueryRun, Run, Work
from pybroker.connectors.kinds.line_places import can_be_searched
from pybroker.connectors.kinds.lines_passed_over import FILE, NO_ROW, CountedLines, LineLetters, line_numbers
from pybroker.connectors.kinds.record_forms import records_of, transformed, with_own_columns
from pybroker.pipeline.spark_names import spark_name

# Of which a line may be no row.
_OF_LINES: Final = ("csv", "json")
# Of the error with which Spark ends a query.
_FILE: Final = re.compile(r"while reading file (file:\S+?)\.?(?:\s|$)")


def start(work: Work) -> Run:
    """Start it; raises what Spark says of the schema, the transforms or the path."""
    found = _found(work)
    if NO_ROW not in found.columns:
        run = _StrictRun if work.value("format").lower() in _OF_LINES else QueryRun
        return run(_to_topic(work, _records(work, found)).start(), work)
    if not work.value(DEAD_LETTERS):
        counted = CountedLines(work)
        return QueryRun(counted.begin(_to_topic(work, _records(work, counted.rows(found))).start), work, counted)
    letters = LineLetters(work, lambda rows: _records(work, rows))
    # Said here of the transforms and the schema, and not by the first micro-batch.
    _records(work, letters.rows(found))
    writer = found.writeStream.queryName(work.name).foreachBatch(letters.take)
    return QueryRun(_by_interval(work, writer).start(), work, letters)


class _StrictRun(QueryRun):
    """A query that ends at the first line which is no row."""

    _told: str | None = None

    @property
    def failure(self) -> str | None:
        """See `Run`."""
        said = super().failure
        if said is not None and self._told is None:
            self._told = said + _line_of(self._work, said)
        return self._told


def _line_of(work: Work, said: str) -> str:
    """Which line is no row; the file is read once more, because Spark's error has its name, and not the line."""
    # The supervisor's thread waits for it, so that a file in which no line would be found is not read.
    if (file := _FILE.search(said)) is None or not can_be_searched(file[1]):
        return ""
    # Else a name with a bracket would be a pattern.
    reader = _reading(work, work.spark.read.option("__globPaths__", "false"), passes_over=True)
    try:
        bad = reader.load(unquote(urlsplit(file[1]).path)).where(F.col(NO_ROW).isNotNull()).limit(1).collect()
    except (PySparkException, Py4JJavaError):
        return ""
    found = [each for row in bad for each in line_numbers(work, file[1], {row[NO_ROW]}).get(row[NO_ROW], ())]
    return f"; line {found[0]} is no row" if found else ""


def _to_topic(work: Work, records: DataFrame) -> DataStreamWriter:
    return _by_interval(work, records.writeStream.format("pybroker").queryName(work.name).options(**work.cluster))


def _by_interval(work: Work, writer: DataStreamWriter) -> DataStreamWriter:
    return writer.option("checkpointLocation", work.directory).trigger(processingTime=work.interval)


def _records(work: Work, rows: DataFrame) -> DataFrame:
    flat = with_own_columns(rows, work.value("topic"))
    return records_of(transformed(flat, transforms_of(work.config)), work.forms, work.value("key.fields"))


def _found(work: Work) -> DataFrame:
    """Rows; where a line that is none is passed over, with its text as `NO_ROW` and the name of its `FILE`."""
    passes_over = work.value("format").lower() in _OF_LINES and work.tolerates_errors
    stream = work.spark.readStream.option("maxFilesPerTrigger", str(work.value("max.files.per.batch")))
    found: DataFrame = _reading(work, stream, passes_over=passes_over).load(work.value("path"))
    if not passes_over:
        return found
    return found.withColumn(FILE, F.when(F.col(NO_ROW).isNotNull(), F.col("_metadata.file_path")))


def _reading(work: Work, reader: Any, *, passes_over: bool) -> Any:
    """A reader of the files' form; where it passes over lines that are no rows, it has their texts as `NO_ROW`."""
    form: str = work.value("format").lower()
    reader = reader.format(form)
    if form != "text":
        reader = reader.schema(work.value("schema") + (f", {spark_name(NO_ROW)} string" if passes_over else ""))
    if form == "csv":
        reader = reader.option("header", str(work.value("header")).lower()).option(
            "sep", work.config.get("delimiter", ",")
        )
    if passes_over:
        return reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", NO_ROW)
    return reader.option("mode", "FAILFAST") if form in _OF_LINES else reader

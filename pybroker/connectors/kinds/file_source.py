"""FileSource: files of a directory as they arrive, each line or row a record.

A file is read once, when it is there whole: it has to be moved into the directory.  Each record is written exactly
once: Spark's checkpoint has the files that were read, and a micro-batch is one transaction per task.

A line that is no row ends the query.  Where errors are tolerated such lines are passed over and counted, and are dead
letters where a topic is named for them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pybroker.connectors.declared.common_keys import DEAD_LETTERS
from pybroker.connectors.declared.transforms import quoted, transforms_of
from pybroker.connectors.kinds.connector_runs import QueryRun, Run, Work
from pybroker.connectors.kinds.lines_passed_over import FILE, NO_ROW, CountedLines, LineLetters
from pybroker.connectors.kinds.record_forms import records_of, transformed, with_own_columns

# Of which a line may be no row.
_OF_LINES: Final = ("csv", "json")


def start(work: Work) -> Run:
    """Start it; raises what Spark says of the schema, the transforms or the path."""
    found = _found(work)
    if NO_ROW not in found.columns:
        return QueryRun(_to_topic(work, _records(work, found)).start(), work)
    if not work.value(DEAD_LETTERS):
        counted = CountedLines(work)
        return QueryRun(counted.begin(_to_topic(work, _records(work, counted.rows(found))).start), work, counted)
    letters = LineLetters(work, lambda rows: _records(work, rows))
    # Said here of the transforms and the schema, and not by the first micro-batch.
    _records(work, letters.rows(found))
    writer = found.writeStream.queryName(work.name).foreachBatch(letters.take)
    return QueryRun(_by_interval(work, writer).start(), work, letters)


def _to_topic(work: Work, records: DataFrame) -> DataStreamWriter:
    return _by_interval(work, records.writeStream.format("pybroker").queryName(work.name).options(**work.cluster))


def _by_interval(work: Work, writer: DataStreamWriter) -> DataStreamWriter:
    return writer.option("checkpointLocation", work.directory).trigger(processingTime=work.interval)


def _records(work: Work, rows: DataFrame) -> DataFrame:
    flat = with_own_columns(rows, work.value("topic"))
    return records_of(transformed(flat, transforms_of(work.config)), work.forms, work.value("key.fields"))


def _found(work: Work) -> DataFrame:
    """Rows; where a line that is none is passed over, with its text as `NO_ROW` and the name of its `FILE`."""
    form: str = work.value("format").lower()
    reader = work.spark.readStream.format(form).option("maxFilesPerTrigger", str(work.value("max.files.per.batch")))
    passes_over = form in _OF_LINES and work.tolerates_errors
    if form != "text":
        reader = reader.schema(work.value("schema") + (f", {quoted(NO_ROW)} string" if passes_over else ""))
    if form == "csv":
        reader = reader.option("header", str(work.value("header")).lower()).option(
            "sep", work.config.get("delimiter", ",")
        )
    if passes_over:
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", NO_ROW)
        found: DataFrame = reader.load(work.value("path"))
        return found.withColumn(FILE, F.when(F.col(NO_ROW).isNotNull(), F.col("_metadata.file_path")))
    if form in _OF_LINES:
        reader = reader.option("mode", "FAILFAST")
    strict: DataFrame = reader.load(work.value("path"))
    return strict

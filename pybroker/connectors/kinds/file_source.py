"""FileSource: files of a directory as they arrive, each line or row a record.

A file is read once, when it is there whole: it has to be moved into the directory.  Each record is written exactly
once: Spark's checkpoint has the files that were read, and a micro-batch is one transaction per task.

A line that is no row ends the query.  Where errors are tolerated such lines are passed over, and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pybroker.connectors.declared.transforms import quoted, transforms_of
from pybroker.connectors.kinds.connector_runs import QueryRun, Run, Work
from pybroker.connectors.kinds.record_forms import records_of, transformed, with_own_columns
from pybroker.pipeline.observed_metrics import ObservedMetrics

# The column of a line that is no row, and the name of what is observed of it.
_NO_ROW: Final = "_pybroker_no_row"

_log = logging.getLogger(__name__)


def start(work: Work) -> Run:
    """Start it; raises what Spark says of the schema, the transforms or the path."""
    rows = with_own_columns(_rows(work), work.value("topic"))
    records = records_of(transformed(rows, transforms_of(work.config)), work.forms, work.value("key.fields"))
    writer = records.writeStream.format("pybroker").queryName(work.name).options(**work.cluster)
    writer = writer.option("checkpointLocation", work.directory).trigger(processingTime=work.interval)
    if not work.tolerates_errors:
        return QueryRun(writer.start(), work)
    counted = _LinesPassedOver(work)
    return QueryRun(counted.begin(writer.start), work, counted)


def _rows(work: Work) -> Any:
    form: str = work.value("format").lower()
    reader = work.spark.readStream.format(form).option("maxFilesPerTrigger", str(work.value("max.files.per.batch")))
    passes_over = form in ("csv", "json") and work.tolerates_errors
    if form != "text":
        reader = reader.schema(work.value("schema") + (f", {_NO_ROW} string" if passes_over else ""))
    if form == "csv":
        reader = reader.option("header", str(work.value("header")).lower()).option(
            "sep", work.config.get("delimiter", ",")
        )
    if passes_over:
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _NO_ROW)
        return _with_rows_alone(reader.load(work.value("path")))
    if form in ("csv", "json"):
        reader = reader.option("mode", "FAILFAST")
    return reader.load(work.value("path"))


def _with_rows_alone(found: DataFrame) -> DataFrame:
    """Without the lines that are no rows, which are observed: how many there are, and a file that has some."""
    is_none = F.col(_NO_ROW).isNotNull()
    file = F.when(is_none, F.col("_metadata.file_path"))
    counted = found.observe(_NO_ROW, F.count_if(is_none).alias("count"), F.max(file).alias("file"))
    return counted.where(~is_none).select(*(quoted(name) for name in found.columns if name != _NO_ROW))


class _LinesPassedOver:
    """Counts the lines that a run has passed over, and logs those of each micro-batch."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._count = 0
        self._file = ""
        self._observed = ObservedMetrics(work.spark, work.name, self._note)

    def begin(self, start: Callable[[], StreamingQuery]) -> StreamingQuery:
        """The query that ``start`` starts, whose lines are counted from the first one on."""
        return self._observed.begin(start)

    def close(self) -> None:
        """See `Watch`."""
        self._observed.close()

    def remark(self) -> str | None:
        """See `Watch`."""
        return f"lines that are no rows: {self._count}, the last in {self._file}" if self._count else None

    def _note(self, metric: str, values: Row) -> None:
        if metric != _NO_ROW or not values["count"]:
            return
        self._count += values["count"]
        self._file = values["file"]
        if self._work.value("errors.log.enable"):
            told = "%s: %d lines are no rows and are passed over, some of them in %s; %d since the start"
            _log.warning(told, self._work.name, values["count"], values["file"], self._count)

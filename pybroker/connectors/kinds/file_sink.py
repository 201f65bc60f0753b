"""FileSink: rows as files of a directory, Parquet or lines of JSON, CSV or text, each row exactly once.

A micro-batch's rows are staged, and its number noted, before Spark goes on; `lake_files` has the rest.  Neither is
Spark's own file sink: its readers alone know which files count, and others find those of tasks that failed.

A value of several lines is no line of text: its record is refused.

Owns the thread that lets readers see what is old enough, for Spark calls nothing while no records come.
"""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from pybroker.connectors.declared.config_keys import nearest
from pybroker.connectors.kinds.connector_runs import RecordRefused, Run, Work
from pybroker.connectors.kinds.lake_files import Bounds, FileLake
from pybroker.connectors.kinds.lake_forms import FOLDERS, STAGED_COLUMNS, LakeForm, LinesForm, ParquetForm, TaskWriting
from pybroker.connectors.kinds.lake_log import Staged
from pybroker.connectors.kinds.query_epochs import query_of
from pybroker.connectors.kinds.record_forms import PLACE, FormRefused, fields_of
from pybroker.connectors.kinds.refused_records import Refusal
from pybroker.connectors.kinds.sink_queries import start_sink
from pybroker.pipeline.checkpoint_files import has_noted
from pybroker.pipeline.spark_names import spark_name

_LOOKED_AT_MOST_S: Final = 5.0
_LOOKED_AT_LEAST_S: Final = 0.1
# Readers of text end a line at either.
_LINE_ENDS: Final = "[\r\n]"
_TIMES: Final = (TimestampType, TimestampNTZType, DateType)


def start(work: Work) -> Run:
    """Start it; raises what is wrong."""
    directory = local_path(work.value("path"))
    bounds = Bounds(work.value("file.size.bytes"), work.value("rotate.interval.ms"))
    lake = FileLake(directory, work.name, _form(work), bounds)
    # Spark notes a micro-batch before it is written, and the directory has its log before that.
    lake.open(has_written=has_noted(work.directory))
    query = start_sink(work, _FileSink(work, lake).write, takes_tombstones=False)
    return _FileRun(work, lake, query, bounds)


def local_path(text: str) -> Path:
    """A directory by its path or its URL of ``file:``."""
    return Path(unquote(urlsplit(text).path)) if text.startswith("file:") else Path(text)


class _FileRun:
    def __init__(self, work: Work, lake: FileLake, query: Run, bounds: Bounds) -> None:
        self._work, self._lake, self._query = work, lake, query
        self._pause_s = min(max(bounds.age_ms / 4_000, _LOOKED_AT_LEAST_S), _LOOKED_AT_MOST_S)
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._publish, name=f"files-{work.name}", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str | None:
        """See `Run`."""
        return self._failure or self._query.failure

    @property
    def remark(self) -> str | None:
        """See `Run`."""
        return self._query.remark

    def stop(self) -> None:
        """See `Run`.  What is staged is seen then."""
        self._query.stop()
        self._thread.join()
        if self._failure is None:
            self._lake.publish(all_of_it=True)

    def _publish(self) -> None:
        try:
            while not self._work.ends.wait(self._pause_s):
                self._lake.publish()
        except Exception as error:  # whatever the disk says
            self._failure = f"{type(error).__name__}: {error}"


class _FileSink:
    def __init__(self, work: Work, lake: FileLake) -> None:
        self._work, self._lake = work, lake
        self._by: str = work.value("partition.by").lower()
        self._format: str = work.value("format").lower()
        self._delimiter: str = work.config.get("delimiter", ",")

    def write(self, rows: DataFrame, epoch: int) -> list[Refusal]:
        """A micro-batch, which is passed over where its number is known; the records that are no lines."""
        query = query_of(rows)
        rows, refused = self._lines(rows)
        if not self._lake.has(query, epoch):
            self._stage(rows, query, epoch)
        return refused

    def _stage(self, rows: DataFrame, query: str, epoch: int) -> None:
        columns = {name: rows.schema[name].dataType.simpleString() for name in fields_of(rows)}
        # Lines of CSV have no names.
        is_fixed = self._format == "csv" and not self._work.value("header")
        self._lake.check(columns, evolves=bool(self._work.value("auto.evolve")) and not is_fixed, is_whole=is_fixed)
        for folder in FOLDERS[self._by].split("/") if self._by != "none" else ():
            if (name := folder.partition("=")[0]) in columns:
                raise FormRefused(f"the value has a field {name}, as the folders have: a transform can rename it")
        now_ms = self._lake.now_ms()
        names = _header(columns, self._delimiter)
        written = rows.select(*self._shaped(rows, list(columns)), self._time(rows).alias("_time"))
        tasks = TaskWriting(str(self._lake.staging), _form(self._work), self._by)
        found: list[Any] = written.mapInArrow(tasks, STAGED_COLUMNS).collect()
        staged = [Staged(each.file, each.folder, names, each.rows, each.size, now_ms) for each in found]
        self._lake.stage(query, epoch, staged, columns)

    def _lines(self, rows: DataFrame) -> tuple[DataFrame, list[Refusal]]:
        """Of text the values of one line, and the others as refused; raises `RecordRefused` where none is tolerated."""
        fields = fields_of(rows)
        if self._format != "text" or len(fields) != 1:
            return rows, []
        has_many = F.coalesce(F.col(spark_name(fields[0])).cast("string").rlike(_LINE_ENDS), F.lit(False))
        places = rows.where(has_many).select(*PLACE)
        found = [
            Refusal.by_target(topic, partition, offset, "the value has several lines, and format text has one for each")
            for topic, partition, offset in (places if self._work.tolerates_errors else places.limit(1)).collect()
        ]
        if found and not self._work.tolerates_errors:
            raise RecordRefused(str(found[0]))
        return rows.where(~has_many), found

    def _shaped(self, rows: DataFrame, fields: list[str]) -> list[Column]:
        columns = [F.col(spark_name(name)) for name in fields]
        if self._format == "parquet":
            return columns
        if self._format == "json":
            return [F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})]
        if self._format == "csv":
            return [F.to_csv(F.struct(*columns), {"sep": self._delimiter})]
        if len(fields) != 1:
            raise FormRefused(f"format text takes one field, and there are {', '.join(fields)}")
        return [columns[0].cast("string")]

    def _time(self, rows: DataFrame) -> Column:
        field: str = self._work.value("partition.field")
        if self._by == "none":
            return F.lit(None).cast("timestamp")
        if field not in rows.columns:
            near = nearest(field, rows.columns)
            raise FormRefused(f"partition.field: there is no field {field}" + (f"; is {near} meant?" if near else ""))
        kind = rows.schema[field].dataType
        if not isinstance(kind, _TIMES):
            raise FormRefused(
                f"partition.field: {field} is {kind.simpleString()}, and no time: a transform can make one of it"
            )
        return F.col(spark_name(field))


def _form(work: Work) -> LakeForm:
    form: str = work.value("format").lower()
    if form == "parquet":
        return ParquetForm(work.value("compression").lower())
    return LinesForm(
        {"json": ".json", "csv": ".csv", "text": ".txt"}[form], form == "csv" and bool(work.value("header"))
    )


def _header(names: Iterable[str], delimiter: str) -> str:
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="").writerow(names)
    return line.getvalue()

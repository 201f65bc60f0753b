"""DeltaSink: rows of a Delta table, each exactly once: Delta's log has the number of each query's last micro-batch.

Where errors are tolerated, rows that the table refuses are left out before each write: of a micro-batch that comes
again Delta would not say that it has refused some.

The session needs Delta's package and its two settings, which the page on connectors names.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame

from pybroker.connectors.kinds.connector_runs import RecordRefused, Run, Work
from pybroker.connectors.kinds.delta_rules import judged
from pybroker.connectors.kinds.query_epochs import query_of
from pybroker.connectors.kinds.record_forms import fields_of
from pybroker.connectors.kinds.refused_records import Refusal
from pybroker.connectors.kinds.sink_queries import start_sink
from pybroker.pipeline.spark_names import spark_name


class TableRefused(RuntimeError):
    """The table lacks a column, and the connector may not change that."""


def start(work: Work) -> Run:
    """Start it; raises what is wrong."""
    return start_sink(work, _DeltaSink(work).write, takes_tombstones=False)


class _DeltaSink:
    def __init__(self, work: Work) -> None:
        self._path: str = work.value("path")
        self._partitions: list[str] = work.value("partition.fields")
        self._evolves = bool(work.value("auto.evolve"))
        self._work = work

    def write(self, rows: DataFrame, epoch: int) -> list[Refusal]:
        """A micro-batch, which Delta passes over where its number is there."""
        if self._work.tolerates_errors:
            refused, rest = judged(rows, self._path)
            self._save(rest, epoch)
            return refused
        try:
            self._save(rows, epoch)
        except AnalysisException:
            raise
        except (PySparkException, Py4JJavaError):
            refused, _ = judged(rows, self._path)
            if refused:
                # Not chained: what Spark said first would be what ended the query.
                raise RecordRefused(str(refused[0])) from None
            raise
        return []

    def _save(self, rows: DataFrame, epoch: int) -> None:
        query = query_of(rows)
        options = {
            "txnAppId": f"{self._work.name}-{query}",
            "txnVersion": str(epoch),
            "mergeSchema": str(self._evolves).lower(),
        }
        writer = rows.select(*map(spark_name, fields_of(rows))).write.format("delta").mode("append").options(**options)
        try:
            writer.partitionBy(*self._partitions).save(self._path)
        except AnalysisException:
            if not self._evolves and (missing := self._missing(rows)):
                # Not chained: Delta's text is several lines, of which the last one would be the reason.
                raise TableRefused(f"table {self._path} has no column {missing}, and auto.evolve is false") from None
            raise

    def _missing(self, rows: DataFrame) -> str | None:
        """The first field that the table has no column for; None where there is no table."""
        try:
            there = rows.sparkSession.read.format("delta").load(self._path).columns
        except AnalysisException:
            return None
        known = {name.lower() for name in there}
        return next((name for name in fields_of(rows) if name.lower() not in known), None)

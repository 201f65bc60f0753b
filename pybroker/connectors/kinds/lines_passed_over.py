"""Lines of files that are no rows: counted, and dead letters where a topic is named for them.

Spark tells a line's file, and not where in the file it is; so a dead letter is the line itself.  Rows and dead letters
of a micro-batch are two epochs of the query.  That of the rows has the name which the sink of topics gives by itself.
Between two attempts of one micro-batch a connector may be given a topic of dead letters.

Owns the count, its words, and the reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pybroker.connectors.declared.common_keys import DEAD_LETTERS
from pybroker.connectors.declared.transforms import quoted
from pybroker.connectors.kinds.connector_runs import Work
from pybroker.connectors.kinds.dead_letters import write_letters
from pybroker.connectors.kinds.query_epochs import query_of, write_once
from pybroker.pipeline.converters.decoding import ERROR_SUFFIX
from pybroker.pipeline.converters.json_values import json_of
from pybroker.pipeline.observed_metrics import ObservedMetrics
from pybroker.pipeline.topics.rows import HEADERS_TYPE
from pybroker.pipeline.topics.writers import default_group

# Columns of a line that is no row: its text, and its file.  The first is also the name of what is observed.
NO_ROW: Final = "_pybroker_no_row"
FILE: Final = "_pybroker_file"

_log = logging.getLogger(__name__)


class _Lines:
    """How many lines a run has passed over, and those of each micro-batch in the log."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._count = 0
        self._file = ""

    def remark(self) -> str | None:
        """See `Watch`."""
        return f"lines that are no rows: {self._count}, the last in {self._file}" if self._count else None

    def note(self, count: int, file: str) -> None:
        """So many lines of a micro-batch, some of them in a file."""
        if not count:
            return
        self._count += count
        self._file = file
        if self.work.value("errors.log.enable"):
            topic: str = self.work.value(DEAD_LETTERS)
            told = "%s: %d lines are no rows and are passed over, some of them in %s; %d since the start%s"
            _log.warning(told, self.work.name, count, file, self._count, f": see {topic}" if topic else "")


class CountedLines(_Lines):
    """Lines that are counted, and nothing else."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._observed = ObservedMetrics(work.spark, work.name, self._tell)

    def begin(self, start: Callable[[], StreamingQuery]) -> StreamingQuery:
        """The query that ``start`` starts, whose lines are counted from the first one on."""
        return self._observed.begin(start)

    def close(self) -> None:
        """See `Watch`."""
        self._observed.close()

    def rows(self, found: DataFrame) -> DataFrame:
        """Without the lines that are no rows, which Spark counts."""
        count, file = F.count(NO_ROW).alias("count"), F.max(FILE).alias("file")
        return _rows(found.observe(NO_ROW, count, file))

    def _tell(self, metric: str, values: Row) -> None:
        if metric == NO_ROW:
            self.note(values["count"], values["file"])


class LineLetters(_Lines):
    """Lines that are dead letters; ``records`` makes records of rows."""

    def __init__(self, work: Work, records: Callable[[DataFrame], DataFrame]) -> None:
        super().__init__(work)
        self._records = records

    def close(self) -> None:
        """See `Watch`."""

    def take(self, batch: DataFrame, epoch: int) -> None:
        """A micro-batch: it is kept, because Spark reads no line of a file for its text alone."""
        with ExitStack() as kept:
            found = batch.persist()
            kept.callback(found.unpersist)
            bad, query = found.where(F.col(NO_ROW).isNotNull()), query_of(batch)
            write_letters(self.work, self._letters(bad), ("file",), f"{self.work.group}-dead-{query}", epoch)
            write_once(self._records(_rows(found)), self.work.cluster, default_group(query or None), epoch)
            for count, file in bad.select(F.count(NO_ROW), F.max(FILE)).collect():
                self.note(count, file)

    def rows(self, found: DataFrame) -> DataFrame:
        """Without the lines that are no rows."""
        return _rows(found)

    def _letters(self, bad: DataFrame) -> DataFrame:
        schema: str = self.work.value("schema")
        form: str = self.work.value("format").lower()
        letters = bad.select(
            F.lit(None).cast("binary").alias("raw_key"),
            F.col(NO_ROW).cast("binary").alias("raw_value"),
            F.lit(None).cast(HEADERS_TYPE).alias("headers"),
            F.col(FILE).alias("file"),
            F.col(NO_ROW).alias("line"),
        )
        reason = F.lit(f"is no line of {form} with the columns {schema}")
        if form == "json":
            letters = json_of(schema)(letters, "line")
            reason = F.coalesce(F.col(f"line{ERROR_SUFFIX}"), reason)
        return letters.withColumn("error", F.concat(F.lit("value: "), reason))


def _rows(found: DataFrame) -> DataFrame:
    columns = (quoted(name) for name in found.columns if name not in (NO_ROW, FILE))
    return found.where(F.col(NO_ROW).isNull()).select(*columns)

"""Lines of files that are no rows: counted, and dead letters where a topic is named for them.

A dead letter is the line itself.  Spark tells its file, and `line_places` its number.  Rows and dead letters of a
micro-batch are two epochs of the query.  That of the rows has the name which the sink of topics gives by itself.
Between two attempts of one micro-batch a connector may be given a topic of dead letters.

Owns the count, its words, and the reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pybroker.connectors.declared.common_keys import DEAD_LETTERS
from pybroker.connectors.kinds.connector_runs import Work
from pybroker.connectors.kinds.dead_letters import write_letters
from pybroker.connectors.kinds.line_places import numbers_of
from pybroker.connectors.kinds.query_epochs import query_of, write_once
from pybroker.pipeline.converters.decoding import ERROR_SUFFIX
from pybroker.pipeline.converters.json_values import json_of
from pybroker.pipeline.observed_metrics import ObservedMetrics
from pybroker.pipeline.spark_names import spark_name
from pybroker.pipeline.topics.rows import HEADERS_TYPE
from pybroker.pipeline.topics.writers import default_group

# Columns of a line that is no row: its text, and its file.  The first is also the name of what is observed.
NO_ROW: Final = "_pybroker_no_row"
FILE: Final = "_pybroker_file"
# Lines of a micro-batch that are searched for in their files.
_SEARCHED_MAX: Final = 10_000
# Of such a line: so many go to the driver, where Spark takes no result of more than 1 GB.
_TEXT_MAX: Final = 2_000

_log = logging.getLogger(__name__)


def line_numbers(work: Work, file: str, texts: Collection[str]) -> Mapping[str, Sequence[int]]:
    """The numbers of lines of a file, by their texts."""
    has_header = work.value("format").lower() == "csv" and bool(work.value("header"))
    return numbers_of(file, texts, has_header=has_header)


class _Lines:
    """How many lines a run has passed over, and those of each micro-batch in the log."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._count = 0
        self._place = ""

    def remark(self) -> str | None:
        """See `Watch`."""
        return f"lines that are no rows: {self._count}, the last in {self._place}" if self._count else None

    def note(self, count: int, file: str, numbers: Sequence[int]) -> None:
        """So many lines of a micro-batch, some of them in a file, with the numbers of these where they are known."""
        if not count:
            return
        self._count += count
        self._place = f"{file}, line {numbers[-1]}" if numbers else file
        if self.work.value("errors.log.enable"):
            topic: str = self.work.value(DEAD_LETTERS)
            told = "%s: %d lines are no rows and are passed over, some of them in %s; %d since the start%s"
            _log.warning(told, self.work.name, count, self._place, self._count, f": see {topic}" if topic else "")


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
        return _rows(found.observe(NO_ROW, count, file, F.max_by(NO_ROW, FILE).alias("text")))

    def _tell(self, metric: str, values: Row) -> None:
        if metric == NO_ROW and values["count"]:
            file, text = values["file"], values["text"]
            self.note(values["count"], file, line_numbers(self.work, file, {text}).get(text, ()))


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
            places = self._places(bad)
            letters = self._letters(bad, places)
            write_letters(self.work, letters, ("file", "line"), f"{self.work.group}-dead-{query}", epoch)
            write_once(self._records(_rows(found)), self.work.cluster, default_group(query or None), epoch)
            for count, file in bad.select(F.count(NO_ROW), F.max(FILE)).collect():
                self.note(count, file, max((tuple(numbers) for at, _, numbers in places if at == file), default=()))

    def rows(self, found: DataFrame) -> DataFrame:
        """Without the lines that are no rows."""
        return _rows(found)

    def _places(self, bad: DataFrame) -> list[tuple[str, str, Sequence[int]]]:
        """The files, texts and numbers of lines that are no rows; of the first ones that are no longer than a bound."""
        texts: dict[str, set[str]] = {}
        short = bad.where(F.length(NO_ROW) <= _TEXT_MAX)
        for file, text in short.select(FILE, NO_ROW).limit(_SEARCHED_MAX).collect():
            texts.setdefault(file, set()).add(text)
        found = {file: line_numbers(self.work, file, wanted) for file, wanted in texts.items()}
        return [(file, text, numbers) for file, of_file in found.items() for text, numbers in of_file.items()]

    def _letters(self, bad: DataFrame, places: Sequence[tuple[str, str, Sequence[int]]]) -> DataFrame:
        schema: str = self.work.value("schema")
        form: str = self.work.value("format").lower()
        letters = bad.select(
            F.lit(None).cast("binary").alias("raw_key"),
            F.col(NO_ROW).cast("binary").alias("raw_value"),
            F.lit(None).cast(HEADERS_TYPE).alias("headers"),
            F.col(FILE).alias("file"),
            F.col(NO_ROW).alias("text"),
        )
        reason = F.lit(f"is no line of {form} with the columns {schema}")
        if form == "json":
            letters = json_of(schema)(letters.withColumn("json", F.col("text")), "json")
            reason = F.coalesce(F.col(f"json{ERROR_SUFFIX}"), reason)
        lines: dict[str, Any] = {
            "file": [file for file, _, _ in places],
            "text": [text for _, text, _ in places],
            "line": [",".join(map(str, numbers)) for _, _, numbers in places],
        }
        texts = pa.table(lines, pa.schema([(name, pa.string()) for name in lines]))
        numbered = bad.sparkSession.createDataFrame(texts, "file string, text string, line string")
        # A join by hashes would change which task writes what, and with it what a repeat passes over.
        letters = letters.join(F.broadcast(numbered), ["file", "text"], "left")
        return letters.withColumn("error", F.concat(F.lit("value: "), reason))


def _rows(found: DataFrame) -> DataFrame:
    columns = (spark_name(name) for name in found.columns if name not in (NO_ROW, FILE))
    return found.where(F.col(NO_ROW).isNull()).select(*columns)

"""What ended a query is told in one line. Starts a JVM, but no broker.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pybroker import pipeline

pytestmark = pytest.mark.jvm(needs="spark")

SCHEMA = "value string"


def ended(writer: Any, work_dir: Path) -> Any:
    """The query of a writer, which has ended by itself."""
    from pyspark.errors import StreamingQueryException

    query = writer.option("checkpointLocation", str(work_dir / "checkpoint")).trigger(availableNow=True).start()
    with suppress(StreamingQueryException):
        query.awaitTermination(60)
    assert not query.isActive
    return query


@pytest.fixture
def lines(spark: Any, tmp_path: Path) -> Any:
    """A stream with a row that is no number."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "lines.txt").write_text("seven\n")
    return spark.readStream.schema(SCHEMA).text(str(source))


def test_what_a_task_in_python_could_not_do_is_told_in_one_line(lines: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    number = F.udf(lambda text: int(text) + 1, "int")
    query = ended(lines.select(number("value")).writeStream.format("noop"), tmp_path)
    assert pipeline.what_ended(query) == "ValueError: invalid literal for int() with base 10: 'seven'"


def test_what_a_function_of_batches_raised_is_told_in_one_line(lines: Any, tmp_path: Path) -> None:
    def refuse(batch: Any, epoch: int) -> None:
        raise ConnectionError(f"the database is gone at batch {epoch}")

    query = ended(lines.writeStream.foreachBatch(refuse), tmp_path)
    assert pipeline.what_ended(query) == "ConnectionError: the database is gone at batch 0"


def test_what_spark_itself_refuses_is_told_in_one_line(lines: Any, tmp_path: Path) -> None:
    query = ended(lines.selectExpr("cast(value as int)").writeStream.format("noop"), tmp_path)
    told = pipeline.what_ended(query)
    assert told is not None
    assert "[CAST_INVALID_INPUT]" in told
    assert "\n" not in told


def test_a_query_that_has_done_all_was_ended_by_nothing(lines: Any, tmp_path: Path) -> None:
    assert pipeline.what_ended(ended(lines.writeStream.format("noop"), tmp_path)) is None

"""Rows of a micro-batch as `FileSink` writes them, in a session of Spark and without a supervisor.

Starts a JVM; needs what `scripts/spark-setup` installs.
"""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from pybroker.connectors.declared.plugin_kinds import kind_named

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(600)]

LATE = datetime(2026, 1, 2, 23, 30, tzinfo=UTC)
DDL = "id bigint, at timestamp, on date, name string"
ROWS = [(1, LATE, date(2026, 1, 2), "a"), (2, LATE, date(2026, 2, 3), "b"), (3, None, None, "c")]


def written(spark: Any, directory: Path, rows: list[tuple[Any, ...]] = ROWS, ddl: str = DDL, **config: str) -> Any:
    """The directory of the sink behind one micro-batch."""
    one, lake = sink(spark, directory, **config)
    one.write(with_places(spark, rows, ddl), 0)
    return lake


def with_places(spark: Any, rows: list[tuple[Any, ...]], ddl: str) -> Any:
    """Flat rows, whose records are of one partition."""
    from pyspark.sql import functions as F

    from pybroker.connectors.kinds.record_forms import with_own_columns

    flat = with_own_columns(spark.createDataFrame(rows, ddl).coalesce(1), "t")
    place = {"_origin": F.lit("t"), "_partition": F.lit(0), "_offset": F.monotonically_increasing_id()}
    return flat.withColumns(place)


def sink(spark: Any, directory: Path, **config: str) -> tuple[Any, Any]:
    """A sink and the lake that it writes to."""
    from pybroker.connectors.kinds.connector_runs import Work
    from pybroker.connectors.kinds.file_sink import _FileSink, _form
    from pybroker.connectors.kinds.lake_files import Bounds, FileLake

    kind = kind_named("FileSink")
    assert kind is not None
    settings = {"path": str(directory), **{key.replace("_", "."): text for key, text in config.items()}}
    place: Any = None
    work = Work("rows", kind, settings, spark, {}, "", "", lambda _: "", place, threading.Event())
    lake = FileLake(directory, "rows", _form(work), Bounds(1, 0))
    lake.open(has_written=False)
    return _FileSink(work, lake), lake


def folders(directory: Path) -> list[str]:
    return sorted(str(each.parent.relative_to(directory)) for each in directory.rglob("*.parquet"))


def test_folders_are_those_of_utc_whatever_zone_the_session_has(spark: Any, tmp_path: Path) -> None:
    import pandas as pd

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        lake = written(spark, tmp_path, partition_field="at", partition_by="hour")
        lake.publish()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    nowhere = "day=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
    assert set(folders(tmp_path)) == {"day=2026-01-02/hour=23", nowhere}
    frame = pd.read_parquet(tmp_path / "day=2026-01-02")
    assert {each.astimezone(UTC) for each in frame["at"]} == {LATE}
    assert sorted(frame["id"]) == [1, 2]


def test_folders_are_of_a_date_and_spark_reads_no_staged_file(spark: Any, tmp_path: Path) -> None:
    lake = written(spark, tmp_path, partition_field="on", partition_by="month")
    lake.publish()
    assert set(folders(tmp_path)) == {"month=2026-01", "month=2026-02", "month=__HIVE_DEFAULT_PARTITION__"}
    written(spark, tmp_path / "other", ROWS)
    assert not folders(tmp_path / "other")
    found = spark.read.parquet(str(tmp_path)).orderBy("id").collect()
    assert [(row.id, row.on, row.name) for row in found] == [(each[0], each[2], each[3]) for each in ROWS]


@pytest.mark.parametrize(
    ("ddl", "config", "told"),
    [
        (DDL, {"partition_field": "atx"}, "partition.field: there is no field atx; is at meant"),
        (DDL, {"partition_field": "name"}, "partition.field: name is string, and no time"),
        ("id bigint, at timestamp, day date, name string", {}, "the value has a field day, as the folders have"),
        (
            DDL,
            {"format": "text", "partition_by": "none"},
            "format text takes one field, and there are id, at",
        ),
    ],
)
def test_rows_that_fit_no_file_are_refused(
    spark: Any, tmp_path: Path, ddl: str, config: dict[str, Any], told: str
) -> None:
    from pybroker.connectors.kinds.record_forms import FormRefused

    with pytest.raises(FormRefused, match=told):
        written(spark, tmp_path, ddl=ddl, **config)
    assert not folders(tmp_path)


def test_a_value_of_several_lines_is_refused_as_a_line_of_text(spark: Any, tmp_path: Path) -> None:
    from pybroker.connectors.kinds.connector_runs import RecordRefused

    rows = with_places(spark, [("a",), ("b\nc",), (None,), ("d\re",), ("f",)], "line string")
    text = {"format": "text", "partition_by": "none"}
    strict, _ = sink(spark, tmp_path / "strict", **text)
    reason = "target: the value has several lines"
    with pytest.raises(RecordRefused, match=f"the record of t-0 at offset 1: {reason}"):
        strict.write(rows, 0)
    one, lake = sink(spark, tmp_path / "tolerant", **text, errors_tolerance="all")
    # A micro-batch that comes again writes nothing, and its dead letters are written behind it.
    for _ in range(2):
        refused = one.write(rows, 0)
        assert [(each.topic, each.partition, each.offset) for each in refused] == [("t", 0, 1), ("t", 0, 3)]
        assert all(each.reason.startswith(reason) for each in refused)
    lake.publish()
    (path,) = (tmp_path / "tolerant").glob("*.txt")
    assert path.read_bytes() == b"a\n\nf\n"

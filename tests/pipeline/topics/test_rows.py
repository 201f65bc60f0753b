"""Rows on their way to topics, without Spark's JVM.

Needs Arrow, which comes with Spark: marked like what starts a JVM.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")


def batch(*times_us: int | None) -> Any:
    import pyarrow as pa

    stamps = pa.array(times_us, pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict({"value": pa.array([b""] * len(times_us)), "timestamp": stamps})


def test_a_row_has_the_timestamp_of_its_column_in_ms_and_null_is_now() -> None:
    from pybroker.pipeline.topics.rows import NOW, records

    begin = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000)
    found = records(batch(begin * 1_000 + 999, None, 1_000), "t")
    assert [record.timestamp for record in found] == [begin, NOW, 1]


@pytest.mark.parametrize("at_us", [0, 999, -1_000])
def test_a_timestamp_that_producers_do_not_take_is_refused(at_us: int) -> None:
    from pybroker.pipeline.topics.rows import records

    with pytest.raises(
        ValueError, match=r"a row has timestamp -?\d ms; one of a record is after 1970 began, null is now"
    ):
        list(records(batch(at_us), "t"))


def test_a_timestamp_is_one_of_the_columns_and_of_its_type() -> None:
    from pyspark.sql.types import LongType, StringType, StructType, TimestampType

    from pybroker.pipeline.topics.rows import check_columns

    value = StructType().add("value", StringType())
    check_columns(StructType([*value.fields]).add("timestamp", TimestampType()), "t")
    with pytest.raises(ValueError, match="column timestamp must be timestamp, is bigint"):
        check_columns(StructType([*value.fields]).add("timestamp", LongType()), "t")

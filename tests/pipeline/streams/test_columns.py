"""Values as texts: keys of one type, texts that are none, and times. Starts a JVM, but runs no stream.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")

NO_UTF8 = "cast(X'0080' as string)"


def test_keys_are_of_one_type_whether_there_may_be_nulls_in_them_or_not() -> None:
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    from pybroker.pipeline.streams.columns import check_same_keys

    def nested(nulls: bool) -> Any:
        deep = MapType(StringType(), ArrayType(StringType(), nulls), nulls)
        return StructType([StructField("a", StringType(), nulls), StructField("b", deep, nulls)])

    check_same_keys(nested(True), nested(False))


def test_keys_of_two_types_are_refused() -> None:
    from pyspark.sql.types import IntegerType, StringType, StructType

    from pybroker.pipeline.streams.columns import check_same_keys

    key = StructType().add("a", StringType())
    for other in (StructType().add("a", IntegerType()), StructType().add("b", StringType()), StringType()):
        with pytest.raises(ValueError, match="keys differ: one side has struct<a:string>, the other "):
            check_same_keys(key, other)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (NO_UTF8, "key"),
        (f"struct(1 as n, struct({NO_UTF8} as t) as s)", "key.s.t"),
        (f"array('a', null, {NO_UTF8})", "key"),
        (f"map(1, array(struct({NO_UTF8} as t)))", "key"),
        (f"map({NO_UTF8}, 1)", "key"),
    ],
)
def test_a_text_that_is_no_utf8_ends_the_query_in_a_line_that_names_the_column(
    spark: Any, value: str, where: str
) -> None:
    from pybroker.pipeline.streams.columns import text_of

    frame = spark.sql(f"select {value} as key from range(1)")
    with pytest.raises(Exception, match=f"column {where} has a text that is no UTF-8: keep it binary, without a cast"):
        frame.select(text_of(frame, "key")).collect()


def test_values_are_what_they_were_once_they_were_text(spark: Any) -> None:
    from pybroker.pipeline.streams.columns import from_text, text_of

    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "Europe/Berlin")
    try:
        # Before standard time Berlin was 53 minutes and 28 seconds ahead.
        value = "struct(timestamp'1850-06-01T12:00:00Z' as old, timestamp'2026-06-01T12:00:00.000001Z' as new, "
        value += "array('ä', null) as texts, map('k', X'0080') as bytes, cast(null as string) as nothing)"
        frame = spark.sql(f"select {value} as value from range(1)")
        again = frame.select("value", from_text(text_of(frame, "value"), frame.schema["value"].dataType).alias("again"))
        same = [f"value.{name} <=> again.{name}" for name in ("old", "new", "texts", "bytes['k']", "nothing")]
        row = again.selectExpr(*same).first()
    finally:
        spark.conf.set(zone, before)
    assert list(row) == [True] * len(same)


def test_a_second_join_into_a_column_that_is_there_is_refused_up_front(spark: Any) -> None:
    from pybroker.pipeline.streams.stream_table_join import join_stream_table

    table = spark.sql("select 'k' as key, 'v' as value, current_timestamp() as timestamp")
    with pytest.raises(ValueError, match="the stream has a column table already: name another one by into"):
        join_stream_table(table.withColumn("Table", table.value), table)

"""Tables that change, and their joins, in the test driver: out of order, late, null, duplicate. Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")


def rows_of(topics: Any, topic: str) -> Any:
    """A topic as a table or a stream of texts."""
    return topics.stream(topic).selectExpr(
        "cast(key as string) key", "cast(value as string) value", "timestamp", "partition", "offset"
    )


def joined(table: Any) -> Any:
    """A join's result as records: LEFT-RIGHT."""
    return table.selectExpr(
        "key", "if(value is null, null, concat(coalesce(value.left, '?'), '-', coalesce(value.right, '?'))) value"
    )


def timed(table: Any) -> Any:
    """A join's result as records: LEFT-RIGHT@MS, of a tombstone -@MS."""
    shown = "concat(coalesce(value.left, ''), '-', coalesce(value.right, ''), '@', unix_millis(timestamp))"
    return table.selectExpr("key", f"{shown} as value")


def text(found: bytes) -> str:
    return found.decode()


def records(*pairs: Any) -> list[Any]:
    from pybroker.pipeline.testing import Record

    return [Record(*pair) for pair in pairs]


def test_the_latest_of_a_topic_leaves_deleted_keys_out(spark: Any) -> None:
    from pybroker.pipeline.streams.tables import latest

    rows = [
        ("a", "1", 0, 0, 10),
        ("a", "2", 0, 1, 5),  # newer by its offset
        ("b", "1", 0, 2, 11),
        ("b", None, 0, 3, 12),
        (None, "1", 0, 4, 13),
        ("c", "old", 0, 5, 14),  # the topic was given partitions later
        ("c", "new", 1, 0, 15),
    ]
    frame = spark.createDataFrame(rows, "key string, value string, partition int, offset bigint, at bigint").selectExpr(
        "key", "value", "partition", "offset", "timestamp_millis(at) timestamp"
    )
    assert {row.key: row.value for row in latest(frame).collect()} == {"a": "2", "c": "new"}


def test_a_change_is_told_with_what_it_changes(drive: Any) -> None:
    from pybroker.pipeline.streams.tables import changes
    from pybroker.pipeline.testing import Record

    def job(topics: Any) -> Any:
        told = changes(rows_of(topics, "users"))
        return {"changes": told.selectExpr("key", "concat(coalesce(before, '?'), '>', coalesce(after, '?')) value")}

    driver = drive(job)
    driver.pipe("users", *records(("a", "1"), ("a", "2"), ("b", None), (None, "1")))
    assert driver.read_pairs("changes", text) == [("a", "?>1"), ("a", "1>2")]
    driver.restart()
    driver.pipe("users", *records(("a", None), ("a", None), ("a", "3")))
    assert driver.read_pairs("changes", text) == [("a", "2>?"), ("a", "?>3")]
    # Of two partitions, which a topic that was given more has a key in, times count.
    old = [Record("a", str(value), value, partition=1) for value in (4, 5)]
    driver.pipe("users", *old, Record("a", "6", 6, partition=2), Record("a", "7", 7, partition=1))
    assert driver.read_pairs("changes", text) == [("a", "3>4"), ("a", "4>5"), ("a", "5>6"), ("a", "6>7")]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_record_meets_the_value_of_its_time(drive: Any, how: Any) -> None:
    from pybroker.pipeline.streams.stream_table_join import join_stream_table

    def job(topics: Any) -> Any:
        found = join_stream_table(rows_of(topics, "views"), rows_of(topics, "users"), how=how, into="region")
        return {"regions": found.selectExpr("key", "concat(value, '-', coalesce(region, '?')) value")}

    def expected(*inner: tuple[Any, str], unmatched: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
        found = [*inner, *(unmatched if how == "left" else [])]
        return sorted(found, key=lambda pair: pair[0] or "")

    driver = drive(job)
    # One micro-batch, in which the table changes between two records.
    driver.pipe_all(
        {
            "users": records(("a", "x", 10), ("a", "y", 30), ("b", "x", 10)),
            "views": records(("a", "2", 40), ("a", "1", 20), ("c", "1", 50), (None, "1", 60), ("a", None, 70)),
        }
    )
    # The topic's order counts: what was written at 20 comes behind what was written at 40.
    assert driver.read_pairs("regions", text) == expected(
        ("a", "2-y"), ("a", "1-y"), unmatched=[(None, "1-?"), ("c", "1-?")]
    )
    driver.pipe("views", *records(("a", "3", 15), ("a", "3", 15), ("b", "1", 90)))
    assert driver.read_pairs("regions", text) == [("a", "3-y"), ("a", "3-y"), ("b", "1-x")]
    driver.pipe("users", *records(("a", None, 100), ("c", "z", 100)))
    assert driver.read("regions") == []
    driver.restart(lose_last_commit=True)
    driver.pipe("views", *records(("a", "4", 110), ("c", "2", 110)))
    assert driver.read_pairs("regions", text) == expected(("c", "2-z"), unmatched=[("a", "4-?")])


@pytest.mark.parametrize("how", ["inner", "left"])
def test_with_a_history_a_record_meets_what_held_at_its_time(drive: Any, how: Any) -> None:
    from datetime import timedelta

    from pybroker.pipeline.streams.stream_table_join import join_stream_table

    def job(topics: Any) -> Any:
        tables = (rows_of(topics, "views"), rows_of(topics, "users"))
        found = join_stream_table(*tables, how=how, into="region", history=timedelta(milliseconds=100))
        return {"regions": found.selectExpr("key", "concat(value, '-', coalesce(region, '?')) value")}

    def expected(*texts: str) -> list[tuple[str, str]]:
        return [("a", text) for text in texts if how == "left" or not text.endswith("?")]

    driver = drive(job)
    driver.pipe("users", *records(("a", "x", 100), ("a", "y", 150), ("a", None, 180)))
    driver.pipe("views", *records(("a", "1", 99), ("a", "2", 149), ("a", "3", 150), ("a", "4", 180)))
    assert driver.read_pairs("regions", text) == expected("1-?", "2-x", "3-y", "4-?")
    driver.restart()
    # A change out of order takes its place; one that is older than the history has none.
    driver.pipe("users", *records(("a", "w", 120), ("a", "z", 220), ("a", "v", 119)))
    driver.pipe("views", *records(("a", "5", 119), ("a", "6", 120), ("a", "7", 149), ("a", "8", 200), ("a", "9", 900)))
    assert driver.read_pairs("regions", text) == expected("5-?", "6-w", "7-w", "8-?", "9-z")


@pytest.mark.parametrize(
    ("how", "steps"),
    [
        ("inner", [[], [("a", "1-x")], [("a", "2-y")], [("a", None)], []]),
        ("left", [[("a", "1-?")], [("a", "1-x")], [("a", "2-y")], [("a", "2-?")], [("a", None)]]),
        (
            "outer",
            [[("a", "1-?")], [("a", "1-x"), ("b", "?-x")], [("a", "2-y")], [("a", "2-?"), ("b", None)], [("a", None)]],
        ),
    ],
)
def test_two_tables_are_a_table(drive: Any, how: Any, steps: list[Any]) -> None:
    from pybroker.pipeline.streams.table_join import join_tables

    driver = drive(lambda topics: {"both": joined(join_tables(rows_of(topics, "l"), rows_of(topics, "r"), how=how))})
    driver.pipe("l", *records(("a", "0"), ("a", "1"), (None, "1")))
    assert driver.read_pairs("both", text) == steps[0]
    driver.pipe("r", *records(("a", "x"), ("b", "x"), ("c", None)))
    assert driver.read_pairs("both", text) == steps[1]
    driver.restart()
    driver.pipe_all({"l": records(("a", "2")), "r": records(("a", "y"))})
    assert driver.read_pairs("both", text) == steps[2]
    driver.pipe_all({"l": records(("a", "2")), "r": records(("a", None), ("b", None))})
    assert driver.read_pairs("both", text) == steps[3]
    driver.pipe("l", *records(("a", None), ("a", None)))
    assert driver.read_pairs("both", text) == steps[4]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_row_follows_what_its_foreign_key_names(drive: Any, how: Any) -> None:
    from pybroker.pipeline.streams.foreign_key_join import join_foreign_key

    def job(topics: Any) -> Any:
        # A value is CUSTOMER:AMOUNT, or :AMOUNT of nobody's.
        named = "nullif(split_part(value, ':', 1), '')"
        return {"orders": joined(join_foreign_key(rows_of(topics, "o"), rows_of(topics, "c"), named, how=how))}

    def gone(value: str) -> str | None:
        return f"{value}-?" if how == "left" else None

    driver = drive(job)
    driver.pipe_all(
        {"o": records(("1", "ann:5"), ("2", "ann:6"), ("3", "bob:7"), ("4", ":8")), "c": records(("ann", "A"))}
    )
    unmatched = {"3": "bob:7-?", "4": ":8-?"} if how == "left" else {}
    assert driver.table("orders", text) == {"1": "ann:5-A", "2": "ann:6-A"} | unmatched
    driver.read("orders")

    driver.pipe("c", *records(("ann", "AA"), ("bob", "B"), ("bob", "B"), (None, "?")))
    assert driver.read_pairs("orders", text) == [("1", "ann:5-AA"), ("2", "ann:6-AA"), ("3", "bob:7-B")]

    driver.restart()
    # The row moves while both of its customers change; one result, of the new one.
    driver.pipe_all({"o": records(("1", "bob:5"), ("2", "eve:6")), "c": records(("ann", "AAA"), ("bob", "BB"))})
    assert driver.read_pairs("orders", text) == [("1", "bob:5-BB"), ("2", gone("eve:6")), ("3", "bob:7-BB")]

    driver.pipe_all({"o": records(("1", "bob:9")), "c": records(("bob", None))})
    assert driver.read_pairs("orders", text) == [("1", gone("bob:9")), ("3", gone("bob:7"))]

    driver.pipe("o", *records(("1", None), ("2", None), ("2", None)))
    assert driver.read_pairs("orders", text) == [("1", None), ("2", None)]
    driver.pipe("c", *records(("bob", "B"), ("eve", "E")))
    assert driver.table("orders", text) == {"3": "bob:7-B"} | ({"4": ":8-?"} if how == "left" else {})


def test_a_joins_time_is_that_of_its_rows_though_they_replaced_newer_ones(drive: Any) -> None:
    """As in Kafka Streams: of two tables the newer row's; by a foreign key the right row's where that one changed."""
    from pybroker.pipeline.streams.foreign_key_join import join_foreign_key
    from pybroker.pipeline.streams.table_join import join_tables

    def job(topics: Any) -> Any:
        left, right = rows_of(topics, "l"), rows_of(topics, "r")
        return {"both": timed(join_tables(left, right)), "foreign": timed(join_foreign_key(left, right, "key"))}

    driver = drive(job)
    for batch, both, foreign in (
        ({"l": records(("a", "1", 100)), "r": records(("a", "x", 20))}, "1-x@100", "1-x@100"),
        ({"l": records(("a", "2", 50))}, "2-x@50", "2-x@50"),
        ({"r": records(("a", "y", 10))}, "2-y@50", "2-y@10"),
        ({"l": records(("a", "3", 5))}, "3-y@10", "3-y@10"),
        ({"r": records(("a", None, 4))}, "-@5", "-@4"),
    ):
        driver.pipe_all(batch)
        found = [driver.read_pairs(name, text) for name in ("both", "foreign")]
        assert found == [[("a", both)], [("a", foreign)]]


def test_keys_may_be_times_and_structs(drive: Any) -> None:
    from pybroker.pipeline.streams.foreign_key_join import join_foreign_key
    from pybroker.pipeline.streams.table_join import join_tables
    from pybroker.pipeline.streams.tables import changes

    at = "timestamp_millis(cast(key as bigint))"

    def keyed(table: Any, key: str) -> Any:
        return table.withColumn("at", table.key).selectExpr(
            f"{key} as key", "value", "timestamp", "partition", "offset"
        )

    def job(topics: Any) -> Any:
        left, right = rows_of(topics, "l"), rows_of(topics, "r")
        place = f"named_struct('at', {at}, 'n', 1)"
        foreign = f"named_struct('at', {at.replace('key', 'value')}, 'n', 1)"
        named = join_foreign_key(keyed(left, at), keyed(right, place), foreign)
        both = join_tables(keyed(left, place), keyed(right, place))
        told = changes(keyed(left, at))
        return {
            "named": joined(named.withColumn("key", named.key.cast("long").cast("string"))),
            "both": joined(both.withColumn("key", both.key["at"].cast("long").cast("string"))),
            "changes": told.selectExpr("string(unix_millis(key)) key", "after as value"),
        }

    driver = drive(job)
    driver.pipe_all({"l": records(("1000", "7000"), ("2000", "7000")), "r": records(("7000", "x"), ("1000", "y"))})
    driver.pipe("r", *records(("7000", "z")))
    driver.pipe("l", *records(("1000", "7000"), ("2000", "1000")))
    assert driver.table("named", text) == {"1": "7000-z", "2": "1000-y"}
    assert driver.table("both", text) == {"1": "7000-y"}
    assert driver.table("changes", text) == {"1000": "7000", "2000": "1000"}
    # A row that stays where it was does not move: no tombstone of it was told.
    assert [record.value for record in driver.read("named")].count(None) == 0


def test_keys_that_are_no_text_are_told_apart_as_binary_and_refused_as_text(drive: Any) -> None:
    from pybroker.pipeline.streams.stream_table_join import join_stream_table
    from pybroker.pipeline.streams.table_join import join_tables
    from pybroker.pipeline.testing import Record

    def binary(topics: Any, topic: str) -> Any:
        return topics.stream(topic).selectExpr("key", "string(value) value", "timestamp", "partition", "offset")

    def job(topics: Any) -> Any:
        left, right = binary(topics, "l"), binary(topics, "r")
        named = join_stream_table(left, right, into="name")
        return {"both": joined(join_tables(left, right)), "named": named.selectExpr("key", "name as value")}

    first, second = b"\x00\x80", b"\x00\x81"
    driver = drive(job)
    driver.pipe_all({"l": records((first, "1"), (second, "2")), "r": records((first, "x"), (second, "y"))})
    assert sorted(driver.read("both"), key=lambda record: record.key) == [Record(first, b"1-x"), Record(second, b"2-y")]
    driver.pipe("l", *records((second, "2"), (first, "1")))
    assert {record.key: record.value for record in driver.read("named")} == {first: b"x", second: b"y"}

    driver = drive(
        lambda topics: {"out": join_stream_table(rows_of(topics, "l"), rows_of(topics, "r")).select("value")}
    )
    with pytest.raises(Exception, match="column key has a text that is no UTF-8: keep it binary"):
        driver.pipe("r", *records((first, "x")))


def test_keys_of_two_types_are_refused(drive: Any) -> None:
    from pybroker.pipeline.streams.table_join import join_tables

    def job(topics: Any) -> Any:
        left = rows_of(topics, "l")
        return {"both": join_tables(left, left.withColumn("key", left.key.cast("int")))}

    with pytest.raises(ValueError, match="keys differ: one side has string, the other int"):
        drive(job)

"""What the page on Kafka Streams' operators says that Spark does, in the test driver. Starts a JVM.

Rows that lead to another page are tested with it, and the functions of pybroker beside this file.  Needs what
`scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")

T0_MS = 1_767_225_600_000


def texts(topics: Any, topic: str) -> Any:
    """A topic whose keys and values are text."""
    return topics.stream(topic).selectExpr("string(key) key", "string(value) value", "timestamp", "partition", "offset")


def text(found: bytes) -> str:
    return found.decode()


def at(seconds: float) -> int:
    return T0_MS + round(seconds * 1_000)


def test_a_cogroup_aggregates_each_of_its_streams_in_its_own_way_within_windows_or_without(drive: Any) -> None:
    from pyspark.sql import functions as F

    from pybroker.pipeline import Output
    from pybroker.pipeline.testing import Record

    def job(topics: Any) -> Any:
        sales = texts(topics, "sales").selectExpr("key", "int(value) sold", "0 seen", "timestamp")
        views = texts(topics, "views").selectExpr("key", "0 sold", "1 seen", "timestamp")
        both = sales.unionByName(views)
        shown = F.format_string("%d sold, %d seen", F.sum("sold"), F.sum("seen")).alias("value")
        timed = both.withWatermark("timestamp", "0 seconds").groupBy(F.window("timestamp", "1 minute"), "key")
        return {
            "articles": Output(both.groupBy("key").agg(shown), "update"),
            "by-minute": timed.agg(shown).select("key", "value"),
        }

    driver = drive(job)
    driver.pipe_all(
        {
            "sales": [Record("tea", "3", at(0)), Record("rum", "1", at(1))],
            "views": [Record("tea", "", at(2)), Record("tea", "", at(61))],
        }
    )
    driver.pipe("sales", Record("tea", "4", at(62)))
    driver.advance_watermark(at(120))
    assert driver.table("articles", text) == {"tea": "7 sold, 2 seen", "rum": "1 sold, 0 seen"}
    assert driver.read_pairs("by-minute", text) == [
        ("rum", "1 sold, 0 seen"),
        ("tea", "3 sold, 1 seen"),
        ("tea", "4 sold, 1 seen"),
    ]


def test_of_what_comes_between_two_triggers_a_key_is_told_once_in_mode_update(drive: Any) -> None:
    from pybroker.pipeline import Output
    from pybroker.pipeline.testing import Record

    def job(topics: Any) -> Any:
        counts = topics.stream("clicks").groupBy("key").count()
        return {"counts": Output(counts.selectExpr("key", "string(count) as value"), "update")}

    driver = drive(job)
    driver.pipe("clicks", *[Record("a")] * 3, Record("b"))
    assert driver.read_pairs("counts") == [("a", 3), ("b", 1)]


def test_a_peek_is_counted_into_the_querys_progress(drive: Any) -> None:
    from pyspark.sql import functions as F

    from pybroker.pipeline.testing import Record

    def job(topics: Any) -> Any:
        words = texts(topics, "words")
        told = words.observe("words", F.count("*").alias("all"), F.count_if(F.isnull("value")).alias("empty"))
        return {"known": told.where("value is not null").select("key", "value")}

    driver = drive(job)
    driver.pipe("words", Record("a", "x"), Record("b", None), Record("c", "y"))
    progress = driver._query("known").query._jsq.lastProgress()
    assert progress.observedMetrics().get("words").mkString(",") == "3,1"
    assert driver.read_pairs("known", text) == [("a", "x"), ("c", "y")]


def test_a_branch_takes_what_none_before_it_took_and_the_default_one_what_is_null_as_well(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    def job(topics: Any) -> Any:
        numbers = topics.stream("numbers").selectExpr("string(value) value", "try_cast(string(value) as int) n")
        outputs = {
            "small": numbers.where("n < 10"),
            "even": numbers.where("not coalesce(n < 10, false) and n % 2 = 0"),
            "others": numbers.where("not coalesce(n < 10, false) and not coalesce(n % 2 = 0, false)"),
            "forgetful": numbers.where("not (n < 10) and not (n % 2 = 0)"),
        }
        return {topic: rows.select("value") for topic, rows in outputs.items()}

    driver = drive(job)
    driver.pipe("numbers", *[Record(None, value) for value in ("4", "12", "13", "many", None)])
    found = {topic: [one.text for one in driver.read(topic)] for topic in ("small", "even", "others", "forgetful")}
    assert found == {"small": ["4"], "even": ["12"], "others": ["13", "many", None], "forgetful": ["13"]}


def test_what_no_branch_takes_is_in_no_output_where_there_is_no_default_one(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    def job(topics: Any) -> Any:
        numbers = topics.stream("numbers").selectExpr("string(value) value")
        return {"low": numbers.where("value < '3'"), "high": numbers.where("value > '6'")}

    driver = drive(job)
    driver.pipe("numbers", *[Record(None, value) for value in ("1", "5", "9", None)])
    assert [[one.text for one in driver.read(topic)] for topic in ("low", "high")] == [["1"], ["9"]]


def test_a_value_that_cannot_be_read_ends_the_query_by_raise_error(drive: Any) -> None:
    from pybroker.pipeline.converters.decoding import decode
    from pybroker.pipeline.converters.json_values import json_of
    from pybroker.pipeline.testing import Record

    def job(topics: Any) -> Any:
        orders = decode(topics.stream("orders"), json_of("amount int"))
        return {"read": orders.selectExpr("key", "if(error is null, to_json(value), raise_error(error)) as value")}

    driver = drive(job)
    driver.pipe("orders", Record("a", {"amount": 1}), Record("b", None))
    assert driver.read_pairs("read") == [("a", {"amount": 1}), ("b", None)]
    with pytest.raises(Exception, match="does not fit the schema: amount is no int"):
        driver.pipe("orders", Record("c", {"amount": "x"}))


def test_a_reducer_that_is_no_sum_keeps_how_often_a_table_has_each_value_in_a_group(drive: Any) -> None:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from pybroker.pipeline import changes
    from pybroker.pipeline.testing import Record

    class Oldest(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.times = handle.getMapState("times", "age int", "times int")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            # Rows come in any order: what is added and taken away is the same in each.
            for row in rows:
                known = self.times.getValue((row.age,))
                self.times.updateValue((row.age,), ((known[0] if known else 0) + row.n,))
            ages = [age for (age,), (times,) in self.times.iterator() if times > 0]
            yield Row(key=key[0], value=str(max(ages)) if ages else None)

        def close(self) -> None:
            pass

    def job(topics: Any) -> Any:
        told = changes(texts(topics, "people")).selectExpr(
            "inline(array(struct(before as person, -1 as n), struct(after as person, 1 as n)))"
        )
        steps = told.where("person is not null").selectExpr(
            "split(person, ' ')[0] city", "int(split(person, ' ')[1]) age", "n"
        )
        oldest = steps.groupBy("city").transformWithState(Oldest(), "key string, value string", "append", "none")
        return {"oldest": oldest}

    driver = drive(job)
    driver.pipe("people", Record("ann", "Oslo 70"), Record("bob", "Oslo 30"), Record("cyd", "Rome 40"))
    assert driver.read_pairs("oldest") == [("Oslo", 70), ("Rome", 40)]
    driver.pipe("people", Record("ann", "Oslo 71"), Record("ann", "Rome 71"), Record("bob", None))
    assert driver.table("oldest") == {"Rome": 71}


def test_a_window_store_is_a_map_by_the_windows_start_and_a_timer_ends_each(drive: Any) -> None:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from pybroker.pipeline.testing import Record

    class Highest(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.windows = handle.getMapState("windows", "start bigint", "highest int")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            for row in rows:
                start = (row.at // 60_000 * 60_000,)
                known = self.windows.getValue(start)
                self.windows.updateValue(start, (max(row.n, known[0]) if known else row.n,))
                self.handle.registerTimer(start[0] + 60_000)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
            start = (expiredTimerInfo.getExpiryTimeInMs() - 60_000,)
            (highest,) = self.windows.getValue(start)
            self.windows.removeKey(start)
            left = len(list(self.windows.keys()))
            yield Row(key=key[0], value=f"{highest}, {left} open")

        def close(self) -> None:
            pass

    def job(topics: Any) -> Any:
        numbers = texts(topics, "numbers").withWatermark("timestamp", "0 seconds")
        rows = numbers.selectExpr("key", "int(value) n", "unix_millis(timestamp) at", "timestamp")
        ended = rows.groupBy("key").transformWithState(Highest(), "key string, value string", "append", "eventTime")
        return {"highest": ended}

    driver = drive(job)
    driver.pipe("numbers", Record("a", "3", at(1)), Record("a", "8", at(2)), Record("a", "5", at(61)))
    driver.advance_watermark(at(61))
    assert driver.read_pairs("highest", text) == [("a", "8, 1 open")]
    driver.advance_watermark(at(121))
    assert driver.read_pairs("highest", text) == [("a", "5, 0 open")]


def test_state_is_gone_when_its_time_to_live_is_over(drive: Any) -> None:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from pybroker.pipeline.testing import Record

    class First(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "value string", ttlDurationMs=60_000)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            for row in rows:
                if self.seen.get() is None:
                    self.seen.update((row.value,))
                    yield Row(key=key[0], value=row.value)

        def close(self) -> None:
            pass

    def job(topics: Any) -> Any:
        rows = texts(topics, "seen").groupBy("key")
        return {"firsts": rows.transformWithState(First(), "key string, value string", "append", "processingTime")}

    driver = drive(job)
    driver.pipe("seen", Record("a", "1"))
    driver.advance_wall_clock(timedelta(seconds=59))
    driver.pipe("seen", Record("a", "2"), Record("b", "3"))
    driver.advance_wall_clock(timedelta(seconds=1))
    driver.pipe("seen", Record("a", "4"), Record("b", "5"))
    assert driver.read_pairs("firsts", text) == [("a", "1"), ("a", "4"), ("b", "3")]


def test_a_stream_that_a_processor_holds_back_meets_changes_that_come_within_a_grace(drive: Any) -> None:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from pybroker.pipeline import join_stream_table
    from pybroker.pipeline.testing import Record

    class Hold(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.held = handle.getMapState("held", "at bigint", "records array<string>")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            for row in rows:
                known = self.held.getValue((row.at,))
                self.held.updateValue((row.at,), ([*(known[0] if known else ()), row.value],))
                self.handle.registerTimer(row.at)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
            due = expiredTimerInfo.getExpiryTimeInMs()
            (records,) = self.held.getValue((due,))
            self.held.removeKey((due,))
            for record in records:
                yield Row(key=key[0], value=record, at=due)

        def close(self) -> None:
            pass

    def job(topics: Any) -> Any:
        sales = texts(topics, "sales").withWatermark("timestamp", "30 seconds")  # the grace
        rows = sales.selectExpr("key", "value", "unix_millis(timestamp) at", "timestamp").groupBy("key")
        held = rows.transformWithState(Hold(), "key string, value string, at bigint", "append", "eventTime")
        timed = held.selectExpr("key", "value", "timestamp_millis(at) timestamp")
        priced = join_stream_table(timed, texts(topics, "prices"), into="price", history=timedelta(days=1))
        return {"priced": priced.selectExpr("key", "concat(value, ' for ', price) as value")}

    driver = drive(job)
    driver.pipe("prices", Record("tea", "3", at(0)))
    driver.pipe("sales", Record("tea", "one", at(10)), Record("tea", "two", at(20)))
    driver.pipe("prices", Record("tea", "4", at(15)))
    assert driver.read("priced") == []
    driver.advance_watermark(at(20))
    assert driver.read_pairs("priced", text) == [("tea", "one for 3"), ("tea", "two for 4")]

"""The test driver: a job's records in and results out, with time by hand. Starts a JVM, but no broker.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")

T0 = "2026-01-01T00:00:00Z"


def at(minutes: float) -> int:
    from pybroker.pipeline.records import as_ms

    return as_ms(T0) + round(minutes * 60_000)


def by_first_letter(topics: Any) -> Any:
    """To the topic that the value's first letter names, where it is one of two; what goes to ``a`` is read as well."""
    named = "if(substr(string(value), 1, 1) in ('a', 'b'), substr(string(value), 1, 1), null) as topic"
    return {
        "others": topics.stream("lines").selectExpr("key", "value", named),
        "shown": topics.stream("a").selectExpr("key", "upper(string(value)) as value"),
    }


def copy(topics: Any) -> Any:
    return {"copies": topics.stream("lines").select("key", "value", "headers", "partition")}


def counts_by_minute(topics: Any) -> Any:
    """Per key and minute, when the minute and half another one are over."""
    from pyspark.sql import functions as F

    records = topics.stream("clicks").withWatermark("timestamp", "30 seconds")
    counts = records.groupBy(F.window("timestamp", "1 minute").alias("minute"), "key").count()
    return {"counts": counts.select("key", F.col("count").cast("string").alias("value"))}


def running_counts(topics: Any) -> Any:
    from pyspark.sql import functions as F

    from pybroker.pipeline.streams.jobs import Output

    counts = topics.stream("clicks").groupBy("key").count()
    return {"counts": Output(counts.select("key", F.col("count").cast("string").alias("value")), "update")}


def reminders(topics: Any) -> Any:
    """Of each key that was silent for a minute of processing time, a reminder."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Remind(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 60_000)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
            yield Row(key=key[0], value=f"silent since {expiredTimerInfo.getExpiryTimeInMs() - 60_000}")

        def close(self) -> None:
            pass

    records = topics.stream("clicks").selectExpr("cast(key as string) key")
    timed = records.groupBy("key").transformWithState(Remind(), "key string, value string", "append", "processingTime")
    return {"reminders": timed}


def test_a_record_comes_out_as_it_went_in(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(copy)
    driver.pipe("lines", Record("k", "v", headers=[("h", b"1"), ("h", None)], partition=3), Record(None, None))
    assert driver.read("copies") == [
        Record(b"k", b"v", headers=(("h", b"1"), ("h", None)), partition=3),
        Record(None, None, partition=0),
    ]
    assert driver.read("copies") == []


def test_a_window_closes_when_the_watermark_passes_its_end(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(counts_by_minute)
    driver.pipe("clicks", Record("a", "", at(0.1)), Record("a", "", at(0.9)), Record("b", "", at(0.5)))
    driver.advance_watermark(at(0.99))
    assert driver.read("counts") == []
    driver.advance_watermark(at(1))
    assert driver.read_pairs("counts") == [("a", 2), ("b", 1)]


def test_what_is_later_than_the_watermark_is_dropped_and_counted(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(counts_by_minute)
    driver.pipe("clicks", Record("a", "", at(5)))
    driver.pipe("clicks", Record("a", "", at(0)), Record("a", "", at(4.6)))
    driver.advance_watermark(at(6))
    assert driver.read_pairs("counts") == [("a", 1), ("a", 1)]
    assert driver.late_rows("counts") == 1


def test_state_is_kept_between_pipes_and_over_a_restart(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(running_counts)
    for number in (1, 2):
        driver.pipe("clicks", Record("a"))
        assert driver.read_pairs("counts") == [("a", number)]
    driver.restart()
    driver.pipe("clicks", Record("a"), Record("b"))
    assert driver.read_pairs("counts") == [("a", 3), ("b", 1)]
    assert driver.table("counts") == {"a": 3, "b": 1}


def test_a_batch_that_runs_again_after_a_crash_is_written_once(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(running_counts)
    driver.pipe("clicks", Record("a"))
    driver.pipe("clicks", Record("a"))
    driver.restart(lose_last_commit=True)
    assert driver.read("counts") == [Record(b"a", b"1"), Record(b"a", b"2")]
    driver.pipe("clicks", Record("a"))
    assert driver.read_pairs("counts") == [("a", 3)]


def test_a_timer_of_processing_time_fires_when_the_clock_has_moved(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(reminders, begin=T0)
    driver.pipe("clicks", Record("a"))
    driver.advance_wall_clock(timedelta(seconds=40))
    driver.pipe("clicks", Record("b"))
    driver.advance_wall_clock(timedelta(seconds=19))
    assert driver.read("reminders") == []
    driver.advance_wall_clock(timedelta(seconds=1))
    assert driver.read_pairs("reminders", bytes.decode) == [("a", f"silent since {at(0)}")]
    driver.restart()
    driver.advance_wall_clock(timedelta(minutes=1))
    driver.pipe("clicks", Record("c"))
    assert driver.read_pairs("reminders", bytes.decode) == [("b", f"silent since {at(40 / 60)}")]


def test_what_fails_a_query_is_raised_where_the_record_was_piped(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    def divides(topics: Any) -> Any:
        return {"out": topics.stream("in").selectExpr("cast(1 / cast(cast(value as string) as int) as string) value")}

    driver = drive(divides)
    driver.pipe("in", Record(None, "1"))
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        driver.pipe("in", Record(None, "0"))
    with pytest.raises(RuntimeError, match=r"^the query of out has ended: .*DIVIDE_BY_ZERO"):
        driver.pipe("in", Record(None, "1"))


def test_a_batch_of_a_topic_is_what_it_holds_now(drive: Any) -> None:
    from pyspark.sql import functions as F

    from pybroker.pipeline.streams.tables import latest
    from pybroker.pipeline.testing import Record

    def regions(topics: Any) -> Any:
        users = latest(topics.batch("users")).select("key", F.col("value").alias("region"))
        views = topics.stream("views").select("key")
        return {"regions": views.join(users, "key").select("key", F.col("region").alias("value"))}

    driver = drive(regions)
    driver.pipe("users", Record("a", "x"), Record("b", "y"))
    driver.pipe("views", Record("a"), Record("c"))
    driver.pipe("users", Record("a", "z"), Record("b", None))
    driver.pipe("views", Record("a"), Record("b"))
    assert driver.read("regions") == [Record(b"a", b"x"), Record(b"a", b"z")]


def test_a_topic_that_a_job_writes_and_reads_goes_round(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    def two_steps(topics: Any) -> Any:
        words = topics.stream("lines").selectExpr("explode(split(cast(value as string), ' ')) key", "'' value")
        return {"words": words} | {
            "counts": running_counts(_Renamed(topics, {"clicks": "words"}))["counts"],
        }

    driver = drive(two_steps)
    driver.pipe("lines", Record(None, "a b a"))
    driver.pipe("lines", Record(None, "b"))
    assert driver.table("counts") == {"a": 2, "b": 2}


class _Renamed:
    def __init__(self, topics: Any, names: dict[str, str]) -> None:
        self._topics, self._names = topics, names

    def stream(self, topic: str) -> Any:
        return self._topics.stream(self._names[topic])


def test_a_topic_that_the_job_does_not_know_is_told(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(copy)
    with pytest.raises(ValueError, match="the job does not read line: it reads lines"):
        driver.pipe("line", Record())
    with pytest.raises(ValueError, match="the job does not write copy: it writes copies"):
        driver.read("copy")


def test_columns_that_a_topic_has_not_are_refused(drive: Any) -> None:
    with pytest.raises(ValueError, match="column offset has no meaning"):
        drive(lambda topics: {"out": topics.stream("in").select("value", "offset")})


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("int(-1) as partition", "a row has partition -1; null lets the producer choose one"),
        ("array(struct(string(null) as key, binary('b') as value)) as headers", "a header has no key"),
        ("timestamp_millis(0) as timestamp", "a row has timestamp 0 ms"),
    ],
)
def test_a_row_that_the_sink_of_a_broker_refuses_is_refused(drive: Any, column: str, reason: str) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(lambda topics: {"out": topics.stream("in").selectExpr("value", column)})
    with pytest.raises(ValueError, match=reason):
        driver.pipe("in", Record())


def test_a_timestamp_is_the_records_where_the_row_has_one_and_goes_round(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    def job(topics: Any) -> Any:
        sent = topics.stream("in").selectExpr("key", "value", "if(value is null, null, timestamp) as timestamp")
        return {"steps": sent, "out": topics.stream("steps").select("key", "timestamp", "value")}

    driver = drive(job, begin=T0)
    driver.pipe("in", Record("a", "", at(-5)), Record("b", None, at(-5)))
    assert driver.read("steps") == [Record(b"a", b"", at(-5)), Record(b"b")]
    assert driver.read("out") == [Record(b"a", b"", at(-5)), Record(b"b", None, at(0))]


def test_a_value_of_json_null_is_none_of_a_deleted_key(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(lambda topics: {"out": topics.stream("in").select("key", "value")})
    driver.pipe("in", Record("a", "null"), Record("b", "1"), Record("b", None))
    assert driver.table("out") == {"a": None}


def test_each_trigger_of_a_query_in_mode_complete_is_written(spark: Any, drive: Any, tmp_path: Any) -> None:
    from pybroker.pipeline.streams.jobs import Output
    from pybroker.pipeline.testing import Record

    for name in ("first", "second"):
        (tmp_path / f"{name}.json").write_text('{"key": "a"}\n')

    def job(_topics: Any) -> Any:
        """A source of its own, which gives one file per trigger."""
        keys = spark.readStream.schema("key string").option("maxFilesPerTrigger", 1).json(str(tmp_path))
        return {"out": Output(keys.groupBy("key").count().selectExpr("key", "string(count) as value"), "complete")}

    assert drive(job).read("out") == [Record(b"a", b"1"), Record(b"a", b"2")]


def test_late_rows_are_counted_however_many_micro_batches_there_were(spark: Any, drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    kept = "spark.sql.streaming.numRecentProgressUpdates"
    before = spark.conf.get(kept)
    spark.conf.set(kept, "2")  # Spark keeps one less
    try:
        driver = drive(counts_by_minute)
        driver.pipe("clicks", Record("a", "", at(5)))
        for _ in range(2):
            driver.pipe("clicks", Record("a", "", at(0)))
        assert driver.late_rows("counts") == 2
    finally:
        spark.conf.set(kept, before)


def test_rows_go_to_the_topics_that_they_name(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(by_first_letter)
    driver.pipe("lines", *(Record(value=value) for value in ("apple", "berry", "cherry")))
    found = {topic: [record.text for record in driver.read(topic)] for topic in ("a", "b", "others", "shown")}
    assert found == {"a": ["apple"], "b": ["berry"], "others": ["cherry"], "shown": ["APPLE"]}
    assert driver.read("nowhere") == []


def test_a_driver_that_is_closed_says_so(drive: Any) -> None:
    driver = drive(lambda topics: {"out": topics.stream("in").select("key", "value")})
    driver.close()
    with pytest.raises(RuntimeError, match="the driver is closed"):
        driver.read("out")
    with pytest.raises(RuntimeError, match="the driver is closed"):
        driver.pipe("in")


def test_a_trigger_that_does_not_end_is_told_with_where_it_is(drive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.functions import udf

    from pybroker.pipeline.testing import Record, stepped_query

    stuck = udf(lambda _: time.sleep(60), "string")
    driver = drive(lambda topics: {"out": topics.stream("in").select(stuck("value").alias("value"))})
    monkeypatch.setattr(stepped_query, "HANGS_AFTER_S", 5.0)
    with pytest.raises(stepped_query.TriggerHangs, match=r"(?s)a trigger of out takes over 5 s.*PythonRunner"):
        driver.pipe("in", Record(None, "x"))

"""``format("pybroker")`` in Spark: what is read and written, beside Spark's own connector. Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from harness.apache_kafka import missing_requirement
from harness.waiting import wait_until

from pybroker.testing import Broker
from tests.pipeline.topics.lag import check_lag_by_kafkas_tool
from tests.pipeline.topics.tables import Tables

pytestmark = pytest.mark.jvm(needs="spark")

FORMATS = ("kafka", "pybroker")
# By their numbers in a batch's attributes, whose lower byte lies there.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_AT = 22


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"includeHeaders": "true"},
        {"minPartitions": "5"},
        {"maxRecordsPerPartition": "3"},
        {"startingTimestamp": "3000", "endingTimestamp": "6000"},
        {
            "startingOffsetsByTimestamp": '{"TOPIC": {"0": 3000, "1": 3500}}',
            "endingOffsetsByTimestamp": '{"TOPIC": {"0": 7000, "1": 99000}}',
        },
        {
            "startingOffsetsByTimestamp": '{"TOPIC": {"0": 99000, "1": 8000}}',
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {"groupIdPrefix": "readers", "kafkaConsumer.pollTimeoutMs": "60000"},
    ],
    ids=str,
)
def test_rows_are_those_of_sparks_connector(tables: Tables, options: dict[str, str]) -> None:
    topic = tables.topic()
    tables.fill(topic, [b"a", None, b"", b"d", b"e"] * 2, headers=[("h", b"1"), ("h", None)])
    given = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    theirs, ours = (tables.read(form, topic, **given) for form in FORMATS)
    assert theirs.count() > 0
    assert ours.schema == theirs.schema
    order = ("partition", "offset")
    assert ours.orderBy(*order).collect() == theirs.orderBy(*order).collect()


@pytest.mark.parametrize("form", FORMATS)
def test_a_start_later_than_all_records_is_refused_unless_the_strategy_says_latest(tables: Tables, form: str) -> None:
    topic, target = tables.topic(), tables.topic()
    tables.fill(topic, [b"a", b"b", b"c"])
    start = {"startingOffsetsByTimestamp": f'{{"{topic}": {{"0": 2000, "1": 99000}}}}'}
    for strategy in ({}, {"startingOffsetsByTimestampStrategy": "error"}):
        with pytest.raises(Exception, match=rf"No offset matched.*{topic}-1|no record is as late as .* in {topic}-1"):
            tables.read(form, topic, **start, **strategy).count()
    rows = tables.read_stream(form, topic, **start, startingOffsetsByTimestampStrategy="latest").select("value")
    assert tables.start(rows, "late", topic=target).awaitTermination(100)
    assert tables.committed(target) == [b"c"]


@pytest.mark.parametrize("form", FORMATS)
def test_an_end_behind_what_there_is_is_refused_or_is_what_there_is(tables: Tables, form: str) -> None:
    """Without a wait for what never comes; the connector polls for as long as its option says, and says the same."""
    topic = tables.topic()
    tables.fill(topic, [b"a", b"b", b"c"])
    options = {"endingOffsets": f'{{"{topic}": {{"0": 5, "1": 1}}}}'}
    if form == "kafka":
        options["kafkaConsumer.pollTimeoutMs"] = "500"
    told = {
        "kafka": "Some data may have been lost|Cannot fetch",
        "pybroker": f"endingOffsets has 5 for {topic}-0, which ends at 2",
    }
    with pytest.raises(Exception, match=told[form]):
        tables.read(form, topic, **options).count()
    found = tables.read(form, topic, failOnDataLoss="false", **options).collect()
    assert sorted(row.value for row in found) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_pattern_finds_no_internal_topics_and_what_java_finds(tables: Tables, form: str) -> None:
    topic = tables.topic()
    tables.write_in_transactions(topic, ("commit", [b"a"]))  # makes those of offsets and transactions
    tables.save(tables.spark.createDataFrame([("b",)], "value string"), topic=topic)

    def topics(pattern: str) -> set[str]:
        return {row.topic for row in tables.read(form, None, subscribePattern=pattern).select("topic").collect()}

    found = topics(".*")
    assert topic in found
    assert not [name for name in found if name.startswith("__")]
    assert topics(f"^{topic[:-2]}[a-f0-9&&[^x]]+$") == {topic}
    assert topics(rf"\Q{topic}\E") == {topic}
    assert topics(topic[2:-2]) == {topic}, "a part of the name is enough"


@pytest.mark.parametrize("level", [None, "read_uncommitted"])
def test_without_a_level_aborted_records_are_not_read(tables: Tables, level: str | None) -> None:
    topic, target = tables.topic(), tables.topic()
    tables.write_in_transactions(topic, ("commit", [b"a"]), ("abort", [b"x"]))
    given = {} if level is None else {"kafka.isolation.level": level}
    expected = [b"a"] if level is None else [b"a", b"x"]
    assert sorted(row.value for row in tables.read("pybroker", topic, **given).collect()) == expected
    query = tables.start(tables.read_stream("pybroker", topic, **given).select("value"), "level", topic=target)
    assert query.awaitTermination(100)
    assert sorted(tables.committed(target)) == expected


@pytest.mark.parametrize("form", FORMATS)
def test_partitions_and_patterns_choose_what_is_read(tables: Tables, form: str) -> None:
    first, second = tables.topic(), tables.topic()
    tables.fill(first, [b"a0", b"a1"])
    tables.fill(second, [b"b0", b"b1"])
    wanted = {"assign": f'{{"{first}": [1], "{second}": [0]}}'}
    assert sorted(row.value for row in tables.read(form, None, **wanted).collect()) == [b"a1", b"b0"]
    pattern = {"subscribePattern": f"({first}|{second[:-4]}.*)"}
    found = tables.read(form, None, **pattern).collect()
    assert sorted(row.value for row in found) == [b"a0", b"a1", b"b0", b"b1"]


@pytest.mark.parametrize("form", FORMATS)
def test_aborted_records_are_seen_by_who_does_not_ask_for_committed_ones(tables: Tables, form: str) -> None:
    topic = tables.topic()
    tables.write_in_transactions(topic, ("commit", [b"a", b"b"]), ("abort", [b"x"]), ("commit", [b"c"]))
    seen = [
        sorted(row.value for row in tables.read(form, topic, **{"kafka.isolation.level": level}).collect())
        for level in ("read_committed", "read_uncommitted")
    ]
    assert seen == [[b"a", b"b", b"c"], [b"a", b"b", b"c", b"x"]]


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_of_a_pattern_takes_up_a_topic_that_comes_later(tables: Tables, form: str) -> None:
    prefix = f"p-{uuid4()}"
    target = tables.topic()
    rows = tables.read_stream(form, None, subscribePattern=f"{prefix}.*").select("value")
    for name, values in ((f"{prefix}-1", [b"a", b"b"]), (f"{prefix}-2", [b"c"])):
        tables.create(name)
        tables.fill(name, values)
        assert tables.start(rows, f"pattern-{form}", topic=target).awaitTermination(100)
    assert tables.values(target) == ["a", "b", "c"]


def test_offsets_bound_a_batch(tables: Tables) -> None:
    topic = tables.topic()
    tables.fill(topic, [str(i).encode() for i in range(10)])
    bounds = {
        "startingOffsets": f'{{"{topic}": {{"0": 1, "1": -2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": -1, "1": 2}}}}',
    }
    rows = tables.read("pybroker", topic, **bounds).collect()
    assert sorted(int(row.value) for row in rows) == [1, 2, 3, 4, 6, 8]


def test_an_empty_topic_has_no_rows(tables: Tables) -> None:
    assert tables.read("pybroker", tables.topic()).count() == 0


def test_a_missing_topic_is_told_by_its_name(tables: Tables) -> None:
    with pytest.raises(Exception, match="no such topic: nowhere"):
        tables.read("pybroker", "nowhere").count()


def test_what_deletion_took_is_told_unless_it_may_go(tables: Tables) -> None:
    topic = tables.topic()
    tables.fill(topic, [str(i).encode() for i in range(10)])
    tables.delete_before(topic, 0, 3)
    start = {"startingOffsets": f'{{"{topic}": {{"0": 0, "1": 0}}}}'}
    with pytest.raises(Exception, match="begins at 3 by now"):
        tables.read("pybroker", topic, **start).count()
    assert tables.read("pybroker", topic, failOnDataLoss="false", **start).count() == 7


@pytest.mark.parametrize("form", FORMATS)
def test_deletion_that_overtakes_a_running_query_ends_it_or_is_passed_over(tables: Tables, form: str) -> None:
    """It strikes between a micro-batch's plan and its tasks, at a partition of which no consumer has fetched ahead."""
    from pybroker.pipeline import what_ended

    def run(loss: str) -> tuple[Any, list[str]]:
        topic, read = tables.topic(), list[str]()

        def look(rows: Any, epoch: int) -> None:
            if epoch == 1:
                tables.delete_before(topic, 1, 2)
            read.extend(sorted(row.value.decode() for row in rows.collect()))

        tables.append(topic, 0, [b"a"])
        writer = tables.read_stream(form, topic, failOnDataLoss=loss).writeStream.foreachBatch(look)
        query = writer.option("checkpointLocation", str(tables.checkpoint(loss))).start()
        wait_until(lambda: read == ["a"], "the first micro-batch", 100)
        tables.append(topic, 1, [b"b", b"c", b"d"])
        wait_until(lambda: not query.isActive or "d" in read, "the second micro-batch", 100)
        if query.isActive:
            tables.append(topic, 1, [b"e"])
            wait_until(lambda: "e" in read, "the third micro-batch", 100)
            query.stop()
        return query, [topic, *read]

    ended, (topic, *read) = run("true")
    assert read == ["a"]
    (line,) = (what_ended(ended) or "").splitlines()
    told = {
        "kafka": f"is out of range for partition {topic}-1",
        "pybroker": f"{topic}-1 begins at 2 by now: what was before, from 0 on, is lost",
    }
    assert told[form] in line
    gone_on, (_, *read) = run("false")
    assert read == ["a", "d", "e"]
    assert what_ended(gone_on) is None


def test_a_batch_written_is_a_batch_read(tables: Tables) -> None:
    topic = tables.topic()
    rows = [("k", "v", 1, [("h", bytearray(b"x"))]), (None, "w", 0, None)]
    columns = "key string, value string, partition int, headers array<struct<key string, value binary>>"
    tables.save(tables.spark.createDataFrame(rows, columns), topic=topic)
    found = tables.read("kafka", topic, includeHeaders="true").orderBy("value").collect()
    assert [(row.key, row.value, row.partition) for row in found] == [(b"k", b"v", 1), (None, b"w", 0)]
    assert [row.headers and [(h.key, bytes(h.value)) for h in row.headers] for row in found] == [[("h", b"x")], None]


@pytest.mark.parametrize("form", FORMATS)
def test_the_option_topic_wins_over_the_column_and_a_row_without_either_is_refused(tables: Tables, form: str) -> None:
    column, option = tables.topic(), tables.topic()
    rows = tables.spark.createDataFrame([("v", column), ("w", None)], "value string, topic string").coalesce(1)
    tables.save(rows, form, topic=option)
    assert sorted(tables.committed(option)) == [b"v", b"w"]
    tables.save(rows.where("topic is not null"), form)
    assert tables.committed(column) == [b"v"]
    with pytest.raises(Exception, match=r"(?i)null topic|a row has no topic"):
        tables.save(rows, form)
    assert tables.committed(option).count(b"w") == 1


def test_records_have_the_timestamps_that_their_rows_name(tables: Tables) -> None:
    topic, at = tables.topic(), "timestamp'2013-01-01T10:15:00.123Z'"
    tables.save(tables.spark.range(1).selectExpr("'v' value", f"{at} timestamp"), topic=topic)
    copies = tables.topic()
    rows = tables.read_stream("pybroker", topic).select("value", "timestamp")
    assert tables.start(rows, "timed", topic=copies).awaitTermination(60)
    for name in (topic, copies):
        (row,) = tables.read("kafka", name).selectExpr(f"timestamp = {at} as is_same").collect()
        assert row.is_same


@pytest.mark.parametrize(("form", "codec"), [("kafka", "gzip"), *(("pybroker", codec) for codec in CODECS)])
def test_batches_are_compressed_as_the_option_says(tables: Tables, pybroker: Broker, form: str, codec: str) -> None:
    topic = tables.topic(1)
    rows = tables.spark.createDataFrame([("a" * 1_000,)], "value string")
    tables.save(rows, form, topic=topic, **{"kafka.compression.type": codec})
    (log,) = (pybroker.data_dir / f"{topic}-0").glob("*.log")
    assert log.read_bytes()[CODEC_AT] & 0x07 == CODECS.index(codec)
    assert tables.committed(topic) == [b"a" * 1_000]


def test_a_column_that_no_record_has_is_refused(tables: Tables) -> None:
    rows = tables.spark.createDataFrame([(1,)], "value int")
    with pytest.raises(Exception, match="column value must be string or binary, is int"):
        tables.save(rows, topic="t")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("array(struct(string(null) key, binary('b') value)) headers", "a header has no key"),
        ("cast(array(null) as array<struct<key string, value binary>>) headers", "a header has no key"),
        ("array('a') headers", "column headers must be array<struct<key:string,value:binary>>"),
        ("array(struct('a' name, binary('b') value)) headers", "column headers must be array<struct"),
        ("-1 partition", "a row has partition -1; null lets the producer choose one"),
    ],
)
def test_a_row_that_is_no_record_is_refused(tables: Tables, row: str, reason: str) -> None:
    topic = tables.topic()
    with pytest.raises(Exception, match=re.escape(reason)):
        tables.save(tables.spark.range(1).selectExpr("'v' value", row), topic=topic)
    assert tables.committed(topic) == []


def test_a_batch_that_begins_behind_its_end_is_refused(tables: Tables) -> None:
    topic = tables.topic()
    tables.fill(topic, [b"a", b"b", b"c"])
    far, second, first = (f'{{"{topic}": {{"0": {offset}, "1": 1}}}}' for offset in (100, 2, 1))
    for bounds in ({"startingOffsets": far}, {"startingOffsets": second, "endingOffsets": first}):
        with pytest.raises(Exception, match=rf"{topic}-0 would be read from offset \d+, which is behind \d"):
            tables.read("pybroker", topic, **bounds).count()


def test_columns_of_the_users_own_are_refused(tables: Tables) -> None:
    reader = tables.spark.read.format("pybroker").schema("value string")
    with pytest.raises(Exception, match=r"a topic's columns are key binary, .*; a read cannot be given others"):
        reader.options(**{"kafka.bootstrap.servers": tables.bootstrap, "subscribe": tables.topic()}).load().count()


def test_a_micro_batch_that_is_written_twice_by_one_name_is_refused(tables: Tables) -> None:
    """The second write would pass for the first one that is tried again, and its rows would be missing."""
    source, target = tables.topic(), tables.topic()
    tables.fill(source, [b"a", b"b"])

    def run(name: str, group: str) -> None:
        """Write each micro-batch twice, each time by the group of which ``{}`` is the write's own name."""

        def write(rows: Any, epoch: int) -> None:
            for part in ("left", "right"):
                written = rows.selectExpr(f"concat('{part} ', string(value)) value", f"'{target}' topic")
                tables.save(written, transactionGroup=group.format(part), epoch=str(epoch))

        rows = tables.read_stream("pybroker", source).coalesce(1)
        writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tables.checkpoint(name)))
        assert writer.trigger(availableNow=True).start().awaitTermination(100)

    with pytest.raises(Exception, match="each write of a micro-batch needs a transactionGroup of its own"):
        run("twice", f"twice-{target}")
    run("apart", f"{{}}-{target}")
    assert sorted(tables.committed(target)) == [b"left a", b"left a", b"left b", b"left b", b"right a", b"right b"]


def test_a_stream_moves_on_by_limited_batches(tables: Tables) -> None:
    source, target = tables.topic(), tables.topic()
    tables.fill(source, [str(i).encode() for i in range(10)])
    query = tables.start(
        tables.read_stream("pybroker", source, maxOffsetsPerTrigger="4").select("value"), "limited", topic=target
    )
    assert query.awaitTermination(100)
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [4, 4, 2]
    assert tables.values(target) == [str(i) for i in range(10)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_waits_for_so_many_records_or_so_long(tables: Tables, form: str) -> None:
    source, target = tables.topic(), tables.topic()
    tables.fill(source, [b"0", b"1"])
    limits = {"minOffsetsPerTrigger": "4", "maxTriggerDelay": "1h"}
    query = tables.start_running(tables.read_stream(form, source, **limits).select("value"), topic=target)
    tables.wait_for(target, [b"0", b"1"])  # the first micro-batch waits for nothing
    tables.fill(source, [b"2"])
    tables.fill(source, [b"3", b"4", b"5"])
    tables.wait_for(target, [b"%d" % i for i in range(6)])
    query.stop()
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sizes == [2, 4]
    soon = {**limits, "maxTriggerDelay": "1s"}
    query = tables.start_running(tables.read_stream(form, source, **soon).select("value"), topic=target)
    tables.wait_for(target, 2 * [b"%d" % i for i in range(6)])
    tables.fill(source, [b"6"])
    tables.wait_for(target, [*(2 * [b"%d" % i for i in range(6)]), b"6"])
    query.stop()


def test_a_query_goes_on_where_it_stopped(tables: Tables) -> None:
    source, target = tables.topic(), tables.topic()
    for part in (range(5), range(5, 9)):
        tables.fill(source, [str(i).encode() for i in part])
        query = tables.start(tables.read_stream("pybroker", source).select("value"), "stopped", topic=target)
        assert query.awaitTermination(100)
    assert tables.values(target) == [str(i) for i in range(9)]


@pytest.mark.parametrize("forms", [FORMATS * 2, FORMATS[::-1] * 2], ids=" ".join)
def test_a_checkpoint_goes_from_sparks_connector_to_this_one_and_back(tables: Tables, forms: tuple[str, ...]) -> None:
    source, target = tables.topic(), tables.topic()
    for number, form in enumerate(forms):
        for partition, values in ((0, (b"%da" % number, b"%db" % number)), (1, (b"%dc" % number,))):
            tables.append(source, partition, values)
        query = tables.start(tables.read_stream(form, source).select("value"), "both", topic=target)
        assert query.awaitTermination(100)
        (progress,) = [each for each in query.recentProgress if each.numInputRows]
        assert json.loads(progress.sources[0].endOffset) == {source: {"0": 2 * number + 2, "1": number + 1}}
    assert tables.values(target) == [f"{number}{part}" for number in range(len(forms)) for part in "abc"]
    offsets = sorted((tables.checkpoint("both") / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert {"id"} & set(offsets[-1].read_text().split('"')) == set()


def test_keys_are_spread_as_sparks_connector_spreads_them_unless_an_option_says_otherwise(tables: Tables) -> None:
    rows = tables.spark.range(100).selectExpr("string(id) key", "'v' value")
    found = []
    for form, options in (("kafka", {}), ("pybroker", {}), ("pybroker", {"kafka.partitioner": "consistent_random"})):
        topic = tables.topic(5)
        tables.save(rows, form, topic=topic, **options)
        found.append({row.key: row.partition for row in tables.read("pybroker", topic).collect()})
    theirs, ours, otherwise = found
    assert len(set(theirs.values())) == 5
    assert ours == theirs
    assert otherwise != theirs


@pytest.mark.parametrize("form", FORMATS)
def test_a_batch_that_runs_again_after_its_commit_adds_nothing(tables: Tables, form: str) -> None:
    from pybroker.pipeline.testing.stepped_query import forget_last_commit

    source, target = tables.topic(), tables.topic()
    tables.fill(source, [str(i).encode() for i in range(10)])
    for _ in range(2):
        query = tables.start(tables.read_stream(form, source).select("value"), "again", topic=target)
        assert query.awaitTermination(100)
        forget_last_commit(tables.checkpoint("again"))
    assert tables.values(target) == [str(i) for i in range(10)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_groups_offsets_follow_a_query_and_start_another(tables: Tables, form: str) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    from pybroker.pipeline import group_offsets, mirror_progress

    source, target, group = tables.topic(), tables.topic(), f"g-{uuid4()}"
    settings: dict[str, Any] = {"bootstrap.servers": tables.bootstrap}
    tables.fill(source, [b"a", b"b", b"c"])
    query = tables.start(tables.read_stream(form, source).select("value"), "mirrored", topic=target)
    mirror_progress(tables.spark, query, group, settings)
    assert query.awaitTermination(100)
    tables.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()

    admin = AdminClient(settings)
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert {at.partition: at.offset for at in future.result(30).topic_partitions} == {0: 2, 1: 1}

    tables.fill(source, [b"d"])
    later = tables.read(form, source, startingOffsets=group_offsets(group, [source], settings))
    assert [row.value for row in later.collect()] == [b"d"]


@pytest.mark.skipif(missing_requirement() is not None, reason="Kafka's own tools are not there")
def test_kafkas_own_tool_shows_how_far_a_job_is_behind(tables: Tables, tmp_path: Path) -> None:
    check_lag_by_kafkas_tool(tables, tmp_path)


def test_a_partition_that_a_group_has_not_read_is_read_whole(tables: Tables) -> None:
    from pybroker.pipeline import group_offsets

    source = tables.topic()
    tables.fill(source, [b"a", b"b"])
    offsets = group_offsets(f"g-{uuid4()}", [source], {"bootstrap.servers": tables.bootstrap})
    assert tables.read("pybroker", source, startingOffsets=offsets).count() == 2


def test_a_topic_made_anew_again_and_again_is_read_as_it_is(tables: Tables) -> None:
    """By processes of Spark's that read the former one a moment ago, each another half of it."""
    topic = tables.topic(1)
    for life in range(6):
        values = [f"{life}-{number:02}" for number in range(20)]
        tables.append(topic, 0, [value.encode() for value in values])
        rows = tables.read("pybroker", topic, minPartitions="2").collect()
        assert sorted(row.value.decode() for row in rows) == values
        tables.delete(topic)
        tables.create(topic, 1)

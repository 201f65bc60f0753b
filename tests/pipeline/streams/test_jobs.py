"""Jobs on real topics: what the test driver ran runs there unchanged, and writes each change once. Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pybroker.testing import Broker

pytestmark = pytest.mark.jvm(needs="spark")


def send(bootstrap: str, topic: str, *keys: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for key in keys:
        producer.produce(topic, "", key=key)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_changes_are_written_once_though_their_batch_runs_again(
    spark: Any, pybroker: Broker, tmp_path: Path, mode: Any
) -> None:
    from pybroker.pipeline import BrokerTopics, Output, start
    from pybroker.pipeline.testing.stepped_query import forget_last_commit

    clicks, counted = f"clicks-{uuid4()}", f"counted-{uuid4()}"
    for topic in (clicks, counted):
        pybroker.create_topic(topic, partitions=2)

    def job(topics: Any) -> Any:
        counts = topics.stream(clicks).groupBy("key").count()
        return {counted: Output(counts.selectExpr("key", "string(count) as value"), mode)}

    topics = BrokerTopics(spark, pybroker.bootstrap)
    for keys in (["a", "a", "b"], ["a"], []):
        send(topics.bootstrap, clicks, *keys)
        for query in start(job, topics, tmp_path, until_done=True):
            assert query.awaitTermination(100)
        if not keys:
            break
        forget_last_commit(tmp_path / counted)
    written = [(row.key, row.value) for row in topics.batch(counted).orderBy("key", "value").collect()]
    unchanged = [(b"b", b"1")] if mode == "complete" else []
    assert written == [(b"a", b"2"), (b"a", b"3"), (b"b", b"1"), *unchanged]


def test_a_changelog_that_was_compacted_is_the_table_and_the_querys_state_is_asked_from_outside(
    spark: Any, tmp_path: Path
) -> None:
    from harness.waiting import wait_until

    from pybroker.pipeline import BrokerTopics, Output, latest, start

    def job(topics: Any) -> Any:
        counts = topics.stream("clicks").groupBy("key").count()
        value = "if(count >= 3, null, string(count))"  # who has enough is taken out
        return {"counts": Output(counts.selectExpr("key", f"{value} as value"), "update")}

    # Each batch is a segment, and whatever is behind the last one may be cleaned.
    configs: dict[str, str | int] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "segment.ms": 1}
    with Broker({"log.cleaner.backoff.ms": 50, "log.segment.delete.delay.ms": 0}) as broker:
        broker.create_topic("clicks", partitions=1)
        broker.create_topic("counts", partitions=1, configs={**configs, "delete.retention.ms": 0})
        topics = BrokerTopics(spark, broker.bootstrap)
        for keys in ("aab", "abc", "d"):
            send(broker.bootstrap, "clicks", *keys)
            for query in start(job, topics, tmp_path, until_done=True):
                assert query.awaitTermination(100)

        def told() -> list[tuple[bytes, bytes | None]]:
            return sorted((row.key, row.value or b"") for row in topics.batch("counts").collect())

        # Five changes and a tombstone were written; of each key but the last one's segment one stays.
        wait_until(lambda: len(told()) <= 4, "the log cleaner", 60)
        table = {row.key: row.value for row in latest(topics.batch("counts")).collect()}
        assert table == {b"b": b"2", b"c": b"1", b"d": b"1"}
        assert stored(spark, tmp_path / "counts") == {b"a": 3, b"b": 2, b"c": 1, b"d": 1}
        assert stored(spark, tmp_path / "counts", batchId=0) == {b"a": 2, b"b": 1}


def stored(spark: Any, checkpoint: Path, **options: int) -> dict[bytes, int]:
    """The counts by key in a query's state, which anybody may read who has its checkpoint."""
    state = spark.read.format("statestore").options(**options).load(str(checkpoint))
    return {bytes(row.key.key): row.value["count"] for row in state.collect()}


def committed(bootstrap: str, group: str) -> dict[int, int]:
    """A group's offsets of the only topic that it reads."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {at.partition: at.offset for at in future.result(30).topic_partitions}


def test_a_row_goes_to_the_topic_that_it_names_and_the_queries_lag_is_shown(
    spark: Any, pybroker: Broker, tmp_path: Path
) -> None:
    from harness.waiting import wait_until

    from pybroker.pipeline import BrokerTopics, Output, start

    orders, north, rest, counted = (f"{name}-{uuid4()}" for name in ("orders", "north", "rest", "counted"))
    for topic in (orders, north, rest, counted):
        pybroker.create_topic(topic, partitions=1)

    def job(topics: Any) -> Any:
        keys = topics.stream(orders).selectExpr("string(key) key", f"if(key = 'n', '{north}', null) topic")
        counts = keys.groupBy("key", "topic").count().selectExpr("key", "string(count) value", "topic")
        return {rest: keys.selectExpr("key", "key as value", "topic"), counted: Output(counts, "update")}

    topics = BrokerTopics(spark, pybroker.bootstrap)
    send(topics.bootstrap, orders, "n", "s", "n")
    listening = len(spark.streams._jsqm.listListeners())
    queries = start(job, topics, tmp_path, until_done=True, group="by-region")
    for query in queries:
        assert query.awaitTermination(100)
    written = {name: sorted(row.value for row in topics.batch(name).collect()) for name in (north, rest, counted)}
    assert written == {north: [b"2", b"n", b"n"], rest: [b"s"], counted: [b"1"]}

    def shown() -> bool:
        return all(committed(topics.bootstrap, f"by-region-{name}") == {0: 3} for name in (rest, counted))

    wait_until(shown, "the groups' offsets", 30)
    wait_until(lambda: len(spark.streams._jsqm.listListeners()) == listening, "nobody to listen", 30)


def stand(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Have ``group`` stand at an offset of each partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    at = [TopicPartition(*where, offset) for where, offset in offsets.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, at)]).values()
    future.result(30)


def test_a_job_of_several_topics_begins_in_each_where_a_group_stands_and_reads_whole_what_is_not_named(
    spark: Any, pybroker: Broker, tmp_path: Path
) -> None:
    from pybroker.pipeline import BrokerTopics, group_offsets, start

    orders, returns, prices, out, group = (f"{name}-{uuid4()}" for name in ("orders", "returns", "prices", "out", "g"))
    for topic in (orders, returns, prices, out):
        pybroker.create_topic(topic, partitions=1)
        if topic != out:
            send(pybroker.bootstrap, topic, f"{topic[0]}0", f"{topic[0]}1", f"{topic[0]}2")
    stand(pybroker.bootstrap, group, {(orders, 0): 2, (returns, 0): 1, (prices, 0): 3})

    def job(topics: Any) -> Any:
        rows = topics.stream(orders).unionByName(topics.stream(returns)).unionByName(topics.stream(prices))
        return {out: rows.selectExpr("key as value")}

    begin = group_offsets(group, [orders, returns], {"bootstrap.servers": pybroker.bootstrap})
    topics = BrokerTopics(spark, pybroker.bootstrap, {"startingOffsets": begin})
    for query in start(job, topics, tmp_path, until_done=True):
        assert query.awaitTermination(100)
    assert sorted(row.value for row in topics.batch(out).collect()) == [b"o2", b"p0", b"p1", b"p2", b"r1", b"r2"]


def test_a_micro_batch_may_be_written_to_two_topics(spark: Any, pybroker: Broker) -> None:
    from pybroker.pipeline import BrokerTopics

    topics = BrokerTopics(spark, pybroker.bootstrap)
    names = [f"to-{uuid4()}" for _ in range(2)]
    rows = spark.createDataFrame([("v",)], "value string")
    for name in names:
        options = {"kafka.bootstrap.servers": topics.bootstrap, "transactionGroup": f"g-{names[0]}", "epoch": "1"}
        rows.write.format("pybroker").options(**options, topic=name).mode("append").save()
    assert [topics.batch(name).count() for name in names] == [1, 1]


def test_an_epoch_without_its_group_is_refused(spark: Any) -> None:
    rows = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(Exception, match="option epoch is one of a transactionGroup"):
        rows.write.format("pybroker").options(**{"kafka.bootstrap.servers": "127.0.0.1:1"}, topic="t", epoch="1").mode(
            "append"
        ).save()


def test_two_queries_that_write_micro_batches_by_one_group_are_told(
    spark: Any, pybroker: Broker, tmp_path: Path
) -> None:
    from pybroker.pipeline import BrokerTopics

    source, target, group = (f"{name}-{uuid4()}" for name in ("in", "out", "group"))
    topics = BrokerTopics(spark, pybroker.bootstrap)
    send(topics.bootstrap, source, "a")
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": target, "transactionGroup": group}

    def write(rows: Any, epoch: int) -> None:
        rows.write.format("pybroker").options(**options, epoch=str(epoch)).mode("append").save()

    def run(checkpoint: str) -> Any:
        writer = topics.stream(source).select("key", "value").writeStream.foreachBatch(write)
        return writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()

    assert run("first").awaitTermination(60)
    with pytest.raises(Exception, match=r"another query, .* has written by the name"):
        run("second").awaitTermination(60)
    assert topics.batch(target).count() == 1


def test_a_micro_batch_of_which_spark_tells_no_query_has_no_default_group() -> None:
    from pybroker.pipeline.topics.writers import default_group

    with pytest.raises(RuntimeError, match="name a transactionGroup"):
        default_group(None)

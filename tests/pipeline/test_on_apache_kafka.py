"""The pipeline on Apache Kafka: what it counts on beyond reading and writing is Kafka's, and not our broker's alone.

Starts JVMs.  Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.apache_kafka import CONSUMER_GROUP_COMMAND, ApacheKafka, missing_requirement, run_kafka_tool

from tests.pipeline.topics.lag import check_lag_by_kafkas_tool
from tests.pipeline.topics.tables import Tables
from tests.pipeline.topics.test_epochs import Sink, batch

pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.skipif(missing_requirement() is not None, reason="Apache Kafka is not there"),
]

FORMATS = ("kafka", "pybroker")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    # Records of tests are of 1970: too old to be kept.
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), {"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture
def tables(spark: Any, kafka: ApacheKafka, tmp_path: Path) -> Tables:
    return Tables(spark, kafka.bootstrap, tmp_path)


@pytest.fixture
def sink(kafka: ApacheKafka) -> Iterator[Sink]:
    from pybroker.pipeline.topics import epoch_transactions

    yield Sink(kafka.bootstrap)
    epoch_transactions.close_idle()


def groups(bootstrap: str) -> list[str]:
    return run_kafka_tool(CONSUMER_GROUP_COMMAND, "--bootstrap-server", bootstrap, "--list").stdout.split()


def test_a_batch_written_is_a_batch_read_and_leaves_no_group_behind(tables: Tables) -> None:
    topic = tables.topic()
    rows = [("k", "v", 1, [("h", bytearray(b"x"))]), (None, "w", 0, None)]
    columns = "key string, value string, partition int, headers array<struct<key string, value binary>>"
    tables.save(tables.spark.createDataFrame(rows, columns), topic=topic)
    theirs, ours = (tables.read(form, topic, includeHeaders="true").orderBy("value").collect() for form in FORMATS)
    assert theirs == ours
    assert [(row.key, row.value, row.partition) for row in ours] == [(b"k", b"v", 1), (None, b"w", 0)]
    assert not [group for group in groups(tables.bootstrap) if group.startswith("pybroker-spark-batch-")]


def test_a_job_that_is_started_again_writes_a_repeated_micro_batch_once(tables: Tables, tmp_path: Path) -> None:
    from pybroker.pipeline import BrokerTopics, start
    from pybroker.pipeline.testing.stepped_query import forget_last_commit

    orders, loud = tables.topic(), tables.topic()

    def job(topics: Any) -> Any:
        return {loud: topics.stream(orders).selectExpr("key", "upper(string(value)) as value")}

    def run() -> None:
        (query,) = start(job, BrokerTopics(tables.spark, tables.bootstrap), tmp_path, until_done=True)
        assert query.awaitTermination(100)

    tables.fill(orders, [b"tea", b"milk", b"rum"])
    run()
    forget_last_commit(tmp_path / loud)
    tables.fill(orders, [b"gin"])
    run()
    assert sorted(tables.committed(loud)) == [b"GIN", b"MILK", b"RUM", b"TEA"]


def test_kafkas_own_tool_shows_how_far_a_job_is_behind(tables: Tables, tmp_path: Path) -> None:
    check_lag_by_kafkas_tool(tables, tmp_path)


def test_a_run_that_goes_on_in_the_middle_of_an_epoch_writes_what_is_not_there_and_fences_the_former_one(
    sink: Sink,
) -> None:
    from confluent_kafka import KafkaException

    from pybroker.pipeline.topics import epoch_transactions

    def overtaken() -> Iterator[Any]:
        yield batch(["a"])
        assert sink.run_epoch(0, [["a"], ["b"], []], run="second") == ["held", "found", "empty"]
        yield batch(["zombie"])

    sink.attempt(0, ["b"], task=1, run="first")
    with pytest.raises((KafkaException, epoch_transactions.NotDelivered)):
        epoch_transactions.write_epoch(sink.of(run="first"), 0, 0, overtaken())
    assert sink.run_epoch(1, [["c"]], run="second") == ["written"]
    assert sorted(sink.committed()) == ["a", "b", "c"]


def test_marks_are_found_without_their_claim(sink: Sink) -> None:
    """Their groups, which nobody has joined, are among those that a cluster lists."""
    sink.attempt(0, ["b"], task=1, run="first")
    sink.lose_claim()
    assert sink.run_epoch(0, [["a"], ["b"]], run="second", anew=True) == ["held", "found"]
    assert sorted(sink.committed()) == ["a", "b"]

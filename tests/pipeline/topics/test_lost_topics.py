"""What a stream's reader does where topics or brokers are gone, made anew, or cut by retention.  A real broker, no JVM.

Needs PySpark, whose classes the reader extends: marked like what starts a JVM.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import wait_until

from pybroker.handlers import list_offsets
from pybroker.testing import Broker, Cluster
from pybroker_protocol.errors import ErrorCode
from tests.pipeline.topics.tables import Tables

pytestmark = pytest.mark.jvm(needs="spark")


class Query:
    """Asks a reader for one micro-batch after another, as Spark does; a new one goes on from where another stood."""

    def __init__(self, bootstrap: str, topics: str, position: Any = None, **options: str) -> None:
        from pybroker.pipeline.topics.data_source import TopicDataSource

        subscribed = {} if "subscribePattern" in options else {"subscribe": topics}
        given = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", **subscribed, **options}
        self._reader = TopicDataSource(given).streamReader(schema())
        self.position = position or self._reader.initialOffset()

    def next(self, rows_max: int | None = None) -> list[str]:
        """The values of the next micro-batch, sorted."""
        begin, self.position = self.position, self.planned(rows_max)
        return self.between(begin, self.position)

    def rest(self, rows_max: int | None = None) -> list[str]:
        """The values of the next micro-batches, until Spark would take nothing for new."""
        found: list[str] = []
        before = None
        while self.position != before:
            before = self.position
            found += self.next(rows_max)
        return sorted(found)

    def planned(self, rows_max: int | None = None) -> Any:
        """Where the next micro-batch ends."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        limit = ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)
        return self._reader.latestOffset(self.position, limit)

    def between(self, begin: Any, end: Any) -> list[str]:
        """The values of a micro-batch that was planned, sorted."""
        batches = [each for task in self._reader.partitions(begin, end) for each in self._reader.read(task)]
        return sorted(value.decode() for batch in batches for value in batch.column("value").to_pylist())


def schema() -> Any:
    """The table's; to read it from its text takes a JVM."""
    from pyspark.sql import types

    kinds = [
        ("key", types.BinaryType()),
        ("value", types.BinaryType()),
        ("topic", types.StringType()),
        ("partition", types.IntegerType()),
        ("offset", types.LongType()),
        ("timestamp", types.TimestampType()),
        ("timestampType", types.IntegerType()),
    ]
    return types.StructType([types.StructField(name, kind) for name, kind in kinds])


@pytest.fixture
def tables(pybroker: Broker, tmp_path: Path) -> Tables:
    return Tables(None, pybroker.bootstrap, tmp_path)


def with_ids(tables: Tables, position: Any) -> Any:
    """Offsets as an earlier version had them in checkpoints."""
    from pybroker.pipeline.topics.directory import Directory
    from pybroker.pipeline.topics.source_options import read_source_options

    topics = {"subscribe": ",".join(position), "kafka.bootstrap.servers": tables.bootstrap}
    ids = Directory(read_source_options(topics, streaming=True)).topic_ids(position.keys())
    return {topic: {**offsets, "id": ids[topic]} for topic, offsets in position.items()}


def numbers(first: int, count: int) -> list[bytes | None]:
    return [str(number).encode() for number in range(first, first + count)]


ANEW = pytest.mark.parametrize("count", [2, 4, 6], ids=["fewer records", "as many records", "more records"])


@ANEW
def test_a_topic_made_anew_ends_a_query_that_may_lose_nothing(tables: Tables, count: int) -> None:
    topic = tables.topic()
    tables.fill(topic, numbers(10, 4))
    query = Query(tables.bootstrap, topic)
    assert query.next() == ["10", "11", "12", "13"]
    tables.make_anew(topic, numbers(20, count))
    with pytest.raises(RuntimeError, match=f"{topic}-0 was made anew"):
        query.next()


@ANEW
@pytest.mark.parametrize("rows_max", [None, 4])
def test_a_topic_made_anew_is_read_from_its_beginning_where_loss_is_allowed(
    tables: Tables, count: int, rows_max: int | None
) -> None:
    topic = tables.topic()
    tables.fill(topic, numbers(10, 4))
    query = Query(tables.bootstrap, topic, failOnDataLoss="false")
    assert query.rest(rows_max) == ["10", "11", "12", "13"]
    tables.make_anew(topic, numbers(20, count))
    assert query.rest(rows_max) == sorted(str(20 + number) for number in range(count))
    tables.fill(topic, numbers(30, 2))
    assert query.rest(rows_max) == ["30", "31"]


def test_offsets_are_told_as_sparks_connector_tells_them(tables: Tables) -> None:
    topic = tables.topic()
    tables.fill(topic, numbers(10, 3))
    query = Query(tables.bootstrap, topic)
    assert query.position == {topic: {"0": 0, "1": 0}}
    query.next()
    assert query.position == {topic: {"0": 2, "1": 1}}


@ANEW
def test_a_query_that_goes_on_from_an_earlier_versions_checkpoint_knows_a_topic_made_anew_by_its_id(
    tables: Tables, count: int
) -> None:
    topic = tables.topic()
    tables.fill(topic, numbers(10, 4))
    query = Query(tables.bootstrap, topic)
    query.next()
    position = with_ids(tables, query.position)
    tables.make_anew(topic, numbers(20, count))
    with pytest.raises(RuntimeError, match=f"{topic}-0 was made anew: what was not read of the former one is lost"):
        Query(tables.bootstrap, topic, position).next()
    patient = Query(tables.bootstrap, topic, position, failOnDataLoss="false")
    values = patient.next()
    # A micro-batch that was planned, and runs in another process, has the same rows.
    again = Query(tables.bootstrap, topic, failOnDataLoss="false")
    assert again.between(position, patient.position) == values
    assert sorted(values + patient.rest()) == sorted(str(20 + number) for number in range(count))
    tables.fill(topic, numbers(30, 2))
    assert Query(tables.bootstrap, topic, patient.position).next() == ["30", "31"]


@ANEW
def test_a_micro_batch_that_an_earlier_version_planned_takes_nothing_of_a_topic_made_anew_since(
    tables: Tables, count: int
) -> None:
    """The query died in the middle of it: what is there now by the offsets of the plan are other records."""
    topic = tables.topic()
    tables.fill(topic, numbers(10, 4))
    query = Query(tables.bootstrap, topic)
    position, planned = with_ids(tables, query.position), with_ids(tables, query.planned())
    tables.make_anew(topic, numbers(20, count))
    with pytest.raises(RuntimeError, match=f"{topic}-0 was made anew: what was not read of the former one is lost"):
        Query(tables.bootstrap, topic, position).between(position, planned)
    patient = Query(tables.bootstrap, topic, position, failOnDataLoss="false")
    assert patient.between(position, planned) == []
    patient.position = planned
    assert patient.rest() == sorted(str(20 + number) for number in range(count))


def test_a_query_started_again_knows_a_topic_made_anew_by_its_end(tables: Tables) -> None:
    """Its checkpoint has offsets alone, as those of Spark's own connector."""
    topic = tables.topic()
    tables.fill(topic, numbers(10, 4))
    position = {topic: {"0": 2, "1": 2}}
    assert Query(tables.bootstrap, topic, position).next() == []
    tables.make_anew(topic, numbers(20, 2))
    with pytest.raises(RuntimeError, match=f"{topic}-0 ends at 1, before 2, to where it was read: it was made anew"):
        Query(tables.bootstrap, topic, position).next()
    assert Query(tables.bootstrap, topic, position, failOnDataLoss="false").next() == ["20", "21"]


@pytest.mark.parametrize("rows_max", [None, 100])
def test_a_partition_that_ends_before_its_position_is_not_read_again(
    tables: Tables, caplog: pytest.LogCaptureFixture, rows_max: int | None
) -> None:
    """A query that read what a transaction had written so far goes on with what is committed."""
    from confluent_kafka import Producer

    topic = tables.topic(1)
    tables.append(topic, 0, [b"10"])
    producer = Producer({"bootstrap.servers": tables.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"11", partition=0)
    producer.flush(30)
    query = Query(tables.bootstrap, topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert query.next() == ["10", "11"]
    told = f"{topic}-0 ends at 1, before 2, to where it was read: its log was cut, or a transaction is open there"
    with pytest.raises(RuntimeError, match=told):
        Query(tables.bootstrap, topic, query.position).next()
    patient = Query(tables.bootstrap, topic, query.position, failOnDataLoss="false")
    for _ in range(2):
        planned = patient.planned(rows_max)
        assert (patient.between(patient.position, planned), planned) == ([], query.position)
    assert caplog.text.count(told) == 1
    # As a version planned it that read such a partition from its beginning.
    behind = with_ids(tables, {topic: {"0": 1}})
    assert patient.between(with_ids(tables, {topic: {"0": 2}}), behind) == []
    producer.commit_transaction(30)
    tables.append(topic, 0, [b"12"])
    assert patient.next() == ["12"]


def lose_after_the_next_look(tables: Tables, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    """Have a topic go when a reader has asked where it ends."""
    from pybroker.pipeline.topics.directory import Directory

    latest = Directory.latest

    def ends(directory: Directory, partitions: Any) -> Any:
        found = latest(directory, partitions)
        monkeypatch.undo()
        tables.delete(topic)
        return found

    monkeypatch.setattr(Directory, "latest", ends)


@pytest.mark.parametrize("rows_max", [None, 100], ids=["as it is read", "as it is planned"])
def test_a_new_topic_that_is_gone_again_is_told_or_left_out(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rows_max: int | None
) -> None:
    topic = tables.topic(1)
    pattern = {"subscribePattern": f"{topic}.*"}
    tables.append(topic, 0, [b"10"])
    strict = Query(tables.bootstrap, topic, **pattern)
    patient = Query(tables.bootstrap, topic, failOnDataLoss="false", **pattern)
    assert strict.next() == patient.next() == ["10"]
    tables.append(topic, 0, [b"11"])
    told = f"{topic}-new-0 were new and are gone, with what they had"
    for query in (strict, patient):
        tables.create(f"{topic}-new", 1)
        tables.append(f"{topic}-new", 0, [b"20"])
        lose_after_the_next_look(tables, monkeypatch, f"{topic}-new")
        if query is strict:
            with pytest.raises(RuntimeError, match=told):
                query.between(query.position, query.planned(rows_max))
        else:
            planned = query.planned(rows_max)
            assert query.between(query.position, planned) == ["11"]
            query.position = planned
            assert query.next() == []
    assert told in caplog.text


def test_where_nothing_is_new_a_query_stands_where_it_stood(tables: Tables) -> None:
    topic = tables.topic()
    tables.fill(topic, numbers(10, 4))
    query = Query(tables.bootstrap, topic)
    query.next()
    stood = json.dumps(query.position)
    assert (query.next(), json.dumps(query.position)) == ([], stood)


def test_a_topic_that_goes_is_told_or_left_out_until_it_is_back(tables: Tables) -> None:
    topic, other = tables.topic(), tables.topic()
    for each in (topic, other):
        tables.fill(each, numbers(10, 2))
    strict = Query(tables.bootstrap, f"{topic},{other}")
    patient = Query(tables.bootstrap, f"{topic},{other}", failOnDataLoss="false")
    assert strict.next() == patient.next() == ["10", "10", "11", "11"]
    tables.delete(topic)
    tables.fill(other, numbers(20, 2))
    with pytest.raises(RuntimeError, match=f"no such topic: {topic}; with failOnDataLoss=false the query goes on"):
        strict.next()
    assert patient.next() == ["20", "21"]
    tables.create(topic)
    tables.fill(topic, numbers(30, 2))
    assert patient.next() == ["30", "31"]


def test_retention_that_overtakes_a_query_is_told_and_the_rest_is_read_where_loss_is_allowed(tables: Tables) -> None:
    from pybroker.pipeline.topics.range_reader import close_idle

    topic = tables.topic()
    tables.fill(topic, numbers(10, 4))
    query = Query(tables.bootstrap, topic)
    query.next()
    # Of what this process's consumer fetches ahead nothing would be lost.
    close_idle()
    tables.fill(topic, numbers(20, 8))
    tables.delete_before(topic, 0, 5)
    with pytest.raises(RuntimeError, match=f"{topic}-0 begins at 5 by now: what was before, from 2 on, is lost"):
        Query(tables.bootstrap, topic, query.position).next()
    patient = Query(tables.bootstrap, topic, query.position, failOnDataLoss="false")
    # Offsets 2 to 4 of partition 0 were 20, 22 and 24.
    assert patient.next() == ["21", "23", "25", "26", "27"]


def test_a_cluster_that_is_gone_for_longer_than_a_look_may_take_is_told_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybroker.pipeline.topics import cluster_queries

    with Broker() as broker:
        tables = Tables(None, broker.bootstrap, tmp_path)
        topic = tables.topic()
        query = Query(tables.bootstrap, topic)
        assert query.next() == []
    monkeypatch.setattr(cluster_queries, "REQUEST_TIMEOUT_S", 0.2)
    with pytest.raises(
        cluster_queries.ClusterUnreachable, match=f"no broker of {tables.bootstrap} answered within 0 s"
    ):
        query.next()


class Refusals:
    """Has the broker refuse each partition's first ``count`` questions for offsets, and counts the questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: int, count: int) -> None:
        self.asked: list[tuple[str, int]] = []
        answer = list_offsets._answer

        def refuse(ctx: Any, topic: str, asked: Any, *flags: bool) -> Any:
            at = (topic, asked.partition_index)
            self.asked.append(at)
            if at[1] == 0 and self.asked.count(at) <= count:
                return list_offsets._failed(asked, error)
            return (yield from answer(ctx, topic, asked, *flags))

        monkeypatch.setattr(list_offsets, "_answer", refuse)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
    ids=lambda error: error.name,
)
def test_a_partition_whose_leader_moves_is_asked_again_and_the_others_are_not(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, error: ErrorCode
) -> None:
    topic = tables.topic()
    tables.fill(topic, numbers(10, 4))
    query = Query(tables.bootstrap, topic)
    refusals = Refusals(monkeypatch, error, 2)
    assert query.planned()[topic].items() >= {("0", 2), ("1", 2)}
    assert sorted(refusals.asked) == [(topic, 0)] * 3 + [(topic, 1)]


def test_a_partition_whose_leader_never_answers_is_told_with_what_it_said(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybroker.pipeline.topics import cluster_queries

    topic = tables.topic()
    query = Query(tables.bootstrap, topic)
    Refusals(monkeypatch, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1_000)
    monkeypatch.setattr(cluster_queries, "REQUEST_TIMEOUT_S", 0.2)
    with pytest.raises(
        cluster_queries.ClusterUnreachable, match=rf"no leader of {topic}-0 answered within 0 s \(.*[Nn]ot leader"
    ):
        query.planned()


def test_an_offset_that_is_refused_for_good_is_told_at_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = tables.topic()
    query = Query(tables.bootstrap, topic)
    refusals = Refusals(monkeypatch, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1_000)
    with pytest.raises(RuntimeError, match=f"the offset of {topic}-0: .*[Aa]uthorization"):
        query.planned()
    assert refusals.asked.count((topic, 0)) == 1


@pytest.mark.parametrize(
    ("lose", "find"), [(Cluster.kill, Cluster.restart), (Cluster.pause, Cluster.resume)], ids=["dies", "stands still"]
)
def test_a_query_goes_on_while_the_leader_between_two_looks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lose: Callable[[Cluster, int], None],
    find: Callable[[Cluster, int], None],
) -> None:
    """Each broker in turn, so that it is the controller, too, and the one that was asked last."""
    from pybroker.pipeline.topics import cluster_queries

    monkeypatch.setattr(cluster_queries, "ASKED_AGAIN_AFTER_S", 1.0, raising=False)
    with Cluster(3) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=3)
        tables = Tables(None, cluster.bootstrap, tmp_path)
        query = Query(cluster.bootstrap, "t")

        def all_may_lead() -> bool:
            image = cluster._latest_image()
            partitions = [image.partition("t", at) for at in range(3)] if image else []
            return all(each and len(each.isr) == 3 for each in partitions)

        for broker in sorted(cluster.brokers):
            tables.append("t", 0, [b"%d" % broker])
            assert query.next() == [str(broker)]
            lose(cluster, broker)
            assert query.next() == []
            find(cluster, broker)
            wait_until(all_may_lead, "replicas that are all in sync", 30)

"""Records that a transform or a converter cannot change: dead letters with the reason, or the end of the sink.

Starts a JVM; needs what `scripts/spark-setup` installs.  All tests share one session and one broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pybroker.testing import Broker
from tests.connectors.supervisor_world import topic_values
from tests.connectors.test_record_forms_on_spark import AVRO, handler, records, work_of

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(600)]

FORM = {"value.converter": "json", "value.converter.schema": "id bigint, name string, amount double"}
TOLERANT = {"errors.tolerance": "all"}
CAST = {"transforms": "c", "transforms.c.type": "Cast$Value", "transforms.c.spec": "name:int32"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


def batch_of(spark: Any, *names: str) -> Any:
    """Records whose offsets begin at 5."""
    return records(spark, *((b"k%d" % n, value(n, name)) for n, name in enumerate(names)))


def value(number: int, name: str) -> bytes:
    return json.dumps({"id": number, "name": name, "amount": 1.5}).encode()


def letters_of(broker: Broker, topic: str) -> dict[int, tuple[bytes, str, str]]:
    """By the offset of its record: what a dead letter has as its value, the stage, and the reason."""
    found = topic_values(broker, topic)
    headers: list[Mapping[str, bytes]] = [dict(each.headers()) for each in found]
    offsets = [int(each["__connect.errors.offset"]) for each in headers]
    assert len(set(offsets)) == len(offsets)
    return {
        offset: (
            each.value(),
            told["__connect.errors.stage"].decode(),
            told["__connect.errors.exception.message"].decode(),
        )
        for offset, each, told in zip(offsets, found, headers, strict=True)
    }


def test_record_that_a_transform_cannot_change_is_a_dead_letter_and_the_others_go_on(
    spark: Any, broker: Broker
) -> None:
    names = [("x" if n in (0, 17, 18, 39) else str(n)) for n in range(40)]
    bad = [n + 5 for n, name in enumerate(names) if name == "x"]
    broker.create_topic("dead-cast")
    config = FORM | TOLERANT | CAST | {"errors.deadletterqueue.topic.name": "dead-cast"}
    one, written = handler(spark, broker, config, "cast")
    one.take(batch_of(spark, *names), 0)
    one.take(batch_of(spark, *names), 0)  # as when the supervisor was killed behind the dead letters
    good = [offset for offset in range(5, 45) if offset not in bad]
    assert sorted(written) == sorted(good * 2)
    letters = letters_of(broker, "dead-cast")
    assert sorted(letters) == bad
    sent, stage, reason = letters[22]
    assert (sent, stage) == (value(17, "x"), "TRANSFORMATION")
    assert reason.startswith("transforms: [CAST_INVALID_INPUT] The value 'x'")


def test_sink_that_tolerates_nothing_ends_with_the_record_s_name(spark: Any, broker: Broker) -> None:
    from pybroker.connectors.kinds.connector_runs import RecordRefused

    strict, written = handler(spark, broker, FORM | CAST, "strict")
    with pytest.raises(RecordRefused, match=r"the record of a-1-2 at offset 7: transforms: \[CAST_INVALID_INPUT\]"):
        strict.take(batch_of(spark, "1", "2", "x", "4", "y"), 0)
    assert written == []


def test_only_what_a_transform_is_given_can_be_refused_by_it(spark: Any, broker: Broker) -> None:
    """Each kind of error that SQL has, of records that the transform before did not leave out."""
    config = {
        "transforms": "a, b",
        "transforms.a.type": "sql",
        "transforms.a.where": "name != 'gone'",
        "transforms.b.type": "sql",
        "transforms.b.select": "id, 10 div (id - 1) AS part, element_at(split(name, ','), 2) AS second",
        "transforms.b.where": "CASE WHEN id = 4 THEN raise_error('not this') ELSE id >= 0 END",
    }
    broker.create_topic("dead-steps")
    dead = {"errors.deadletterqueue.topic.name": "dead-steps"}
    one, written = handler(spark, broker, FORM | TOLERANT | dead | config, "steps")
    one.take(batch_of(spark, "a,b", "a,b", "gone", "a", "a,b", "a,b"), 0)
    assert sorted(written) == [5, 10]
    found = {offset: reason for offset, (_, _, reason) in letters_of(broker, "dead-steps").items()}
    assert sorted(found) == [6, 8, 9]
    assert "DIVIDE_BY_ZERO" in found[6]
    assert "INVALID_ARRAY_INDEX" in found[8]
    assert "not this" in found[9]


def test_record_that_the_converter_cannot_write_is_a_dead_letter_of_its(spark: Any, broker: Broker) -> None:
    from pybroker.connectors.kinds.sink_queries import _Handler
    from pybroker.connectors.kinds.topic_sink import encoding, writing

    config = FORM | TOLERANT | {"errors.deadletterqueue.topic.name": "dead-avro", "topic": "in-avro"}
    for topic in ("dead-avro", "in-avro"):
        broker.create_topic(topic)
    config |= {"transforms": "n", "transforms.n.type": "sql"}
    config |= {"transforms.n.select": "id, name, nullif(amount, id) AS amount"}
    work = work_of(spark, broker, config, "avro", "TopicSink")
    encode = encoding(work_of(spark, broker, _avro(config), "avro", "TopicSink"), ())
    one = _Handler(work, writing(work, work.cluster), True, encode)
    rows = [(b"k", json.dumps({"id": n, "name": "é", "amount": 3 if n == 3 else 0.5}).encode()) for n in range(6)]
    one.take(records(spark, *rows), 0)
    assert len(topic_values(broker, "in-avro")) == 5
    ((offset, (_, stage, reason)),) = letters_of(broker, "dead-avro").items()
    assert (offset, stage) == (8, "VALUE_CONVERTER")
    assert reason.startswith("value: ")
    assert "amount" in reason


BYTES = {"key.converter": "text", "value.converter": "bytes"}


def topic_handler(spark: Any, broker: Broker, name: str, **config: str) -> Any:
    """What takes the micro-batches of a `TopicSink`, whose records are bytes."""
    from pybroker.connectors.kinds.sink_queries import _Handler
    from pybroker.connectors.kinds.topic_sink import encoding, writing

    settings = {key.replace("_", "."): text for key, text in config.items()}
    work = work_of(spark, broker, BYTES | settings, name, "TopicSink")
    return _Handler(work, writing(work, work.cluster), True, encoding(work, ()))


def test_records_that_the_cluster_refuses_are_dead_letters_and_each_other_one_is_there_once(
    spark: Any, broker: Broker
) -> None:
    """Also where the micro-batch comes again, as when the supervisor was killed behind it."""
    broker.create_topic("in-small", configs={"max.message.bytes": "2000"})
    broker.create_topic("dead-small")
    bad = {3: 5_000, 17: 400_000, 39: 3_000}
    batch = records(spark, *((b"k%d" % n, b"%d" % n * bad.get(n, 300)) for n in range(40))).repartition(3, "key")
    dead = {"errors.deadletterqueue.topic.name": "dead-small"}
    one = topic_handler(spark, broker, "small", topic="in-small", **TOLERANT, **dead)
    for _ in range(2):
        one.take(batch, 0)
    found = sorted(int(each.key()[1:]) for each in topic_values(broker, "in-small"))
    assert found == [n for n in range(40) if n not in bad]
    letters = letters_of(broker, "dead-small")
    assert sorted(letters) == [n + 5 for n in bad]
    assert {stage for _, stage, _ in letters.values()} == {"TASK_PUT"}
    assert all("Message size too large" in reason for _, _, reason in letters.values())


def test_where_none_is_tolerated_the_first_record_that_the_cluster_refuses_is_named(spark: Any, broker: Broker) -> None:
    from pybroker.connectors.kinds.connector_runs import RecordRefused

    broker.create_topic("in-strict", configs={"max.message.bytes": "2000"})
    batch = records(spark, *((b"k", b"x" * (5_000 if n in (4, 7) else 10)) for n in range(9)))
    with pytest.raises(RecordRefused, match="the record of a-1-2 at offset 9: target: a record for in-strict was ref"):
        topic_handler(spark, broker, "strict-small", topic="in-strict").take(batch, 0)


def test_records_that_are_too_large_together_are_written_one_by_one(spark: Any, broker: Broker) -> None:
    broker.create_topic("in-tight", configs={"max.message.bytes": "2000"})
    one = topic_handler(spark, broker, "tight", topic="in-tight")
    one.take(records(spark, *((b"k", b"x" * 500) for _ in range(200))), 0)
    assert len(topic_values(broker, "in-tight")) == 200


def test_records_for_a_topic_that_takes_none_are_dead_letters_and_others_go_on(spark: Any, broker: Broker) -> None:
    from pyspark.sql import functions as F

    for topic in ("in-routed", "dead-routed"):
        broker.create_topic(topic)
    rows = records(spark, *((b"k", b"%d" % n) for n in range(20)))
    routed = rows.withColumn("topic", F.expr("if(offset % 4 = 0, 'no topic', 'in-routed')"))
    dead = {"errors.deadletterqueue.topic.name": "dead-routed"}
    topic_handler(spark, broker, "routed", **TOLERANT, **dead).take(routed, 0)
    assert len(topic_values(broker, "in-routed")) == 15
    letters = letters_of(broker, "dead-routed")
    assert sorted(letters) == [8, 12, 16, 20, 24]
    assert letters[8][1:] == ("TASK_PUT", "target: a record for no topic was refused: Broker: Invalid topic")


def _avro(config: dict[str, str]) -> dict[str, str]:
    return config | {"value.converter": "avro", "value.converter.schema": AVRO}


def test_what_the_target_throws_is_no_record_s(spark: Any, broker: Broker) -> None:
    from pyspark.errors import PySparkException

    from pybroker.connectors.kinds.connector_runs import RecordRefused
    from pybroker.connectors.kinds.sink_queries import _Handler

    def fails(rows: Any, _: int) -> None:
        rows.selectExpr("raise_error('the table is away')").collect()

    for tolerance in ({}, TOLERANT):
        work = work_of(spark, broker, FORM | CAST | tolerance, "away", "FileSink")
        with pytest.raises(PySparkException, match="the table is away") as caught:
            _Handler(work, fails, False).take(batch_of(spark, "1", "2"), 0)
        assert not isinstance(caught.value, RecordRefused)


def test_batch_of_records_that_are_all_refused_writes_none(spark: Any, broker: Broker) -> None:
    broker.create_topic("dead-all")
    config = FORM | TOLERANT | CAST | {"errors.deadletterqueue.topic.name": "dead-all"}
    one, written = handler(spark, broker, config, "all-bad")
    one.take(batch_of(spark, *("x" * 20)), 0)
    assert written == []
    assert len(letters_of(broker, "dead-all")) == 20

"""Topics as a source and as a sink, of two clusters: what arrives is compared with what was sent.

Starts JVMs; needs what `scripts/spark-setup` installs.  All tests share one supervisor, which costs seconds to start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from harness.waiting import PATIENCE_S, wait_until

from pybroker.testing import Broker
from tests.connectors.supervisor_world import World, send, topic_values, values

pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.timeout(600),
]

OFTEN = {"poll.interval.ms": "50"}


@pytest.fixture(scope="module")
def other() -> Iterator[Broker]:
    with Broker() as made:
        yield made


def record(message: Any) -> tuple[Any, ...]:
    """What a copy keeps."""
    return message.partition(), message.key(), message.value(), message.headers(), message.timestamp()[1]


def test_records_of_another_cluster_are_there_once_though_the_supervisor_is_killed(world: World, other: Broker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": other.bootstrap})

    def send_rows(first: int, end: int) -> None:
        for each in range(first, end):
            value = None if each % 10 == 0 else b"\xff%d" % each
            producer.produce("far", value, b"\xfe%d" % each, each % 2, headers=[("n", b"%d" % each)])
        assert producer.flush(PATIENCE_S) == 0

    other.create_topic("far", partitions=2)
    world.broker.create_topic("far", partitions=2)
    send_rows(0, 600)
    config = {**OFTEN, "connector.class": "TopicSource", "source.topics": "far", "keep.partitions": "true"}
    config |= {"cluster.bootstrap.servers": other.bootstrap, "max.records.per.batch": "100"}
    world.put("far", **config)
    wait_until(lambda: values(world, "far"), "the first records")
    world.kill()
    send_rows(600, 1_000)
    world.start()
    wait_until(lambda: len(values(world, "far")) >= 1_000, "all records")
    assert [record(each) for each in values(world, "far")] == [record(each) for each in topic_values(other, "far")]


def test_another_cluster_that_is_away_gets_each_record_once(world: World) -> None:
    world.broker.create_topic("near")
    with Broker() as away:
        away.create_topic("there")
        config = {**OFTEN, "connector.class": "TopicSink", "topics": "near", "topic": "there"}
        config |= {"cluster.bootstrap.servers": away.bootstrap, "errors.restarts.backoff.ms": "100"}
        world.put("near", **config, **{"errors.restarts.max": "-1"})
        world.send("near", "1", "2", key="k")
        wait_until(lambda: [each.value() for each in topic_values(away, "there")] == [b"1", b"2"], "the records")
        away.kill()
        world.send("near", "3", None, key="k")
        away.restart()
        expected = [b"1", b"2", b"3", None]
        wait_until(lambda: [each.value() for each in topic_values(away, "there")] == expected, "the others")
        world.delete_all()


def test_another_cluster_that_was_away_is_read_on(world: World) -> None:
    world.broker.create_topic("back")
    with Broker() as away:
        away.create_topic("back")
        config = {**OFTEN, "connector.class": "TopicSource", "source.topics": "back"}
        config |= {"cluster.bootstrap.servers": away.bootstrap, "errors.restarts.backoff.ms": "100"}
        world.put("back", **config, **{"errors.restarts.max": "-1"})
        send(away, "back", "1")
        wait_until(lambda: [each.value() for each in values(world, "back")] == [b"1"], "the first record")
        away.kill()
        away.restart()
        send(away, "back", "2")
        wait_until(lambda: [each.value() for each in values(world, "back")] == [b"1", b"2"], "both records")
        world.delete_all()


def test_fields_are_changed_and_a_poison_record_is_a_dead_letter(world: World) -> None:
    for topic in ("orders", "big-orders"):
        world.broker.create_topic(topic)
    world.send("orders", '{"id":1,"cents":5}', "no json", '{"id":2,"cents":500}', None, key="k")
    config = {**OFTEN, "connector.class": "TopicSink", "topics": "orders", "transforms": "big,route"}
    config |= {"key.converter": "text", "value.converter": "json", "value.converter.schema": "id bigint, cents bigint"}
    config |= {"transforms.big.type": "sql", "transforms.big.where": "_tombstone OR cents > 100"}
    config |= {"transforms.route.type": "RegexRouter", "transforms.route.regex": "(.*)"}
    config |= {"transforms.route.replacement": "big-$1", "errors.restarts.max": "0"}
    world.put("big", **config)
    wait_until(lambda: world.state("big") == "FAILED", "a failed sink")
    assert "orders-0 at offset 1: value: is no JSON" in world.status("big")["tasks"][0]["trace"]
    assert values(world, "big-orders") == []
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "orders-dead"}
    world.put("big", **config, **letters)
    wait_until(lambda: len(values(world, "big-orders")) >= 2, "the records")
    first, second = values(world, "big-orders")
    assert (json.loads(first.value()), first.key(), second.value()) == ({"id": 2, "cents": 500}, b"k", None)
    (letter,) = values(world, "orders-dead")
    assert letter.value() == b"no json"


def test_records_that_a_transform_cannot_change_are_dead_letters_and_each_other_one_goes_on_once(world: World) -> None:
    for topic in ("prices", "cents", "prices-dead"):
        world.broker.create_topic(topic)

    def send_rows(first: int, end: int) -> None:
        rows = (f'{{"id":{each},"price":"{"free" if each % 50 == 7 else each}"}}' for each in range(first, end))
        world.send("prices", *rows, key="k")

    send_rows(0, 100)
    config = {**OFTEN, "connector.class": "TopicSink", "topics": "prices", "topic": "cents", "transforms": "c"}
    config |= {"value.converter": "json", "value.converter.schema": "id bigint, price string"}
    config |= {"transforms.c.type": "Cast$Value", "transforms.c.spec": "price:int32", "errors.restarts.max": "0"}
    world.put("cents", **config)
    wait_until(lambda: world.state("cents") == "FAILED", "a failed sink")
    assert "prices-0 at offset 7: transforms: [CAST_INVALID_INPUT]" in world.status("cents")["tasks"][0]["trace"]
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "prices-dead"}
    world.put("cents", **config, **letters)
    wait_until(lambda: len(values(world, "cents")) >= 98, "the first records")
    send_rows(100, 200)
    wait_until(lambda: len(values(world, "cents")) >= 196, "all records")
    found = [json.loads(each.value()) for each in values(world, "cents")]
    assert found == [{"id": each, "price": each} for each in range(200) if each % 50 != 7]
    dead = [dict(each.headers())["__connect.errors.offset"] for each in values(world, "prices-dead")]
    assert dead == [b"7", b"57", b"107", b"157"]


def test_a_sink_whose_offsets_were_reset_writes_again(world: World) -> None:
    for topic in ("from", "to"):
        world.broker.create_topic(topic)
    world.send("from", "1", "2")
    world.put("again", **OFTEN, **{"connector.class": "TopicSink", "topics": "from", "topic": "to"})
    wait_until(lambda: len(values(world, "to")) >= 2, "the records")
    world.client.ask("PUT", "connectors", "again", "stop")
    wait_until(lambda: world.state("again") == "STOPPED", "a stopped sink")
    world.client.ask("DELETE", "connectors", "again", "offsets")
    world.client.ask("PUT", "connectors", "again", "resume")
    wait_until(lambda: [each.value() for each in values(world, "to")] == [b"1", b"2"] * 2, "the records again")

"""Sinks whose topics are a pattern, and secrets of connectors that Spark runs, in a supervisor with Spark."""

from __future__ import annotations

import json
from functools import partial

import pytest
from harness.waiting import wait_until

from tests.connectors.bulk_server import BulkServer
from tests.connectors.supervisor_world import World, values

pytestmark = pytest.mark.jvm(needs="spark")


def copied(world: World, topic: str) -> list[str]:
    return sorted((each.value() or b"").decode() for each in values(world, topic))


def pattern_sink(name: str) -> dict[str, str]:
    return {
        "connector.class": "TopicSink",
        "topics.regex": f"{name}-.*",
        "topic": f"all-of-{name}",
        "value.converter": "bytes",
        "poll.interval.ms": "100",
    }


def at(topic: str, offset: int) -> dict[str, object]:
    return {"partition": {"kafka_topic": topic, "kafka_partition": 0}, "offset": {"kafka_offset": offset}}


def test_a_sink_of_a_pattern_goes_on_at_the_offsets_that_are_set(world: World) -> None:
    name, target = "set", "all-of-set"
    for topic in (f"{name}-a", f"{name}-b", target):
        world.broker.create_topic(topic)
    world.send(f"{name}-a", "a0", "a1", "a2")
    world.send(f"{name}-b", "b0", "b1")
    world.put(name, **pattern_sink(name))
    wait_until(lambda: len(copied(world, target)) == 5, "all records")
    first = world.directory / "checkpoints" / name / "1"
    assert first.exists()
    used = {name: {"topics": [f"{name}-a", f"{name}-b"]}}
    wait_until(lambda: world.client.ask("GET", "connectors", name, "topics") == used, "the topics that it reads")
    offsets = partial(world.client.ask, "GET", "connectors", name, "offsets")
    wait_until(lambda: at(f"{name}-a", 3) in offsets()["offsets"], "the group's offsets")
    world.client.ask("PUT", "connectors", name, "stop")
    wait_until(lambda: world.state(name) == "STOPPED", "a stopped sink")
    world.client.ask("PATCH", "connectors", name, "offsets", body={"offsets": [at(f"{name}-a", 2)]})
    world.client.ask("PUT", "connectors", name, "resume")
    wait_until(lambda: len(copied(world, target)) == 6, "what is read again")
    world.send(f"{name}-b", "b2")
    wait_until(lambda: "b2" in copied(world, target), "what comes later")
    assert copied(world, target) == ["a0", "a1", "a2", "a2", "b0", "b1", "b2"]
    wait_until(lambda: not first.exists(), "the end of the former checkpoint")


def test_a_sink_of_a_pattern_reads_topics_that_appear_later_and_goes_with_its_checkpoint(world: World) -> None:
    name, target = "later", "all-of-later"
    for topic in (f"{name}-a", target):
        world.broker.create_topic(topic)
    world.put(name, **pattern_sink(name))
    world.send(f"{name}-a", "a0")
    wait_until(lambda: copied(world, target) == ["a0"], "the first record")
    world.broker.create_topic(f"{name}-b")
    world.send(f"{name}-b", "b0")
    wait_until(lambda: copied(world, target) == ["a0", "b0"], "the record of the new topic")
    folder = world.directory / "checkpoints" / name
    assert folder.exists()
    world.client.ask("DELETE", "connectors", name)
    wait_until(lambda: not folder.exists(), "the end of its checkpoints")


HTTP = "/?token=hunter2"
POSTGRES = "jdbc:postgresql://127.0.0.1:1/d?user=ann&password=hunter2"


@pytest.mark.parametrize(
    ("name", "kind", "url", "config"),
    [
        ("away", "HttpSink", f"http://127.0.0.1:1{HTTP}", {}),
        ("refuses", "HttpSink", f"SERVER{HTTP}", {}),
        ("rows", "JdbcSink", POSTGRES, {}),
        ("table", "JdbcSource", POSTGRES, {"topic": "table", "table": "t", "incrementing.column.name": "id"}),
    ],
)
def test_a_secret_of_a_url_is_in_no_reply_and_in_no_log(
    world: World, name: str, kind: str, url: str, config: dict[str, str]
) -> None:
    world.broker.create_topic(name)
    world.send(name, '{"id": 1}')
    with BulkServer(most=0) as server:
        (world.directory / "url.properties").write_text(f"url={url.replace('SERVER', server.url)}\n")
        reference = f"${{file:{world.directory / 'url.properties'}:url}}"
        where = {"url" if kind == "HttpSink" else "connection.url": reference}
        what = {} if "topic" in config else {"topics": name, "value.converter.schema": "id bigint"}
        once = {"errors.retry.timeout": "0", "errors.restarts.max": "0"}
        world.put(name, **{"connector.class": kind, **what, **once, **config, **where})
        wait_until(lambda: world.state(name) == "FAILED", "the failure")
        told = json.dumps(world.client.ask("GET", "connectors", expand=["info", "status"]))
    log = (world.directory / "supervisor.log").read_text()
    assert f"{name} failed" in log
    assert "hunter2" not in told + log

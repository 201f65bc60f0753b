"""Sources that are asked again and again, on a broker: what is there is counted over failures and restarts."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from harness.waiting import PATIENCE_S, wait_until

from pybroker.connectors.declared.plugin_kinds import kind_named
from pybroker.connectors.declared.validation import errors_of
from pybroker.connectors.kinds.connector_runs import Run, Work, start
from pybroker.connectors.kinds.udp_source import Kept
from pybroker.connectors.state.state_topics import SourcePlace, StateTopics, create_topics
from pybroker.connectors.state.worker_settings import WorkerSettings
from pybroker.testing import Broker
from tests.connectors.http_items import Server


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class World:
    """A topic, the topics of a supervisor, and runs of one connector."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name, self.topic = broker, name, f"{name}-topic"
        self.settings = WorkerSettings({"bootstrap.servers": broker.bootstrap}, f"{name}-group")
        create_topics(self.settings)
        broker.create_topic(self.topic)
        self.state = StateTopics(self.settings)
        self.state.take_over()
        self.runs: list[Run] = []
        # What stands in the declaration where a run's configuration has what a reference has found.
        self.references: Mapping[str, str] = {}

    def start(self, kind: str, ends: threading.Event | None = None, /, **config: str) -> Run:
        """A run of the connector beside those that there are, as a supervisor that was replaced may leave them."""
        found = kind_named(kind)
        assert found is not None
        whole = {"name": self.name, "connector.class": kind, "topic": self.topic, "poll.interval.ms": "20"}
        whole |= {key.replace("_", "."): text for key, text in config.items()}
        # A configuration is judged before its references are resolved.
        declared = {**whole, **self.references}
        assert errors_of(declared | dict.fromkeys(whole.keys() & {"http.authorization"}, "${env:TOKEN}")) == {}
        work = Work(
            name=self.name,
            kind=found,
            config=whole,
            spark=None,
            cluster={"kafka.bootstrap.servers": self.broker.bootstrap},
            directory="",
            group="",
            starting_offsets=lambda _: "",
            place=SourcePlace(self.state, self.settings, self.name),
            ends=threading.Event() if ends is None else ends,
            declared=declared,
        )
        self.runs.append(start(work))
        return self.runs[-1]

    def records(self) -> list[tuple[str | None, Any]]:
        """The committed records: keys, and values of JSON."""
        return [(key, json.loads(value)) for key, value in self.texts()]

    def texts(self) -> list[tuple[str | None, str]]:
        """The committed records: keys, and the texts of values."""
        settings = {"bootstrap.servers": self.broker.bootstrap, "group.id": "test", "enable.partition.eof": True}
        consumer = Consumer({**settings, "fetch.wait.max.ms": 10})
        try:
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            found: list[tuple[str | None, str]] = []
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                if message.error() is not None:
                    return found
                key = message.key()
                found.append((None if key is None else key.decode(), (message.value() or b"").decode()))
        finally:
            consumer.close()

    @property
    def is_at_work(self) -> bool:
        """Whether the thread of a run is left."""
        return any(thread.name == f"connector-{self.name}" for thread in threading.enumerate())

    def offsets(self) -> dict[str, Any]:
        return self.state.known.offsets.get(self.name, {})


@pytest.fixture
def world(broker: Broker) -> Iterator[World]:
    made = World(broker, f"polled-{uuid4().hex}")
    yield made
    for run in made.runs:
        run.stop()
    made.state.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


HTTP = {"records.path": "data.items", "offset.field": "id", "offset.parameter": "after", "key.fields": "id"}


def ids(world: World) -> list[int]:
    return [value["id"] for _, value in world.records()]


def test_values_of_a_server_are_written_once_over_restarts(world: World, server: Server) -> None:
    server.items = [{"id": 1, "n": "a"}, {"id": 2}]
    first = world.start("HttpSource", url=server.url, **HTTP)
    wait_until(lambda: len(world.offsets()) == 1, "an offset")
    first.stop()
    server.items.append({"id": 3})
    world.start("HttpSource", url=server.url, **HTTP)
    wait_until(lambda: list(world.offsets().values()) == [{"offset": 3}], "the next offset")
    assert world.records() == [("1", {"id": 1, "n": "a"}), ("2", {"id": 2}), ("3", {"id": 3})]
    assert server.asked[-1][0].endswith("after=3") or server.asked[-1][0].endswith("after=2")


def test_a_run_that_was_replaced_writes_nothing_more(world: World, server: Server) -> None:
    first = world.start("HttpSource", url=server.url, **HTTP)
    server.items = [{"id": 1}]
    wait_until(lambda: ids(world) == [1], "the first value")
    world.start("HttpSource", url=server.url, **HTTP)

    def first_is_over() -> bool:
        # A run hears that it was replaced when it has something to write.
        server.items.append({"id": len(server.items) + 1})
        return first.failure is not None

    wait_until(first_is_over, "the end of the first run")
    wait_until(lambda: ids(world)[-1] == len(server.items), "the last value")
    assert ids(world) == list(range(1, len(server.items) + 1))


def test_offsets_that_were_set_are_where_a_source_goes_on(world: World, server: Server) -> None:
    server.items = [{"id": number} for number in range(1, 6)]
    place = SourcePlace(world.state, world.settings, world.name)
    world.state.write_offsets(place.records([({"url": server.url}, {"offset": 3})]))
    world.start("HttpSource", url=server.url, **HTTP)
    wait_until(lambda: ids(world) == [4, 5], "what is behind the offset")


def test_a_url_that_is_a_secret_is_not_in_the_topic_of_offsets_and_may_change(world: World, server: Server) -> None:
    server.items = [{"id": 1}]
    world.references = {"url": "${file:/p:url}"}
    first = world.start("HttpSource", url=f"{server.url}?token=hunter2", **HTTP)
    wait_until(lambda: list(world.offsets().values()) == [{"offset": 1}], "the offset")
    assert list(world.offsets()) == ['{"url":"${file:/p:url}"}']
    first.stop()
    server.items.append({"id": 2})
    world.start("HttpSource", url=f"{server.url}?token=hunter3", **HTTP)
    wait_until(lambda: list(world.offsets().values()) == [{"offset": 2}], "the next offset")
    assert ids(world) == [1, 2]


def test_a_source_that_does_not_answer_is_left_alone_and_what_it_gives_is_not_written(
    world: World, server: Server
) -> None:
    server.may_answer.clear()
    server.items = [{"id": 1}]
    first = world.start("HttpSource", url=server.url, **HTTP)
    wait_until(lambda: server.asked, "a request")
    first.stop()
    second = world.start("HttpSource", url=server.url, **HTTP)
    wait_until(lambda: len(server.asked) == 2, "the next run's request")
    second.stop()
    server.may_answer.set()
    assert world.is_at_work, "a run waits for its answer"
    wait_until(lambda: not world.is_at_work, "the end of both runs")
    assert (world.records(), world.offsets()) == ([], {})
    world.start("HttpSource", url=server.url, **HTTP)
    wait_until(lambda: ids(world) == [1], "what the source has")


def test_a_reply_is_one_transaction_however_many_records_it_has(world: World, server: Server) -> None:
    """The last record is refused for its size: those before it are not written, and the topic's readers go on."""
    server.items = [{"id": number} for number in range(1, 60_001)]
    server.items.append({"id": 60_001, "n": "x" * 2_000_000})
    run = world.start("HttpSource", url=server.url, **HTTP)
    wait_until(lambda: run.failure, "the end of the run")
    assert "MSG_SIZE_TOO_LARGE" in str(run.failure) or "too large" in str(run.failure)
    other = Producer({"bootstrap.servers": world.broker.bootstrap})
    other.produce(world.topic, b'{"id":0}')
    other.flush(PATIENCE_S)
    assert ids(world) == [0]


@pytest.mark.parametrize(
    ("code", "answer", "told"),
    [
        (500, b"{}", "answers 500"),
        (302, b"{}", "answers 302"),
        (200, b"<html>", "answers with no JSON"),
        (200, b'{"data":{"items":[{"id":1,"n":"\xe9"}]}}', "answers with no JSON: 'utf-8' codec can't decode"),
        (200, b"[" * 5_000 + b"]" * 5_000, "answers with no JSON: it is nested too deep"),
        (200, b'{"data":{}}', "has no data.items"),
        (200, b'{"data":{"items":[{"n":1}]}}', "has no id, a number or a text"),
        (200, b'{"data":{"items":[1]}}', "has no id, a number or a text"),
    ],
)
def test_a_reply_that_cannot_be_used_ends_the_run_with_its_reason(
    world: World, server: Server, code: int, answer: bytes, told: str
) -> None:
    server.code, server.answer = code, lambda _: answer
    run = world.start("HttpSource", url=server.url, **HTTP)
    wait_until(lambda: run.failure, "the end of the run")
    assert told in str(run.failure)
    assert world.records() == []


class Ends(threading.Event):
    """The end of a run, with the times for which it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return super().wait(timeout)


def test_a_server_without_offsets_is_asked_once_an_interval(world: World, server: Server) -> None:
    server.items = [{"id": 1}]
    hour = {"records.path": "data.items", "poll.interval.ms": "3600000"}
    ends = Ends()
    world.start("HttpSource", ends, url=server.url, **hour)
    wait_until(lambda: ends.waits, "the pause behind the first reply")
    assert (len(server.asked), ids(world), ends.waits) == (1, [1], [3600.0])


def test_a_server_with_offsets_is_asked_at_once_for_what_is_behind(world: World, server: Server) -> None:
    server.items = [{"id": number} for number in range(1, 6)]
    server.answer = lambda items: json.dumps({"data": {"items": items[:1]}}).encode()
    hour = {"poll.interval.ms": "3600000"}
    world.start("HttpSource", url=server.url, **HTTP, **hour)
    wait_until(lambda: ids(world) == [1, 2, 3, 4, 5], "all values")


def test_a_server_that_is_away_is_waited_for(world: World) -> None:
    first = Server()
    first.items = [{"id": 1}]
    run = world.start("HttpSource", url=first.url, **HTTP)
    try:
        wait_until(lambda: ids(world) == [1], "the first value")
        first.code = 503
        busy = len(first.asked)
        wait_until(lambda: len(first.asked) >= busy + 3, "requests while the server is busy")
    finally:
        first.close()
    second = Server(before=first)
    try:
        second.items = [{"id": 1}, {"id": 2}]
        wait_until(lambda: ids(world) == [1, 2], "the next value")
        assert run.failure is None
    finally:
        second.close()


def test_a_server_that_stays_away_ends_the_run_after_its_patience(world: World, server: Server) -> None:
    server.code = 429
    run = world.start("HttpSource", url=server.url, **HTTP, **{"errors.retry.timeout": "0"})
    wait_until(lambda: run.failure, "the end of the run")
    assert run.failure == f"ServerGone: {server.url}: answers 429"


def test_a_run_that_waits_for_a_server_ends_when_it_is_stopped(world: World, server: Server) -> None:
    server.code = 503
    run = world.start("HttpSource", url=server.url, **HTTP, **{"errors.retry.timeout": "-1"})
    wait_until(lambda: server.asked, "a request")
    run.stop()
    wait_until(lambda: not world.is_at_work, "the end of the run")


def test_values_that_cannot_be_compared_are_passed_over_and_counted_where_they_are_tolerated(
    world: World, server: Server
) -> None:
    server.answer = lambda items: json.dumps({"data": {"items": [{"n": 1}, True, *items, {"id": "a"}]}}).encode()
    server.items = [{"id": 1}]
    run = world.start("HttpSource", url=server.url, **HTTP, **{"errors.tolerance": "all"})
    wait_until(lambda: ids(world) == [1], "the first value")
    told = "passed over since the start: 3, the last one: id of " + server.url
    assert (run.remark or "").startswith(told)
    server.items.append({"id": 2})
    wait_until(lambda: ids(world) == [1, 2], "the next value")
    asked = len(server.asked)
    wait_until(lambda: len(server.asked) > asked + 2, "further replies")
    # Those that a server gives again and again are counted once.
    assert (run.remark or "").startswith(told)
    assert run.failure is None


@pytest.mark.parametrize("config", [HTTP, {"records.path": "data.items"}])
def test_a_value_that_is_nested_too_deep_is_passed_over_where_that_is_tolerated(
    world: World, server: Server, config: dict[str, str]
) -> None:
    deep = "[" * 600 + "]" * 600
    server.answer = lambda _: f'{{"data":{{"items":[{{"id":1}},{{"id":2,"n":{deep}}},{{"id":3}}]}}}}'.encode()
    strict = world.start("HttpSource", url=server.url, **config)
    wait_until(lambda: strict.failure, "the end of the run")
    assert strict.failure == f"ReplyRefused: a value of {server.url} cannot be written: it is nested too deep"
    assert world.records() == []
    run = world.start("HttpSource", url=server.url, **config, **{"errors.tolerance": "all"})
    wait_until(lambda: ids(world)[:2] == [1, 3], "the other values")
    wait_until(lambda: run.remark, "the remark")
    assert f"a value of {server.url} cannot be written: it is nested too deep" in str(run.remark)


def test_offsets_that_are_numbers_as_texts_of_several_lengths_end_the_run(world: World, server: Server) -> None:
    """As texts "10" stands before "9": it would never be new."""
    given = ["8", "9"]
    server.answer = lambda _: json.dumps({"data": {"items": [{"id": each} for each in given]}}).encode()
    config = {name: text for name, text in HTTP.items() if name != "offset.parameter"}
    run = world.start("HttpSource", url=server.url, **config, **{"errors.tolerance": "all"})
    wait_until(lambda: len(world.records()) == 2, "the first values")
    given.append("10")
    wait_until(lambda: run.failure, "the end of the run")
    assert "10 does not stand behind 9" in str(run.failure)


def test_numbers_of_a_server_keep_their_digits_and_are_offsets_with_all_of_them(world: World, server: Server) -> None:
    given = ["12345678901234567.11", "12345678901234567.89"]

    def page(_: Any) -> bytes:
        listed = ",".join(f'{{"id":{each}}}' for each in given)
        return f'{{"data":{{"items":[{listed}]}}}}'.encode()

    server.answer = page
    config = {name: text for name, text in HTTP.items() if name != "offset.parameter"}
    first = world.start("HttpSource", url=server.url, **config)
    wait_until(lambda: list(world.offsets().values()) == [{"offset": given[1]}], "an offset")
    first.stop()
    given += ["12345678901234567.90", "1E400"]
    world.start("HttpSource", url=server.url, **config)
    wait_until(lambda: len(world.records()) == 4, "the next values")
    assert world.texts() == [(each, f'{{"id":{each}}}') for each in given]


def test_a_secret_goes_to_the_server(world: World, server: Server) -> None:
    config = {"connector.class": "HttpSource", "http.authorization": "Bearer x"}
    assert "Invalid value [hidden]" in errors_of(config)["http.authorization"][0]
    assert "http.authorization" not in errors_of({**config, "http.authorization": "${env:TOKEN}"})
    world.start("HttpSource", url=server.url, **HTTP, **{"http.authorization": "Bearer x"})
    wait_until(lambda: server.asked, "a request")
    assert server.asked[0][1] == "Bearer x"


def datagrams(world: World, port: int, *sent: bytes) -> list[Any]:
    """What becomes of datagrams; UDP may lose some, so that they are sent until they are there."""

    def there() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for each in sent:
                sender.sendto(each, ("127.0.0.1", port))
        return bool(world.records())

    wait_until(there, "a record")
    return world.records()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_datagrams_of_syslog_are_records(world: World) -> None:
    port = free_port()
    world.start("UdpSource", port=str(port))
    (key, value), *_ = datagrams(world, port, b"<34>1 2026-01-31T12:00:00Z web app 7 - - it failed")
    assert (key, value["from"], value["severity"], value["message"]) == ("web", "127.0.0.1", 2, "it failed")


def test_metrics_of_statsd_are_records(world: World) -> None:
    port = free_port()
    run = world.start("UdpSource", port=str(port), format="statsd")
    found = datagrams(world, port, b"hits:3|c|@0.5|#host:a\nno metric\ntook:12|ms")
    assert found[:2] == [
        ("hits", {"name": "hits", "value": 3.0, "type": "c", "rate": 0.5, "tags": ["host:a"]}),
        ("took", {"name": "took", "value": 12.0, "type": "ms", "rate": 1.0}),
    ]
    told = r"passed over since the start: \d+, the last one: a line from 127\.0\.0\.1 is no metric of StatsD"
    assert re.fullmatch(told, run.remark or "")


def test_of_a_flood_of_datagrams_so_many_bytes_are_kept_and_the_others_are_counted() -> None:
    kept = Kept()
    for number in range(3_000):
        kept.add(b"x" * 60_000, str(number))
    assert kept.size <= 64 * 1024 * 1024
    found = [host for _, host in kept.take()]
    assert found == [str(number) for number in range(len(found))]
    assert len(found) == 64 * 1024 * 1024 // 60_000
    assert (kept.dropped(), kept.dropped(), kept.size) == (3_000 - len(found), 0, 0)
    kept.add(b"x", "later")
    assert [host for _, host in kept.take()] == ["later"]


def test_of_a_flood_of_small_datagrams_so_many_are_kept() -> None:
    kept = Kept()
    for _ in range(100_007):
        kept.add(b"", "")
    assert (len(list(kept.take())), kept.dropped()) == (100_000, 7)


def test_a_port_that_is_taken_ends_the_run(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        run = world.start("UdpSource", port=str(taken.getsockname()[1]))
        wait_until(lambda: run.failure, "the end of the run")
    assert "OSError" in str(run.failure)

"""Two supervisors of one name as processes: one works, and the other takes over when it is killed.  No JVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from harness.child_process import ChildProcess
from harness.waiting import PATIENCE_S, wait_until

from pybroker.connectors.rest.rest_client import NoAnswer, RestClient
from pybroker.testing import Broker
from tests.connectors.http_items import Server
from tests.connectors.supervisor_world import url_of, works


class Supervisor:
    """A process, and the way to ask it."""

    def __init__(self, broker: Broker, directory: Path, name: str) -> None:
        command = [sys.executable, "-m", "pybroker", "connect", "serve", "--bootstrap", broker.bootstrap]
        command += ["--listen", "127.0.0.1:0", "--data", str(directory / "checkpoints")]
        self.process = ChildProcess(command, directory / f"{name}.log")
        self.client = RestClient(url_of(self.process))

    @property
    def works(self) -> bool:
        return works(self.client)

    def state(self, name: str) -> str:
        tasks = self.client.ask("GET", "connectors", name, "status")["tasks"]
        return str(tasks[0]["state"]) if tasks else ""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def ids(broker: Broker) -> list[Any]:
    """Of the committed records, in their order."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.partition.eof": True}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10})
    try:
        consumer.assign([TopicPartition("items", 0, 0)])
        found: list[Any] = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(json.loads(message.value() or b"")["id"])
    finally:
        consumer.close()


def test_the_one_that_waits_takes_over_and_each_record_is_there_once(server: Server, tmp_path: Path) -> None:
    with Broker() as broker:
        broker.create_topic("items")
        first = Supervisor(broker, tmp_path, "first")
        assert first.client.ask("GET", "connectors") == [], "it is asked as soon as it says that it is ready"
        second = Supervisor(broker, tmp_path, "second")
        try:
            server.items = [{"id": number} for number in range(1, 101)]
            config = {"connector.class": "HttpSource", "topic": "items", "url": server.url, "poll.interval.ms": "20"}
            config |= {"records.path": "data.items", "offset.field": "id", "offset.parameter": "after"}
            first.client.ask("PUT", "connectors", "items", "config", body=config)
            wait_until(lambda: len(ids(broker)) == 100, "the first records")
            with pytest.raises(NoAnswer, match="another one of its name works"):
                second.client.ask("GET", "connectors")
            first.process.kill()
            server.items += [{"id": number} for number in range(101, 201)]
            wait_until(lambda: second.works, "the second supervisor works")
            wait_until(lambda: second.state("items") == "RUNNING", "the connector runs")
            wait_until(lambda: len(ids(broker)) >= 200, "all records")
            assert ids(broker) == list(range(1, 201))
            assert second.client.ask("GET", "connectors", "items", "offsets")["offsets"] == [
                {"partition": {"url": server.url}, "offset": {"offset": 200}}
            ]
        finally:
            first.process.kill()
            assert second.process.terminate(PATIENCE_S) == 0, second.process.log_tail()


@pytest.mark.slow  # half a minute, all of it waiting
def test_a_supervisor_whose_brokers_are_not_there_says_so_and_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pybroker", "connect", "serve", "--bootstrap", "127.0.0.1:1"]
    process = ChildProcess([*command, "--listen", "127.0.0.1:0", "--data", str(tmp_path)], tmp_path / "log")
    assert process.wait(PATIENCE_S) == 1
    (line,) = process.log_tail().splitlines()
    assert line.startswith("pybroker: ")

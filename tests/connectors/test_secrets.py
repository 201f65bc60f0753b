"""A secret that a reference finds is in no reply, in no log and in no topic of a supervisor.  A process, and no JVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.child_process import ChildProcess
from harness.waiting import PATIENCE_S, wait_until

from pybroker.connectors.rest.rest_client import RestClient
from pybroker.testing import Broker
from tests.connectors.http_items import Server
from tests.connectors.supervisor_world import PROVIDERS, topic_values, url_of, works


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_a_token_of_a_url_is_not_told_when_a_source_has_offsets_nor_when_it_fails(
    server: Server, tmp_path: Path
) -> None:
    worker, secret = tmp_path / "worker.properties", tmp_path / "secret.properties"
    worker.write_text(PROVIDERS)
    secret.write_text(f"url={server.url}?token=hunter2\nauthorization=Bearer hunter3\n")
    with Broker() as broker:
        broker.create_topic("items")
        command = [sys.executable, "-m", "pybroker", "connect", "serve", "--bootstrap", broker.bootstrap]
        command += ["--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--worker", str(worker)]
        process = ChildProcess(command, tmp_path / "log")
        try:
            client = RestClient(url_of(process))
            wait_until(lambda: works(client), "a supervisor that works")
            config = {
                "connector.class": "HttpSource",
                "topic": "items",
                "url": f"${{file:{secret}:url}}",
                "http.authorization": f"${{file:{secret}:authorization}}",
                "records.path": "data.items",
                "offset.field": "id",
                "poll.interval.ms": "20",
            }
            server.items = [{"id": 1}]
            client.ask("PUT", "connectors", "a", "config", body=config)
            wait_until(lambda: client.ask("GET", "connectors", "a", "offsets")["offsets"], "an offset")
            offsets = client.ask("GET", "connectors", "a", "offsets")
            assert offsets == {"offsets": [{"partition": {"url": config["url"]}, "offset": {"offset": 1}}]}
            server.code = 400

            def trace() -> str:
                tasks = client.ask("GET", "connectors", "a", "status")["tasks"]
                return str(tasks[0].get("trace", "")) if tasks else ""

            wait_until(trace, "a failure")
            assert trace() == f"ReplyRefused: {config['url']} answers 400"
            assert server.asked[0] == ("/items?token=hunter2", "Bearer hunter3")
            told = json.dumps(client.ask("GET", "connectors", expand=["info", "status"]))
            topics = ("connect-configs", "connect-offsets", "connect-status")
            kept = [
                text for topic in topics for each in topic_values(broker, topic) for text in (each.key(), each.value())
            ]
        finally:
            assert process.terminate(PATIENCE_S) == 0, process.log_tail()
    log = (tmp_path / "log").read_text()
    assert f"ReplyRefused: {config['url']} answers 400" in log
    assert any(b"answers 400" in (text or b"") for text in kept)
    for text in (told, log, *(str(each) for each in kept)):
        assert "hunter" not in text

"""Kafka Connect's REST interface, of a worker of Apache Kafka and of a supervisor: the same requests, the same replies.

Codes and shapes are compared, because the connectors are not the same ones.  The supervisor starts no Spark: its source
asks a server, and its sink is only declared.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from harness.broker_probe import free_port
from harness.child_process import ChildProcess
from harness.connect_jars import JARS_OF_PAGES, java_command
from harness.waiting import PATIENCE_S, wait_until

from pybroker.testing import Broker
from tests.connectors.http_items import Server
from tests.connectors.reply_shapes import differences
from tests.connectors.rest_requests import DIFFERENCES, REQUESTS, Difference, Reply, Request, Side
from tests.connectors.supervisor_world import url_of

pytestmark = [pytest.mark.jvm(needs="connect"), pytest.mark.timeout(900)]

# A worker starts for a minute and a half on a machine that does much else.
WORKER_PATIENCE_S = 3 * PATIENCE_S
WORKER = """
bootstrap.servers={bootstrap}
group.id=stock
listeners=http://127.0.0.1:{port}
plugin.path={plugin}
plugin.discovery=service_load
config.storage.topic=stock-configs
offset.storage.topic=stock-offsets
status.storage.topic=stock-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.flush.interval.ms=500
"""
# Said while a worker gives work to workers: it is to be asked again, as a supervisor is that works in a moment.
REBALANCES = "rebalance"


def stock(broker: Broker, directory: Path) -> tuple[ChildProcess, Side]:
    """A worker of Apache Kafka, and what it is asked."""
    (plugin, *_) = (path for path in JARS_OF_PAGES.values() if path.endswith(".jar"))
    port, lines = free_port(), directory / "lines.txt"
    lines.write_text("one\ntwo\n")
    settings = directory / "worker.properties"
    settings.write_text(WORKER.format(bootstrap=broker.bootstrap, port=port, plugin=plugin))
    process = ChildProcess(java_command("connect-distributed.sh", [str(settings)]), directory / "worker.log")
    return process, Side(
        address=f"127.0.0.1:{port}",
        source={"connector.class": "FileStreamSource", "file": str(lines), "topic": "read-there"},
        sink={"connector.class": "FileStreamSink", "file": str(directory / "out.txt"), "topics": "lines"},
        partition={"filename": str(lines)},
        offset={"position": 4},
        logger="org.apache.kafka.connect.runtime.Worker",
        namespace="org.apache.kafka.connect.runtime",
    )


def own(broker: Broker, directory: Path, server: Server) -> tuple[ChildProcess, Side]:
    """A supervisor, and what it is asked."""
    command = [sys.executable, "-m", "pybroker", "connect", "serve", "--bootstrap", broker.bootstrap]
    command += ["--listen", "127.0.0.1:0", "--data", str(directory / "checkpoints")]
    process = ChildProcess(command, directory / "supervisor.log")
    source = {"connector.class": "HttpSource", "url": server.url, "topic": "read-here", "records.path": "data.items"}
    return process, Side(
        address=url_of(process).removeprefix("http://"),
        source={**source, "offset.field": "id", "offset.parameter": "after"},
        sink={"connector.class": "FileSink", "path": str(directory / "out"), "format": "text", "topics": "lines"},
        partition={"url": server.url},
        offset={"offset": 1},
        logger="pybroker.connectors.rest.rest_server",
        namespace="pybroker.connectors",
    )


def is_too_early(reply: Reply) -> bool:
    if reply.code == HTTPStatus.CONFLICT:
        return REBALANCES in reply.document["message"]
    return reply.code == HTTPStatus.SERVICE_UNAVAILABLE and "retry-after" in reply.headers


def asked(side: Side, request: Request) -> Reply:
    """The reply, once it is the one that the request waits for."""
    replies: list[Reply] = []

    def is_answered() -> object:
        replies.append(_asked_once(side, request))
        is_early = is_too_early(replies[-1]) and not request.may_conflict
        return not is_early and request.until(replies[-1])

    try:
        wait_until(is_answered, f"{request.name} at {side.address}")
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {replies[-1]}") from None
    return replies[-1]


def _asked_once(side: Side, request: Request) -> Reply:
    path, body = request.sent(side)
    connection = http.client.HTTPConnection(side.address, timeout=PATIENCE_S)
    try:
        connection.request(request.method, path, body, dict(request.headers))
        reply = connection.getresponse()
        raw = reply.read()
    finally:
        connection.close()
    headers = {name.lower(): text for name, text in reply.getheaders()}
    # Jetty leaves out the type of some errors.
    is_json = raw[:1] in (b"{", b"[")
    return Reply(reply.status, headers, json.loads(raw) if is_json else raw.decode() or None)


@pytest.fixture(scope="module")
def replies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Reply, Reply]]]:
    """Of each request, there and here; what both are asked depends upon what they were asked before."""
    directory = tmp_path_factory.mktemp("rest")
    server = Server()
    server.items = [{"id": 1}, {"id": 2}]
    processes: list[ChildProcess] = []
    try:
        with Broker() as broker:
            for topic in ("lines", "read-there", "read-here"):
                broker.create_topic(topic)
            try:
                process, there = stock(broker, directory)
                processes.append(process)
                process, here = own(broker, directory, server)
                processes.append(process)
                log = processes[0].log_path
                wait_until(lambda: "Kafka Connect started" in log.read_text(), "a worker", WORKER_PATIENCE_S)
                yield {each.name: (asked(there, each), asked(here, each)) for each in REQUESTS}
            finally:
                for process in processes:
                    process.kill()
    finally:
        server.close()


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_a_request_is_answered_as_connect_answers_it(
    request_: Request, replies: dict[str, tuple[Reply, Reply]]
) -> None:
    there, here = replies[request_.name]
    known = DIFFERENCES.get(request_.name, Difference(there.code, there.code, "", ()))
    assert (there.code, here.code) == (known.there, known.here), (there.document, here.document)
    if known.shapes is not None:
        assert tuple(differences(there.document, here.document, is_map=request_.is_map)) == known.shapes, here.document
        assert ("location" in there.headers) == ("location" in here.headers)

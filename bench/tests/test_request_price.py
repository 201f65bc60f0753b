"""The price of a request is measured over requests that succeed, and shared out over all layers."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

import pybroker
from bench import compiled, request_price
from bench.request_price import CONNECTIONS, KINDS, LAYERS, TOPIC, Cpu, in_process, layer_of, over_sockets, row
from bench.wire import Client, record_batch
from bench.without_sockets import with_server
from pybroker.server import BrokerServer
from pybroker.testing import Broker

SECONDS = 0.2


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic(TOPIC, partitions=CONNECTIONS)
        with Client(f"{running.host}:{running.port}") as client:
            client.produce(TOPIC, dict.fromkeys(range(CONNECTIONS), record_batch(1, 100)))
        yield running


@pytest.mark.skipif(compiled.compiler() is None, reason="the load generators need a C compiler")
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_answered_without_an_error_over_sockets(broker: Broker, kind: str) -> None:
    cpu = over_sockets(kind, f"{broker.host}:{broker.port}", os.getpid(), SECONDS)
    assert sum(cpu) >= 0


@pytest.mark.parametrize("kind", KINDS)
def test_operations_are_counted_where_they_are_done(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(request_price, "TIMED", 10)
    monkeypatch.setattr(request_price, "TIMES", 1)
    found: list[Counter[str]] = []

    async def measure(server: BrokerServer) -> None:
        counted, _ = await in_process(kind, server)
        found.append(counted)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(with_server(measure))
    (counted,) = found
    assert counted["net"] > 100
    assert set(counted) <= {*LAYERS, ""}
    is_coordinators = kind in {"commit", "heartbeat"}
    assert (counted["coordinators"] > 0) == is_coordinators
    assert (counted["storage"] > 0) == (kind not in {"heartbeat", "metadata"})


def test_shares_add_up_to_the_whole() -> None:
    made = row(Cpu(20.0, 5.0), Counter({"net": 60, "wire": 20, "": 20}), 10.0)
    assert made.layers_us["net"] == pytest.approx(6.0)
    assert made.total_us == pytest.approx(made.kernel_us + made.loop_us + sum(made.layers_us.values()))
    assert made.operations == 80


def test_files_belong_to_the_folder_that_they_lie_in() -> None:
    package = Path(pybroker.__file__).parent
    assert layer_of(str(package / "net" / "connection.py")) == "net"
    assert layer_of(str(package / "limits.py")) == "rest"
    assert layer_of("<pybroker_protocol: decode FetchRequest version 12>") == "wire"
    assert layer_of(request_price.__file__) == ""

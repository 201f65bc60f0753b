"""The gate before clients' requests: who comes while it is shut is served, in order, when it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.batches import batch
from harness.waiting import wait_until

from pybroker.net.request_gate import RequestGate
from pybroker.server import BrokerServer
from pybroker.testing import Broker
from tests.broker.wire_client import WireClient, fetch_request, produce_request
from tests.net.conftest import processor_of

PRODUCE, FETCH = 9, 12


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("t")
        yield running


def at_gate(broker: Broker, action: Callable[[RequestGate], Any]) -> Any:
    """Do something with the broker's gate, on its loop."""

    def act(_: BrokerServer, done: Callable[[Any], None]) -> None:
        done(action(processor_of(broker).gate))

    return broker._call(act)


def test_requests_wait_at_a_shut_gate_and_are_served_when_it_opens(broker: Broker) -> None:
    shut: list[bool] = []
    with WireClient((broker.host, broker.port)) as client, WireClient((broker.host, broker.port)) as other:
        client.produce("t", batch(b"before"))
        at_gate(broker, lambda gate: setattr(gate, "on_shut", lambda: shut.append(True)))
        at_gate(broker, RequestGate.shut)
        client.send(produce_request("t", batch(b"first")), PRODUCE)
        client.send(produce_request("t", batch(b"second")), PRODUCE)
        wait_until(lambda: len(shut) >= 1, "a request comes to the shut gate")
        other.send(fetch_request("t", 1), FETCH)
        wait_until(lambda: at_gate(broker, lambda gate: len(gate._waiting)) == 2, "both clients wait")
        at_gate(broker, lambda gate: gate.open_for(60_000))
        offsets = [client.receive().responses[0].partition_responses[0].base_offset for _ in range(2)]
        assert offsets == [1, 2]
        assert other.receive().responses[0].partitions[0].error_code == 0

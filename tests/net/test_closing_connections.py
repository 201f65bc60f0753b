"""What a connection that is being closed may still send."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from harness.batches import batch
from harness.waiting import wait_until
from harness.wire import Client

from pybroker.net.connection import Connection as ServedConnection
from pybroker.testing import Broker
from tests.broker.wire_client import WireClient, fetch_request
from tests.net.conftest import processor_of, served_side, sweep

FETCH = 1
KERNEL_BYTES = 64 << 10
RECORD_BYTES = 900_000
NO_FRAME = b"\xff\xff\xff\xff"


@pytest.fixture
def broker(no_sweep_but_ours: None) -> Iterator[Broker]:
    with Broker({"socket.send.buffer.bytes": KERNEL_BYTES}) as running:
        running.create_topic("t")
        with WireClient((running.host, running.port)) as client:
            client.produce("t", batch(b"x" * RECORD_BYTES))
        yield running


class SlowReader(Client):
    """A client whose kernel takes little of a reply that it does not read."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)


@contextmanager
def refused_with_a_reply_unsent(broker: Broker) -> Iterator[tuple[SlowReader, ServedConnection]]:
    """A client that did not read its reply yet, and was refused for what it sent behind the request."""
    reader = SlowReader((broker.host, broker.port))
    try:
        served = served_side(broker, reader)
        reader.post(fetch_request("t", 0), version=12)
        reader.send_raw(NO_FRAME)
        wait_until(lambda: served.closed, "the broker closes the connection")
        assert served._transport.get_write_buffer_size() > 0
        yield reader, served
    finally:
        reader.close()


def test_connection_closed_a_moment_ago_still_sends_its_replies(broker: Broker) -> None:
    with refused_with_a_reply_unsent(broker) as (reader, _):
        sweep(broker)
        reply = reader.receive_payload()
        assert reply is not None
        assert len(reply) > RECORD_BYTES
        assert reader.receive_payload() is None


def test_peer_that_leaves_its_replies_is_given_up_after_a_whole_sweep(broker: Broker) -> None:
    with refused_with_a_reply_unsent(broker) as (_, served):
        sweep(broker, 2)
        wait_until(lambda: served not in processor_of(broker).connections, "the connection is forgotten")

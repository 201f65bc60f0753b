"""A connection that is over is gone: nothing waits for the garbage collector, which comes rarely in a broker."""

from __future__ import annotations

import gc

from comparator.wire import Connection

from pybroker.net.connection import Connection as ServedConnection
from pybroker.net.socket_server import SocketServer
from pybroker.testing import Broker
from pybroker_protocol import codec
from tests.broker.batches import batch
from tests.broker.conftest import eventually
from tests.broker.wire_client import produce_request


def alive(server: SocketServer) -> int:
    """The connections of this server that exist, whether it knows of them or not."""
    return sum(isinstance(found, ServedConnection) and found._server is server for found in gc.get_objects())


def test_closed_connection_leaves_no_cycle() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        gc.collect()
        gc.disable()
        try:
            client = Connection((broker.host, broker.port))
            for _ in range(3):
                client.send_bytes(0, 9, codec.encode(produce_request("t", batch(b"v")), 9), True)
                assert client.receive_payload() is not None
            server = broker._running()._sockets
            assert server is not None
            assert alive(server) == 1
            client.close()
            eventually(lambda: alive(server) == 0, "the connection to be forgotten")
        finally:
            gc.enable()

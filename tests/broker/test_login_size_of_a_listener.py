"""What a login may send at once is bounded for one listener by that listener's own setting, as in Kafka."""

from __future__ import annotations

import socket
import struct

from harness.waiting import PATIENCE_S

from pybroker.testing import Broker

SIZE = "sasl.server.max.receive.size"


def api_versions(size: int) -> bytes:
    """A request of ``size`` bytes: its client id is as long as it takes."""
    client_id = b"c" * (size - 10)
    return struct.pack(">ihhih", size, 18, 0, 1, len(client_id)) + client_id


def test_a_listeners_own_bound_of_a_login_holds() -> None:
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-256", f"listener.name.sasl_plaintext.{SIZE}": "100"}
    with Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        for size, answered in ((100, True), (101, False)):
            with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
                client.sendall(api_versions(size))
                assert bool(client.recv(1)) is answered

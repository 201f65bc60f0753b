"""What the comparator's client takes for a reply, for silence and for the end of a connection."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from comparator.wire import CLOSED, SILENT, Connection

SOON_S = 0.05
NO_ERROR = b"\x00\x00"  # the whole of Heartbeat's reply in version 0


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    """A connection and what stands in for a broker at its other end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection(server.getsockname())
        peer, _ = server.accept()
        with peer:
            yield connection, peer
        connection.close()


def answer(peer: socket.socket, correlation_id: int) -> None:
    peer.sendall(struct.pack(">ii", 4 + len(NO_ERROR), correlation_id) + NO_ERROR)


def test_a_reply_is_to_the_request_that_was_sent(ends: tuple[Connection, socket.socket]) -> None:
    connection, peer = ends
    sent = [connection.send("Heartbeat", 0, {}) for _ in range(2)]
    for correlation_id in sent:
        answer(peer, correlation_id)
    assert connection.receive("Heartbeat", 0, sent[0]) == {"error_code": 0}
    with pytest.raises(ValueError, match="not to"):
        connection.receive("Heartbeat", 0, sent[0])


def test_nothing_is_silence_and_the_end_is_the_end(ends: tuple[Connection, socket.socket]) -> None:
    connection, peer = ends
    with connection.patience(SOON_S):
        assert connection.receive("Heartbeat", 0) == SILENT
    peer.shutdown(socket.SHUT_WR)
    assert connection.receive("Heartbeat", 0) == CLOSED

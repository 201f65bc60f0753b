"""Reading from a blocking socket."""

from __future__ import annotations

import socket


def receive_exactly(connection: socket.socket, size: int) -> bytearray:
    """``size`` bytes; raises ``EOFError`` when the peer hangs up first."""
    received = bytearray(size)
    view = memoryview(received)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError("the broker closed the connection")
        view = view[count:]
    return received


def receive_frame(connection: socket.socket) -> bytearray:
    """The next frame of Kafka's protocol without its length; raises ``EOFError`` when the peer hangs up first."""
    return receive_exactly(connection, int.from_bytes(receive_exactly(connection, 4), "big"))

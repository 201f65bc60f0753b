"""Blocking sockets that carry frames of Kafka's protocol.

Owns: reading exactly so much, and a connection that sends and receives frames.  What is in a frame is for others:
``wire`` speaks pybroker's messages, ``comparator.wire`` has an encoder of its own, ``broker_probe`` needs neither.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from harness.waiting import PATIENCE_S

REPLY_TIMEOUT_S: float = PATIENCE_S


def connect(address: tuple[str, int], timeout_s: float | None = None, source: str | None = None) -> socket.socket:
    """A connection without Nagle's delay, from the address ``source`` if one is named."""
    source_address = None if source is None else (source, 0)
    connection = socket.create_connection(address, timeout=timeout_s, source_address=source_address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


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


class FrameConnection:
    """One connection to one broker; replies are read in order, as Kafka sends them.

    ``source`` is the address to come from, for brokers that ask where clients are.
    """

    def __init__(self, address: tuple[str, int], timeout_s: float = REPLY_TIMEOUT_S, source: str | None = None) -> None:
        self._timeout_s = timeout_s
        self._socket = connect(address, timeout_s, source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send_frame(self, frame: bytes) -> None:
        """Send a frame, given without its length."""
        self.send_raw(struct.pack(">i", len(frame)) + frame)

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive_payload(self) -> bytes | None:
        """The next frame, or ``None`` when the broker has closed the connection; raises ``TimeoutError``."""
        try:
            return bytes(receive_frame(self._socket))
        except (EOFError, ConnectionResetError):
            return None

    @contextmanager
    def patience(self, seconds: float) -> Iterator[None]:
        """Wait for a reply no longer than this."""
        self._socket.settimeout(seconds)
        try:
            yield
        finally:
            self._socket.settimeout(self._timeout_s)

    def has_reply(self) -> bool:
        """Whether bytes of a reply, or the end of the connection, have come."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()

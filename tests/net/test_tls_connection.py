"""TLS between a socket and its connection: what the connection does wrong leaves no trace in what stands before it."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from pybroker.net.tls_connection import TlsConnection
from tests.certificates import Authority


class Socket:
    """A transport that keeps what is sent."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return False


class Stumbling(asyncio.BufferedProtocol):
    """Fails on the first bytes that it is given."""

    def __init__(self) -> None:
        self.buffer = bytearray(1_000)
        self.received = b""
        self.has_stumbled = False

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.has_stumbled:
            self.has_stumbled = True
            raise RuntimeError("stumbled")
        self.received += self.buffer[:nbytes]


class Served(TlsConnection):
    """A server's side."""

    def __init__(self, context: ssl.SSLContext, inner: asyncio.BufferedProtocol) -> None:
        self.scratch = memoryview(bytearray(1 << 16))
        super().__init__(self.scratch)
        self._context, self._behind = context, inner

    def _wrapped(self) -> ssl.SSLObject:
        return self._context.wrap_bio(self._to_decrypt, self._to_send, server_side=True)

    def _opened(self) -> asyncio.BufferedProtocol:
        return self._behind

    def receive(self, data: bytes) -> None:
        self.scratch[: len(data)] = data
        self.buffer_updated(len(data))


def test_bytes_are_delivered_after_a_failure_of_the_connection_behind(tmp_path: Path) -> None:
    authority, socket, inner = Authority(tmp_path), Socket(), Stumbling()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.pem("broker"))
    served = Served(context, inner)
    transport: Any = socket
    served.connection_made(transport)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    client = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for _ in range(3):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            served.receive(outgoing.read())
        sent, socket.sent = socket.sent, b""
        incoming.write(sent)
    served.receive(outgoing.read())
    client.write(b"first")
    with pytest.raises(RuntimeError, match="stumbled"):
        served.receive(outgoing.read())
    client.write(b"second")
    served.receive(outgoing.read())
    assert inner.received == b"second"

"""Real connections over a network and in a world that a test drives: what is read and served when is counted.

A request is a header and what the test's handler makes of the rest.  One ``turn`` of the loop is
what asyncio's is: every socket that can be read is read once, then what was due is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from socket import socket
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.config.broker import BrokerConfig
from pybroker.handlers.services import Services
from pybroker.net.connection import Connection
from pybroker.net.fast_paths import FastPaths
from pybroker.net.processor import Processor

READ_BYTES = 256 << 10  # what a socket brings at once
API_KEY = 3


class FakeTransport:
    """The server's end of a socket whose peer is a test."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.sent = bytearray()
        self.unsent_bytes = 0  # as the test says; the peer takes the rest
        self.unread: deque[memoryview] = deque()
        self.is_reading = True
        self.closing = False
        self.connection: Connection = None  # type: ignore[assignment]  # until it is made
        self.socket: socket | None = None  # where a test has one

    def get_extra_info(self, name: str) -> Any:
        return {"peername": (self.host, 1), "socket": self.socket}.get(name)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0 if self.closing else self.unsent_bytes

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, parts: list[Any]) -> None:
        for part in parts:
            self.sent += part

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.closing = True

    abort = close

    def read_once(self) -> None:
        """What asyncio does when the socket is readable."""
        if self.closing:
            return
        if not self.unread or not self.is_reading:
            return
        into = self.connection.get_buffer(-1)
        data = self.unread[0]
        size = min(len(into), len(data), READ_BYTES)
        assert size > 0
        into[:size] = data[:size]
        if size == len(data):
            self.unread.popleft()
        else:
            self.unread[0] = data[size:]
        self.connection.buffer_updated(size)


class FakeApi:
    """One API whose requests are a number of microseconds that the loop is held, and what else a test wants."""

    api_version = 0
    flexible_request = flexible_reply = False

    def __init__(self, handle: Callable[[Any, memoryview], Any], api_key: int = API_KEY) -> None:
        self.api_key = api_key
        self.handle = handle

    def decode(self, frame: memoryview, pos: int) -> tuple[memoryview, int]:
        return frame[pos:], len(frame)

    def decode_in_steps(self, frame: memoryview, pos: int) -> Generator[None, None, tuple[memoryview, int]]:
        yield
        return self.decode(frame, pos)

    def encode(self, response: bytes, parts: list[Any]) -> None:
        parts.append(memoryview(response))

    def encode_in_steps(self, response: bytes, parts: list[Any]) -> Generator[int, None, None]:
        yield 0
        self.encode(response, parts)


class FakeNetwork:
    """A ``Processor`` with connections that tests make, and no listener."""

    def __init__(self, patch: pytest.MonkeyPatch, settings: dict[str, str] | None = None) -> None:
        self.world = VirtualWorld(1, has_threads=False)
        patch.setattr(FastPaths, "learn_waiting", lambda *_: None)  # a request is no message here
        config = BrokerConfig.load(listen=[], settings=list((settings or {}).items()))
        self.processor = Processor(self.world.env, Services(), config)
        self.transports: list[FakeTransport] = []
        self.serve(self._hold_the_loop)

    def serve(self, handle: Callable[[Any, memoryview], Any], api_key: int = API_KEY) -> None:
        """Have requests of the key handled so."""
        self.processor.dispatcher.served[api_key << 16] = FakeApi(handle, api_key)  # type: ignore[assignment]

    def _hold_the_loop(self, _: Any, request: memoryview) -> bytes:
        self.world.clock.pass_ns(int.from_bytes(request[:4], "big") * 1_000)
        return b""

    def connect(self, host: str = "10.0.0.1") -> FakeTransport:
        transport = FakeTransport(host)
        transport.connection = Connection(self.processor, "PLAINTEXT")
        transport.connection.connection_made(transport)  # type: ignore[arg-type]
        self.transports.append(transport)
        return transport

    def turn(self) -> None:
        """One turn of the loop."""
        for transport in list(self.transports):
            if transport.closing:
                self.transports.remove(transport)
                transport.connection.connection_lost(None)
            else:
                transport.read_once()
        self.world.turn()

    def pass_ms(self, ms: int) -> None:
        """Nothing but timers."""
        self.world.clock.pass_ms(ms)
        self.world.turn()


def frame(body: bytes, api_key: int = API_KEY, correlation_id: int = 0) -> bytes:
    """One request without a client id."""
    header = (api_key << 16).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + b"\xff\xff"
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def work(us: int, size: int = 4) -> bytes:
    """A request that holds the loop for so long, of ``size`` bytes behind its header."""
    return frame(us.to_bytes(4, "big") + bytes(size - 4))


def post(transport: FakeTransport, *frames: bytes) -> None:
    """What the peer sends."""
    if data := b"".join(frames):
        transport.unread.append(memoryview(data))


def replies(transport: FakeTransport) -> int:
    """How many replies were sent, each without a body."""
    return len(transport.sent) // 8

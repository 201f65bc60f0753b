"""A simulated client's way to the broker: requests over one connection, retries, time-outs.

Owns: correlation, reconnecting, FindCoordinator's patience.  Owns no protocol of any client (``actors``).

Invariant: replies come in the order of their requests; anything else is a violation.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.wire import WrongReply, api_key_of, read_reply, request_frame

from pybroker_protocol.schema import Request
from tests.simulation.model import Violation
from tests.simulation.processes import PORT

if TYPE_CHECKING:
    from tests.simulation.network import Address, End, Network


HOST = "10.0.0.254"  # of a broker that is alone
BROKER = HOST, PORT


class Disconnected(Exception):
    """No connection, or it went away, or the reply did not come in time: nobody knows what became of the request."""


class ClientConnection:
    """One connection; several requests may be on their way."""

    def __init__(self, name: str, network: Network, address: Address = BROKER) -> None:
        self.name = name
        self.closed = False
        self._scheduler = network.scheduler
        self._correlation_id = 0
        self._expected: deque[tuple[int, int, int, asyncio.Future[Any], Any]] = deque()
        self._received = bytearray()
        self._end: End | None = network.connect(self, address)
        if self._end is None:
            raise Disconnected("nobody listens")
        self.server = self._end.peer.life

    def send(self, request: Request, version: int, timeout_ms: int = 10_000) -> asyncio.Future[Any]:
        """Send; the future gets the response, or ``Disconnected``."""
        cls = type(request)
        self._correlation_id += 1
        frame = request_frame(request, version, self._correlation_id, self.name)
        future = self._scheduler.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.closed or self._end is None:
            future.set_exception(Disconnected("closed"))
            return future
        timer = self._scheduler.call_later(timeout_ms / 1000, self._timed_out, future)
        self._expected.append((self._correlation_id, api_key_of(cls), version, future, timer))
        self._scheduler.trace(self.name, f"-> {cls.__name__} v{version} #{self._correlation_id}")
        self._end.write(frame)
        return future

    def _timed_out(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            self._scheduler.trace(self.name, "timed out, closes the connection")
            self.close()

    def close(self) -> None:
        """Close our end; what is on its way may still arrive."""
        end, self._end = self._end, None
        if end is not None:
            end.hang_up()
        self.connection_lost(None)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 4:
            size = struct.unpack_from(">i", received)[0]
            if len(received) < 4 + size:
                return
            frame = bytes(received[4 : 4 + size])
            del received[: 4 + size]
            self._reply(frame)

    def _reply(self, frame: bytes) -> None:
        if not self._expected:
            raise Violation("replies in order", f"{self.name} got a reply to nothing")
        correlation_id, api_key, version, future, timer = self._expected.popleft()
        try:
            response = read_reply(api_key, version, frame, correlation_id)
        except WrongReply as wrong:
            raise Violation("replies in order", f"{self.name}: {wrong}") from None
        timer.cancel()
        errors = ",".join(str(code) for code in _errors_in(response))
        told = f"<- {type(response).__name__} #{correlation_id}"
        self._scheduler.trace(self.name, f"{told} error {errors}" if errors else told)
        if not future.done():
            future.set_result(response)

    def connection_lost(self, _error: Exception | None) -> None:
        self.closed = True
        self._end = None
        expected, self._expected = self._expected, deque()
        for *_, future, timer in expected:
            timer.cancel()
            if not future.done():
                future.set_exception(Disconnected("the connection is gone"))


def _errors_in(message: Any) -> list[int]:
    """Every error code in a response, for the trace."""
    found = []
    for name, is_code in _fields_of(message.__class__):
        value = getattr(message, name, None)
        if is_code:
            found += [int(value)] if value else []
        elif value.__class__ is list and value:
            for item in value:
                found += _errors_in(item)
    return found


@cache
def _fields_of(cls: type) -> tuple[tuple[str, bool], ...]:
    return tuple((name, name.endswith("error_code")) for name in getattr(cls, "__slots__", ()))


class Client:
    """Connects when it must; ``ask`` is one try, ``insist`` tries until there is a reply."""

    def __init__(self, name: str, network: Network, address: Address = BROKER) -> None:
        self.name = name
        self.network = network
        self.scheduler = network.scheduler
        self._address = address
        self._connection: ClientConnection | None = None

    def connection(self) -> ClientConnection:
        """The open connection, a new one if need be.  Raises ``Disconnected``."""
        if self._connection is None or self._connection.closed:
            self._connection = ClientConnection(self.name, self.network, self._address)
        return self._connection

    def send(self, request: Request, version: int, timeout_ms: int = 10_000) -> asyncio.Future[Any]:
        """Send at once; the future gets the response, or ``Disconnected``."""
        try:
            return self.connection().send(request, version, timeout_ms)
        except Disconnected as error:
            return self._failed(str(error))

    def _failed(self, why: str) -> asyncio.Future[Any]:
        future = self.scheduler.create_future()
        future.set_exception(Disconnected(why))
        future.exception()  # told, whether anybody asks or not
        return future

    async def ask(self, request: Request, version: int, timeout_ms: int = 10_000) -> Any:
        """The response, or ``Disconnected``."""
        return await self.send(request, version, timeout_ms)

    async def insist(self, request: Request, version: int, timeout_ms: int = 10_000) -> Any:
        """The response, after as many tries as it takes."""
        while True:
            try:
                return await self.ask(request, version, timeout_ms)
            except Disconnected:
                await self.sleep(100)

    def saw_epoch(self, partition: tuple[str, int], epoch: int) -> None:
        """A leader epoch of a partition was told beside the metadata."""

    @property
    def server_has_died(self) -> bool:
        """Whether the last reply was sent by a process that has ended since."""
        return self._connection is None or self._connection.server is None or self._connection.server.ended

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def sleep(self, delay_ms: float) -> None:
        future = self.scheduler.create_future()
        self.scheduler.call_later(delay_ms / 1000, future.set_result, None)
        await future

"""Messages of ``pybroker_protocol`` in frames, and a blocking client that sends them.

Shared by pybroker's own tests, the simulation and the benchmark, which ask what a broker does and take the wire for
granted.  What asks whether the wire is right does not use it: the comparator and the traps encode by themselves
(``comparator.encoding``, ``comparator.wire``), and the wait for a broker's start writes its frames by hand.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

from harness.sockets import REPLY_TIMEOUT_S, FrameConnection
from pybroker_protocol import codec
from pybroker_protocol.messages import request_header_version, response_class, response_header_version
from pybroker_protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker_protocol.schema import Buffer, Message, Request

LENGTH = struct.Struct(">i")


def api_key_of(request: type[Request]) -> int:
    key = request.__declaration__.key
    assert key is not None, "requests have keys"
    return key


def request_frame(request: Request, version: int, correlation_id: int = 1, client_id: str | None = "test") -> bytes:
    """A whole request frame, its length first."""
    key = api_key_of(type(request))
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    body = codec.encode(header, request_header_version(key, version)) + codec.encode(request, version)
    return LENGTH.pack(len(body)) + body


def reply_frame(api_key: int, response: Message, version: int, correlation_id: int = 1) -> bytes:
    """A whole reply frame, its length first."""
    header = ResponseHeader(correlation_id=correlation_id)
    body = codec.encode(header, response_header_version(api_key, version)) + codec.encode(response, version)
    return LENGTH.pack(len(body)) + body


class WrongReply(Exception):
    """A reply that is not to the request whose turn it is."""


def read_reply(api_key: int, version: int, payload: Buffer, correlation_id: int = 1) -> Any:
    """The message of a reply frame without its length; raises ``WrongReply``."""
    view = memoryview(payload)
    answered = int.from_bytes(view[:4], "big", signed=True)
    if answered != correlation_id:
        raise WrongReply(f"the reply is to request {answered}, not to {correlation_id}")
    _, start = codec.decoder(ResponseHeader, response_header_version(api_key, version))(view, 0)
    message, _ = codec.decoder(response_class(api_key), version)(view, start)
    return message


class Client(FrameConnection):
    """One connection; replies come in the order of the requests, and may be read later than sent."""

    def __init__(
        self,
        address: tuple[str, int],
        timeout_s: float = REPLY_TIMEOUT_S,
        client_id: str | None = "test",
        source: str | None = None,
    ) -> None:
        super().__init__(address, timeout_s, source)
        self._client_id = client_id
        self._correlation_id = 0
        self._expected: deque[tuple[int, int, int]] = deque()

    def post(self, *requests: Request, version: int) -> None:
        """Send requests in one piece; the replies, if there are any, are left to ``receive_payload``."""
        self.send_raw(b"".join(self.frame(request, version) for request in requests))

    def send(self, request: Request, version: int) -> None:
        """Send, and remember which reply will come."""
        self.send_raw(self.frame(request, version))
        self._expected.append((self._correlation_id, api_key_of(type(request)), version))

    def receive(self) -> Any:
        """The reply to the oldest unanswered request; ``None`` when the broker closed the connection."""
        correlation_id, api_key, version = self._expected.popleft()
        payload = self.receive_payload()
        return None if payload is None else read_reply(api_key, version, payload, correlation_id)

    def ask(self, request: Request, version: int) -> Any:
        """Send one request and wait for its reply."""
        self.send(request, version)
        return self.receive()

    def frame(self, request: Request, version: int) -> bytes:
        """The frame of the next request of this connection, its length first, for whoever changes it."""
        self._correlation_id += 1
        return request_frame(request, version, self._correlation_id, self._client_id)

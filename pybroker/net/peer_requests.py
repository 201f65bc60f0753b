"""Requests to other brokers: how one is encoded and its reply read, and what is kept of it meanwhile.

Owns: the header of such requests and of their replies, and the functions of each API and version, made at their first
use.  Owns no connection (``peer_connection``), no order and no time (``peer_link``).

Kafka counterpart: ClientRequest and NetworkClient.parseResponse.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from pybroker_protocol import codec
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages import request_header_version, response_class, response_header_version
from pybroker_protocol.messages.headers import RequestHeader, ResponseHeader

if TYPE_CHECKING:
    from collections.abc import Generator

    from pybroker.cluster.membership.peers import PeerDone
    from pybroker_protocol.schema import Request

_LENGTH = struct.Struct(">i").pack
_CORRELATION_ID = struct.Struct(">i").unpack_from
_CORRELATION_ID_BYTES = 4
_CORRELATION_IDS = 1 << 31  # they begin anew behind the largest int32


class PeerApi:
    """One version of one API, as this broker asks another for it."""

    __slots__ = ("_decode", "_decode_header", "_encode", "_encode_header", "key", "version")

    def __init__(self, request_class: type[Request], version: int) -> None:
        key = request_class.__declaration__.key
        assert key is not None, "requests have keys"
        self.key = key
        self.version = version
        self._encode_header = codec.encoder(RequestHeader, request_header_version(key, version))
        self._encode = codec.encoder(request_class, version)
        self._decode_header = codec.decoder(ResponseHeader, response_header_version(key, version))
        self._decode = codec.decoder(response_class(key), version)

    def frame(self, request: Request, correlation_id: int, client_id: str) -> bytes:
        """The whole frame, its length first; ValueError for what the version cannot express."""
        header = RequestHeader(
            request_api_key=self.key,
            request_api_version=self.version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
        parts: list[Any] = [b""]
        self._encode_header(header, parts)
        self._encode(request, parts)
        parts[0] = _LENGTH(sum(map(len, parts)))
        return b"".join(parts)

    def response(self, frame: memoryview, correlation_id: int) -> Any:
        """The response in a reply frame without its length; ``records`` in it are views of ``frame``.

        Raises ``ProtocolError`` for what is no reply to the request of that correlation id.
        """
        response, end = self._decode(frame, self._body_of(frame, correlation_id))
        self._check_end(frame, end)
        return response

    def response_in_steps(self, frame: bytes, correlation_id: int) -> Generator[None, None, Any]:
        """``response`` of what may be very long: a generator that stops after every few elements of arrays."""
        view = memoryview(frame)
        steps = codec.decoder_in_steps(response_class(self.key), self.version)
        response, end = yield from steps(view, self._body_of(view, correlation_id))
        self._check_end(view, end)
        return response

    def _body_of(self, frame: memoryview, correlation_id: int) -> int:
        """Where the response begins behind the header."""
        if len(frame) < _CORRELATION_ID_BYTES:
            raise ProtocolError(f"a reply of {len(frame)} bytes has no header")
        answered = _CORRELATION_ID(frame)[0]
        if answered != correlation_id:
            raise ProtocolError(f"a reply to request {answered} in the place of that to {correlation_id}")
        _, pos = self._decode_header(frame, 0)
        return pos

    def _check_end(self, frame: memoryview, end: int) -> None:
        if end != len(frame):
            raise ProtocolError(f"{len(frame) - end} bytes behind a reply of API {self.key} version {self.version}")


class PeerRequest:
    """One request that is not answered yet.  ``sent``: its bytes were handed to a connection."""

    __slots__ = ("api", "correlation_id", "deadline_ms", "done", "frame", "sent", "size")

    def __init__(self, api: PeerApi, correlation_id: int, frame: bytes, deadline_ms: int, done: PeerDone) -> None:
        self.api = api
        self.correlation_id = correlation_id
        self.frame = frame  # empty once it is handed over: the transport keeps what it needs
        self.size = len(frame)
        self.deadline_ms = deadline_ms
        self.done = done
        self.sent = False


class PeerEncoder:
    """Frames of requests by their classes and versions, with growing correlation ids."""

    __slots__ = ("_apis", "_client_id", "_correlation_id")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._apis: dict[tuple[type[Request], int], PeerApi] = {}
        self._correlation_id = 0

    def encode(self, request: Request, version: int, deadline_ms: int, done: PeerDone) -> PeerRequest:
        """The request, ready to be sent; ValueError for what the version cannot express."""
        request_class = type(request)
        api = self._apis.get((request_class, version))
        if api is None:
            api = self._apis[request_class, version] = PeerApi(request_class, version)
        correlation_id = self._correlation_id
        frame = api.frame(request, correlation_id, self._client_id)
        self._correlation_id = (correlation_id + 1) % _CORRELATION_IDS
        return PeerRequest(api, correlation_id, frame, deadline_ms, done)

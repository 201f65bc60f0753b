"""The requests of one connection: from a frame to what its handler gives back.

Owns: the header of a request, its decoding, the call of its handler and what becomes of each kind of answer.  Owns the
client's name, and the context of handlers, too.  Does not own the order of replies (``reply_order``), how requests are
served that take long (``long_requests``), nor what a request means (the handlers).

Invariant: a view of a request dies when its handler returns, unless the handler holds the buffer (``hold_request``).

Kafka counterpart: RequestContext.parseRequest and KafkaRequestHandler.
"""

from __future__ import annotations

import logging
import struct
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from pybroker import limits
from pybroker.handlers.context import NO_REPLY, CloseConnection, Parked, RequestContext
from pybroker.net import fast_paths
from pybroker.net.dispatch import API_VERSIONS_KEY, UnknownApiKey, UnsupportedApiVersion
from pybroker.net.long_requests import UNFINISHED, LongRequest, Requester, decoded_and_handled
from pybroker.net.reply_order import Replier
from pybroker_protocol.codec import skip_tagged_fields
from pybroker_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from pybroker.handlers.services import Services
    from pybroker.net.dispatch import Dispatcher, ServedApi
    from pybroker.net.fast_paths import FastPaths
    from pybroker.net.long_requests import LongRequests

log = logging.getLogger(__name__)

_REQUEST_HEADER = struct.Struct(">Iih").unpack_from  # key and version as one number, correlation id, client id length
_CLIENT_ID_AT = 10


class Channel(Requester, Replier, Protocol):
    """What requests come from: a connection."""

    @property
    def peer_host(self) -> str: ...

    @property
    def principal(self) -> str: ...


class Requests:
    """``client_id`` is that of the last request."""

    __slots__ = (
        "_client_id_raw",
        "_connection",
        "_context",
        "_dispatcher",
        "_fast_paths",
        "_listener",
        "_long_requests",
        "_services",
        "client_id",
    )

    def __init__(
        self,
        connection: Channel,
        listener: str,
        services: Services,
        dispatcher: Dispatcher,
        long_requests: LongRequests,
        fast_paths: FastPaths,
    ) -> None:
        self._connection = connection
        self._listener = listener
        self._services = services
        self._dispatcher = dispatcher
        self._long_requests = long_requests
        self._fast_paths = fast_paths
        self._client_id_raw = b""
        self.client_id: str | None = ""
        self._context = self._new_context()

    def serve(self, frame: memoryview) -> None:
        """Decode one request, run its handler, and send, park or drop the reply."""
        connection = self._connection
        if len(frame) < _CLIENT_ID_AT:
            connection.refuse(f"a request of {len(frame)} bytes has no header")
            return
        key_and_version, correlation_id, client_id_bytes = _REQUEST_HEADER(frame)
        context = self._context
        try:
            api = self._dispatcher.served.get(key_and_version) or self._dispatcher.resolve(key_and_version)
            pos = _CLIENT_ID_AT + client_id_bytes if client_id_bytes > 0 else _CLIENT_ID_AT
            if frame[_CLIENT_ID_AT:pos] != self._client_id_raw or client_id_bytes <= 0:
                self._learn_client_id(frame, client_id_bytes)
            if api.flexible_request:
                pos = pos + 1 if frame[pos] == 0 else skip_tagged_fields(frame, pos)
            # Bytes behind the last field are ignored, as Kafka does: librdkafka's Metadata for all topics has three.
            is_large = len(frame) > self._long_requests.whole_frame_bytes
            if is_large:
                request, end, frame = None, 0, _to_be_held(frame)
            else:
                request, end = api.decode(frame, pos)
            if end > len(frame):
                raise ProtocolError("the frame ends inside of its header")
        except (ProtocolError, struct.error, IndexError, UnicodeDecodeError, UnknownApiKey) as error:
            connection.refuse(str(error))
            return
        except UnsupportedApiVersion as error:
            self._answer_unsupported_version(error, correlation_id)
            return
        context.api_key = api.api_key
        context.api_version = api.api_version
        context.correlation_id = correlation_id
        context.client_id = self.client_id
        try:
            response = decoded_and_handled(api, frame, pos, context) if is_large else api.handle(context, request)
            if response.__class__ is GeneratorType:
                response = self._begin_long(api, correlation_id, response, len(frame), is_large)
        except Exception as error:
            self._fail(request, error)
            return
        if response.__class__ is Parked:
            parked, response = response, response.response
            if response is None or response is NO_REPLY:
                if api.api_key in fast_paths.KEYS_THAT_WAIT and not is_large and not parked.completed:
                    self._fast_paths.learn_waiting(connection, context, api, request, frame)
                self._park(api, correlation_id, parked, len(frame))
                return
        elif response is None or response is UNFINISHED:
            return
        if (
            api.api_key in fast_paths.KEYS
            and not is_large
            and self._fast_paths.learn(connection, context, api, request, response, frame)
        ):
            self._context = self._new_context()
        connection.reply(api, correlation_id, response)

    @property
    def client(self) -> tuple[str, str | None]:
        """The principal and the client id of what is served, or was served last."""
        return self._context.principal, self.client_id

    @property
    def client_id_bytes(self) -> int:
        """How long the client id is that is remembered."""
        return len(self._client_id_raw)

    def serve_by(self, dispatcher: Dispatcher) -> None:
        """What may be asked for from now on."""
        self._dispatcher = dispatcher

    def forget(self) -> None:
        """There will be no further request: without what refers to it the connection's memory goes at once."""
        del self._connection, self._context

    def _begin_long(self, api: ServedApi, correlation_id: int, steps: Any, frame_bytes: int, is_large: bool) -> Any:
        """Serve in steps for a share of this turn: what a handler returns, or UNFINISHED, and the rest comes later."""
        request = LongRequest(self._long_requests, self._connection, api, steps, frame_bytes, is_large)
        response = request.begin()
        if response is UNFINISHED:
            self._park(api, correlation_id, request.parked, frame_bytes)
            request.wait_or_queue()
        return response

    def _fail(self, request: Any, error: Exception) -> None:
        """A request that cannot be served ends its connection; what is no fault of its client is logged."""
        if isinstance(error, (CloseConnection, ProtocolError)):
            self._connection.refuse(str(error))
            return
        name = request.__class__.__name__
        log.error("handler of %s failed; closing the connection of %s", name, self._connection, exc_info=error)
        self._connection.close()

    def _park(self, api: ServedApi, correlation_id: int, parked: Parked, frame_bytes: int) -> None:
        """Wait for the reply; the context belongs to the parked request from now on."""
        self._context = self._new_context()
        self._connection.park(api, correlation_id, parked, frame_bytes)

    def _learn_client_id(self, frame: memoryview, client_id_bytes: int) -> None:
        """Decode the header's client id; remembered, because a client sends the same one with every request."""
        if client_id_bytes <= 0:
            if client_id_bytes < -1:
                raise ProtocolError(f"a client id of {client_id_bytes} bytes")
            self._client_id_raw = b""
            self.client_id = "" if client_id_bytes == 0 else None
            return
        raw = bytes(frame[_CLIENT_ID_AT : _CLIENT_ID_AT + client_id_bytes])
        if len(raw) != client_id_bytes:
            raise ProtocolError("the frame ends inside of the client id")
        self.client_id = raw.decode()
        self._client_id_raw = raw

    def _new_context(self) -> RequestContext:
        context = RequestContext()
        context.services = self._services
        context.client_host = self._connection.peer_host
        context.listener = self._listener
        context.principal = self._connection.principal
        context.connection = self._connection
        return context

    def _answer_unsupported_version(self, error: UnsupportedApiVersion, correlation_id: int) -> None:
        """ApiVersions in a version of the future gets error 35 in the oldest body; any other request, a closed door."""
        if error.api.key != API_VERSIONS_KEY:
            self._connection.refuse(str(error))
            return
        api = self._dispatcher.resolve(API_VERSIONS_KEY << 16)
        from pybroker.handlers.api_versions import unsupported_version

        self._connection.reply(api, correlation_id, unsupported_version())


def _to_be_held(frame: memoryview) -> memoryview:
    """A frame that is decoded in steps, however long; of a crowd each would hold a buffer that all share."""
    return memoryview(bytearray(frame)) if len(frame) <= limits.WHOLE_FRAME_BYTES else frame

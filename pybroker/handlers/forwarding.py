"""Requests that only the active controller can do, at a broker whose controller is not active (KIP-590).

Owns: the envelope of a client's request, how often and for how long it is tried, and the answer to a client that could
not be served.  Does not own where the active controller is (``cluster/membership/controller_channel``), no connection
(``cluster/membership/peers``) and no request's meaning: a module that is routed to the controller
(``Route.CONTROLLER``) has, beside ``handle``,

    def refuse(ctx, request, error: ErrorCode) -> response      # nothing of it was done, for this reason
    def split(ctx, request) -> steps: (request | None, merge)   # optional: what this broker does by itself is done; the
                                                                # rest, and ``merge(response to it)`` is the response

    REPEATABLE = False      # optional: what may have been done already must not be asked a second time

Invariants: NOT_CONTROLLER reaches no client, unless a part of its request was done before the controller changed; the
permissions are asked where the request is done. A request whose connection broke is asked again, as in Kafka, though it
may have been done. It changes nothing then, but its client may hear that the topic exists already.

A client's message is encoded anew, in its own version and with its own header, so that none of its bytes are kept.

Kafka counterpart: ForwardingManager and NodeToControllerRequestThread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from pybroker import limits
from pybroker.cluster.membership.peers import PeerFailure
from pybroker.handlers.context import CloseConnection, Parked, RequestContext, Steps
from pybroker_protocol.codec import ProtocolError, decoder, decoder_in_steps, encode, encoder_in_steps
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import request_header_version, response_class, response_header_version
from pybroker_protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker_protocol.schema import Message, Request, Struct

if TYPE_CHECKING:
    from pybroker.cluster.membership.controller_channel import ControllerChannel
    from pybroker.cluster.membership.peers import PeerError
    from pybroker.handlers.context import HeldRequest
    from pybroker.handlers.services import Services
    from pybroker_protocol.messages.envelope import EnvelopeResponse

# How long a client's request is tried to be forwarded to the active controller where the client does not say, and at
# most (``request.timeout.ms`` and ``default.api.timeout.ms`` of Kafka's clients); how often, while no controller takes
# it; and how much longer an answer is waited for, so that the controller's own that time is over comes first.
FORWARD_TIMEOUT_MS = 30_000
FORWARD_TIMEOUT_MAX_MS = 60_000
FORWARD_RETRY_MS = 50
FORWARD_GRACE_MS = 1_000


class ControllerHandler(Protocol):
    """A module of handlers whose requests are routed to the controller."""

    def handle(self, ctx: RequestContext, request: Any, /) -> Any: ...

    def refuse(self, ctx: RequestContext, request: Any, error: ErrorCode, /) -> Any: ...


Split = Callable[[RequestContext, Any], Steps]


class Forwarder:
    """``Services.forwarder`` of a broker that is not alone."""

    __slots__ = ("_channel", "_services")

    def __init__(self, services: Services, channel: ControllerChannel) -> None:
        self._services = services
        self._channel = channel

    def handle(self, handler: ControllerHandler, ctx: RequestContext, request: Request) -> Steps:
        """Have the request done, here or elsewhere, and answer it."""
        split: Split | None = getattr(handler, "split", None)
        if split is None or self._channel.holder() == self._services.broker_id:
            return (yield from self._done(handler, ctx, request))
        rest, merge = yield from split(ctx, request)
        return merge(None if rest is None else (yield from self._done(handler, ctx, rest)))

    def _done(self, handler: ControllerHandler, ctx: RequestContext, request: Request) -> Steps:
        clock = self._services.env.clock
        deadline_ms = clock.monotonic_ms() + _timeout_ms(request)
        frame: bytes | None = None
        held: HeldRequest | None = None
        try:
            while True:
                holder = self._channel.holder()
                if holder == self._services.broker_id:
                    response = yield from done_here(handler, ctx, request)
                    if not (yield from is_for_another_controller(response)):
                        return response
                elif holder is not None:
                    if frame is None:
                        frame = yield from _frame(ctx, request)
                        held = ctx.connection.hold_copy(len(frame))
                    try:
                        sent = self._sent(holder, ctx, frame, max(deadline_ms - clock.monotonic_ms(), 0))
                    except ValueError:  # sent all the same it would break the connection, and what waits behind it
                        return handler.refuse(ctx, request, ErrorCode.MESSAGE_TOO_LARGE)
                    answer, error = yield sent
                    if answer is not None and answer.error_code != ErrorCode.NOT_CONTROLLER:
                        return (yield from self._response(handler, ctx, request, answer))
                    if error is not None and error.may_be_done and not _may_repeat(handler, error):
                        return handler.refuse(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
                rest_ms = deadline_ms - clock.monotonic_ms()
                if rest_ms <= 0:
                    return handler.refuse(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
                yield self._pause(min(rest_ms, FORWARD_RETRY_MS))
        finally:
            if held is not None:
                held.release()

    def _sent(self, holder: int, ctx: RequestContext, frame: bytes, rest_ms: int) -> Parked:
        """Send it; the pair of an ``EnvelopeResponse`` and a ``PeerError``, of which one is None.

        ValueError for what is too long to be sent.
        """
        sent = Parked()

        def done(response: Any | None, error: PeerError | None) -> None:
            sent.complete((response, error))

        # The controller's own answer that time is over comes first, as long as there is a controller.
        timeout_ms = rest_ms + FORWARD_GRACE_MS
        self._services.peers.forward(
            holder, frame, ctx.principal, ctx.client_host, done, timeout_ms=timeout_ms, by_token=ctx.by_token
        )
        return sent

    def _pause(self, pause_ms: int) -> Parked:
        pause = Parked()
        timer = self._services.env.timers.call_later(pause_ms, pause.complete, None)
        pause.on_abandon = timer.cancel
        return pause

    def _response(
        self, handler: ControllerHandler, ctx: RequestContext, request: Request, answer: EnvelopeResponse
    ) -> Steps:
        """What the other broker answered, as a response of this one."""
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise CloseConnection("the active controller does not know the request's version")
        if answer.error_code == ErrorCode.INVALID_REQUEST:  # nothing that it does: it is of an older version
            return handler.refuse(ctx, request, ErrorCode.UNSUPPORTED_VERSION)
        if answer.error_code or answer.response_data is None:
            return handler.refuse(ctx, request, ErrorCode.UNKNOWN_SERVER_ERROR)
        frame = memoryview(answer.response_data)
        try:
            header_version = response_header_version(ctx.api_key, ctx.api_version)
            _, pos = decoder(ResponseHeader, header_version)(frame, 0)
            return (yield from decoded(response_class(ctx.api_key), ctx.api_version, frame, pos))
        except ProtocolError:
            return handler.refuse(ctx, request, ErrorCode.UNKNOWN_SERVER_ERROR)


def _may_repeat(handler: ControllerHandler, error: PeerError) -> bool:
    return error.reason is PeerFailure.DISCONNECTED and getattr(handler, "REPEATABLE", True)


def done_here(handler: ControllerHandler, ctx: RequestContext, request: Any) -> Steps:
    """The response of this broker's own controller."""
    response = handler.handle(ctx, request)
    if response.__class__ is GeneratorType:
        response = yield from response
    if response.__class__ is Parked:
        response = yield response
    return response


def is_for_another_controller(response: Message) -> Steps:
    """Whether nothing of a request was done because this broker's controller is not, or no longer, the active one."""
    codes: set[int] = set()
    looked_at: list[Struct] = [response]
    while looked_at:
        struct = looked_at.pop()
        elements = [element for element in _elements(struct) if isinstance(element, Struct)]
        looked_at += elements
        code = getattr(struct, "error_code", None)
        # That there is no error of the whole says nothing of its parts.
        if code is not None and (code or struct is not response or not elements):
            codes.add(code)
        yield
    return ErrorCode.NOT_CONTROLLER in codes and ErrorCode.NONE not in codes


def _elements(struct: Struct) -> Iterator[Any]:
    for name in type(struct).__declaration__.fields:
        value = getattr(struct, name)
        if isinstance(value, list):
            yield from value


def _timeout_ms(request: Request) -> int:
    """How long a client waits, as far as it says so."""
    asked_ms: int = getattr(request, "timeout_ms", FORWARD_TIMEOUT_MS)
    return min(max(asked_ms, 0), FORWARD_TIMEOUT_MAX_MS)


# --- frames ----------------------------------------------------------------------------------------------------------


def _frame(ctx: RequestContext, request: Request) -> Steps:
    """The client's request as it came, without its length."""
    header = RequestHeader(
        request_api_key=ctx.api_key,
        request_api_version=ctx.api_version,
        correlation_id=ctx.correlation_id,
        client_id=ctx.client_id,
    )
    return (yield from encoded(header, request_header_version(ctx.api_key, ctx.api_version), request, ctx.api_version))


def decoded(
    message_class: type[Message], version: int, frame: memoryview, pos: int, elements_max: int | None = None
) -> Steps:
    """The message that begins at ``pos``; in steps where it is long.  Raises ``ProtocolError``."""
    if len(frame) <= limits.WHOLE_FRAME_BYTES:
        message, end = decoder(message_class, version)(frame, pos)
    else:
        message, end = yield from decoder_in_steps(message_class, version, elements_max)(frame, pos)
    if end > len(frame):
        raise ProtocolError("the frame ends inside of its header")
    return message


def encoded(header: Message, header_version: int, message: Message, version: int) -> Steps:
    """Both, one behind the other, as bytes."""
    parts: list[Any] = [encode(header, header_version)]
    for _ in _encoder_in_steps(type(message), version)(message, parts):
        yield
    return b"".join(parts)


@cache
def _encoder_in_steps(message_class: type[Message], version: int) -> Any:
    return encoder_in_steps(message_class, version)

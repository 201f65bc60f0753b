"""Envelope (key 58): a client's request that another broker forwards to the active controller (KIP-590).

Behaviour: the request inside is done as if its client had sent it here: with that client's principal, id, host and
version.  Only requests that are routed to the controller may be inside.  NOT_CONTROLLER, and nothing done, where this
broker's controller is not the active one; its broker asks again, elsewhere.
"""

from __future__ import annotations

import struct
from importlib import import_module
from ipaddress import ip_address
from typing import Any, ClassVar, Final

from pybroker.apis import BY_KEY, Api, Route
from pybroker.handlers.context import RequestContext, Steps
from pybroker.handlers.forwarding import decoded, done_here, encoded, is_for_another_controller
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode, ProtocolError
from pybroker_protocol.messages import request_class, request_header_version, response_header_version
from pybroker_protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from pybroker_protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker_protocol.messages.principal import DefaultPrincipalData

_KEY_AND_VERSION: Final = struct.Struct(">hh")
_PRINCIPAL_VERSION: Final = struct.Struct(">h")


class ForwardedContext(RequestContext):
    """The surroundings of a request that came in an envelope."""

    __slots__ = ("_by_token",)
    is_forwarded: ClassVar[bool] = True

    def __init__(self, principal: str, *, by_token: bool) -> None:
        self.principal = principal
        self._by_token = by_token

    @property
    def by_token(self) -> bool:
        return self._by_token


class _Refused(Exception):
    """The envelope's own error."""

    def __init__(self, error: ErrorCode) -> None:
        self.error = error


def handle(ctx: RequestContext, request: EnvelopeRequest) -> Steps:
    """Do what is inside."""
    try:
        return (yield from _handle(ctx, request))
    except _Refused as refused:
        return EnvelopeResponse(response_data=None, error_code=refused.error)


def _handle(ctx: RequestContext, request: EnvelopeRequest) -> Steps:
    if not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        raise _Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    inner = _client(request.request_principal)
    inner.services, inner.connection, inner.listener = ctx.services, ctx.connection, ctx.listener
    inner.client_host = _host(request.client_host_address)
    frame = memoryview(request.request_data)
    api, pos = _header(inner, frame)
    try:
        message = yield from decoded(request_class(api.key), inner.api_version, frame, pos, api.elements_max)
    except ProtocolError as error:
        raise _Refused(ErrorCode.UNSUPPORTED_VERSION) from error
    if not ctx.services.controller.is_active:
        raise _Refused(ErrorCode.NOT_CONTROLLER)
    handler: Any = import_module(f"pybroker.handlers.{api.handler}")
    response = yield from done_here(handler, inner, message)
    if (yield from is_for_another_controller(response)):
        raise _Refused(ErrorCode.NOT_CONTROLLER)
    header = ResponseHeader(correlation_id=inner.correlation_id)
    header_version = response_header_version(api.key, inner.api_version)
    data = yield from encoded(header, header_version, response, inner.api_version)
    return EnvelopeResponse(response_data=data, error_code=ErrorCode.NONE)


def _header(inner: RequestContext, frame: memoryview) -> tuple[Api, int]:
    """Read the header of the request inside into its context; which API it asks for, and where its body begins."""
    if len(frame) < _KEY_AND_VERSION.size:
        raise _Refused(ErrorCode.UNSUPPORTED_VERSION)
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    api = BY_KEY.get(key)
    if api is None or api.routed_to is not Route.CONTROLLER:
        raise _Refused(ErrorCode.INVALID_REQUEST)
    if not api.versions[0] <= version <= api.versions[1]:
        raise _Refused(ErrorCode.UNSUPPORTED_VERSION)
    try:
        header, pos = codec.decoder(RequestHeader, request_header_version(key, version))(frame, 0)
    except ProtocolError as error:
        raise _Refused(ErrorCode.UNSUPPORTED_VERSION) from error
    inner.api_key, inner.api_version = key, version
    inner.correlation_id, inner.client_id = header.correlation_id, header.client_id
    return api, pos


def _client(data: bytes | None) -> ForwardedContext:
    """Whose request it is, out of Kafka's default form of a principal."""
    try:
        if data is None or len(data) < _PRINCIPAL_VERSION.size or _PRINCIPAL_VERSION.unpack_from(data)[0] != 0:
            raise ProtocolError("no principal")
        principal = codec.decode(DefaultPrincipalData, 0, data[_PRINCIPAL_VERSION.size :])
    except ProtocolError as error:
        raise _Refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from error
    return ForwardedContext(f"{principal.type}:{principal.name}", by_token=principal.token_authenticated)


def _host(address: bytes) -> str:
    """As ``RequestContext`` has it."""
    try:
        return f"/{ip_address(address)}"
    except ValueError as error:
        raise _Refused(ErrorCode.INVALID_REQUEST) from error

"""SaslHandshake (key 17), versions 0 and 1.

Behaviour: a client names the mechanism by which it will say who it is; behind version 0 its tokens come bare (KIP-152).
On a connection whose session ends it begins a login anew (KIP-368), at most once a second; where clients do not log in,
or not now, the answer is ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from pybroker.handlers.context import CloseConnection, Parked, RequestContext
from pybroker.security.login import LoginFailed
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse | Parked:
    """Begin an exchange."""
    connection = ctx.connection
    login = connection.login
    if login is None or not login.may_begin():
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    try:
        login.begin(request.mechanism, ctx.api_version)
    except LoginFailed as error:
        if not error.is_answered:
            raise CloseConnection(error.reason) from error
        refused = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=login.names)
        return connection.login_failed(refused, error.reason)
    connection.login_began()
    return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=login.names)

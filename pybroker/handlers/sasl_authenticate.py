"""SaslAuthenticate (key 36), versions 0 to 2.

Behaviour: one step of what SaslHandshake began.  With the second step the connection is a broker's of this cluster, and
is served what brokers ask of each other; who fails begins anew.
"""

from __future__ import annotations

from pybroker.cluster.scram import ScramError
from pybroker.handlers.context import RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Go on with the exchange."""
    connection = ctx.connection
    login = connection.login
    if login is None:
        return _refused(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
    try:
        if not login.has_begun:
            return _answer(login.first(bytes(request.auth_bytes)))
        connection.login = None
        answer = _answer(login.final(bytes(request.auth_bytes)))
    except ScramError as error:
        connection.login = None
        return _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, f"Authentication failed: {error}")
    connection.become_broker()
    return answer


def _answer(auth_bytes: bytes) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=auth_bytes, session_lifetime_ms=0)


def _refused(error: ErrorCode, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error, error_message=message, auth_bytes=b"", session_lifetime_ms=0)

"""SaslAuthenticate (key 36), versions 0 to 2.

Behaviour: one step of what SaslHandshake began.  With the last one the connection is its user's, or another broker's of
this cluster; a failure is answered after ``connection.failed.authentication.delay.ms``, and the connection ends.  What
takes long to check is waited for; nothing else of the connection is served meanwhile.  Version notes: from 1 the last
answer says how long the session lasts (KIP-368).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.handlers.context import CloseConnection, Parked, RequestChannel, RequestContext
from pybroker.security.login import LoginFailed
from pybroker.security.sasl import NotYet
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from pybroker.security.login import Login


def handle(ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse | Parked:
    """Go on with the exchange."""
    connection = ctx.connection
    login = connection.login
    if login is None or not login.is_in_exchange:
        return _refused(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
        )
    return _go_on(connection, login, bytes(request.auth_bytes))


def _go_on(connection: RequestChannel, login: Login, token: bytes) -> SaslAuthenticateResponse | Parked:
    try:
        answer = login.go_on(token)
    except LoginFailed as error:
        if not error.is_answered:
            raise CloseConnection(error.reason) from error
        return connection.login_failed(_refused(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)), error.reason)
    if isinstance(answer, NotYet):
        return _waiting(connection, login, token, answer)
    lifetime_ms = 0
    if login.session is not None and login.is_done():
        lifetime_ms = login.session.lifetime_ms
        connection.logged_in(login.session)
    return SaslAuthenticateResponse(error_code=0, error_message="", auth_bytes=answer, session_lifetime_ms=lifetime_ms)


def _waiting(connection: RequestChannel, login: Login, token: bytes, not_yet: NotYet) -> Parked:
    """The answer, once it can be given."""
    parked = Parked()

    def answer() -> None:
        response = _go_on(connection, login, token)
        if isinstance(response, Parked):
            parked.on_abandon = response.abandon
            response.subscribe(parked.complete)
        else:
            parked.complete(response)

    parked.on_abandon = not_yet.subscribe(answer)
    return parked


def _refused(error: ErrorCode, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error, error_message=message, auth_bytes=b"", session_lifetime_ms=0)

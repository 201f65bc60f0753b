"""SaslHandshake (key 17) and ApiVersions (key 18) in the middle of a login: they end it.

Behaviour: ILLEGAL_SASL_STATE in the request's own reply, sent as late as that of any login that fails, and the
connection ends. Kafka answers so whatever else comes there, too; here other requests end the connection without a
reply, because what a stranger sends is not decoded (``net/login_connection``).
"""

from __future__ import annotations

from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(ctx: RequestContext, request: SaslHandshakeRequest | ApiVersionsRequest) -> Parked:
    """Refuse it, and the login."""
    error = ErrorCode.ILLEGAL_SASL_STATE
    if isinstance(request, SaslHandshakeRequest):
        response: object = SaslHandshakeResponse(error_code=error, mechanisms=[])
    else:
        response = ApiVersionsResponse(error_code=error, api_keys=[])
    return ctx.connection.login_failed(response, "another request in the middle of its authentication")

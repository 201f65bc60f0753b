"""ExpireDelegationToken (key 40), versions 1 and 2 (KIP-48).

Behaviour: owner and renewers say when a token expires; a negative period ends it at once.  Connections that its holder
has made last as long as their sessions.
Version notes: none.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import TokenExpiry
from pybroker.handlers.context import Parked, RequestContext
from pybroker.handlers.token_requests import NO_TIMESTAMP, may_ask_for_tokens
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(ctx: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse | Parked:
    """Say when it expires."""
    if not may_ask_for_tokens(ctx):
        return _response(TokenExpiry(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP))
    parked = Parked()
    ctx.services.tokens.expire(
        bytes(request.hmac),
        ctx.principal,
        request.expiry_time_period_ms,
        lambda expiry: parked.complete(_response(expiry)),
    )
    return parked


def refuse(
    ctx: RequestContext, request: ExpireDelegationTokenRequest, error: ErrorCode
) -> ExpireDelegationTokenResponse:
    """Nothing was changed, for this reason."""
    return _response(TokenExpiry(error))


def _response(expiry: TokenExpiry) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=expiry.error_code, expiry_timestamp_ms=expiry.expiry_timestamp_ms, throttle_time_ms=0
    )

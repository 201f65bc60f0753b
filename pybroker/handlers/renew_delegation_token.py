"""RenewDelegationToken (key 39), versions 1 and 2 (KIP-48).

Behaviour: owner and renewers have a token last longer, from now on for as long as they ask and the broker grants, and
never past its last moment.  What has expired stays so.
Version notes: none.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import TokenExpiry
from pybroker.handlers.context import Parked, RequestContext
from pybroker.handlers.token_requests import NO_TIMESTAMP, may_ask_for_tokens
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def handle(ctx: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse | Parked:
    """Have it last longer."""
    if not may_ask_for_tokens(ctx):
        return _response(TokenExpiry(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP))
    parked = Parked()
    ctx.services.tokens.renew(
        bytes(request.hmac),
        ctx.principal,
        request.renew_period_ms,
        lambda expiry: parked.complete(_response(expiry)),
    )
    return parked


def refuse(ctx: RequestContext, request: RenewDelegationTokenRequest, error: ErrorCode) -> RenewDelegationTokenResponse:
    """Nothing was changed, for this reason."""
    return _response(TokenExpiry(error))


def _response(expiry: TokenExpiry) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(
        error_code=expiry.error_code, expiry_timestamp_ms=expiry.expiry_timestamp_ms, throttle_time_ms=0
    )

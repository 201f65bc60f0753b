"""RenewDelegationToken (key 39), versions 1 and 2 (KIP-48).

Behaviour: owner and renewers have a token last longer, from now on for as long as they ask and the broker grants, and
never past its last moment.  What has expired stays so.
Version notes: none.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import TokenExpiry
from pybroker.handlers.context import Parked, RequestContext
from pybroker.handlers.token_requests import change_expiry, expiry_response
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def handle(ctx: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse | Parked:
    """Have it last longer."""
    tokens = ctx.services.tokens
    return change_expiry(ctx, tokens.renew, request.hmac, request.renew_period_ms, RenewDelegationTokenResponse)


def refuse(ctx: RequestContext, request: RenewDelegationTokenRequest, error: ErrorCode) -> RenewDelegationTokenResponse:
    """Nothing was changed, for this reason."""
    return expiry_response(RenewDelegationTokenResponse, TokenExpiry(error))

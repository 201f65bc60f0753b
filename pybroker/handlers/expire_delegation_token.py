"""ExpireDelegationToken (key 40), versions 1 and 2 (KIP-48).

Behaviour: owner and renewers say when a token expires; a negative period ends it at once.  Connections that its holder
has made last as long as their sessions.
Version notes: none.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import TokenExpiry
from pybroker.handlers.context import Parked, RequestContext
from pybroker.handlers.token_requests import change_expiry, expiry_response
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(ctx: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse | Parked:
    """Say when it expires."""
    tokens = ctx.services.tokens
    return change_expiry(ctx, tokens.expire, request.hmac, request.expiry_time_period_ms, ExpireDelegationTokenResponse)


def refuse(
    ctx: RequestContext, request: ExpireDelegationTokenRequest, error: ErrorCode
) -> ExpireDelegationTokenResponse:
    """Nothing was changed, for this reason."""
    return expiry_response(ExpireDelegationTokenResponse, TokenExpiry(error))

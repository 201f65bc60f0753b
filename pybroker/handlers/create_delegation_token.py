"""CreateDelegationToken (key 38), versions 1 to 3 (KIP-48).

Behaviour: a token whose holder logs in, through SCRAM, as its owner: the user that asks or, with CREATE_TOKENS on that
user, another one.  The reply alone has the HMAC, which waits for the commit.  Version notes: an owner who does not ask
from 3 (KIP-373).  Not done: owners that are no users; Kafka takes one of another type, and lets the token's holder in
as the user of that name.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import NewToken, TokenCreation
from pybroker.handlers.context import Parked, RequestContext
from pybroker.handlers.token_requests import NO_TIMESTAMP, may_ask_for_tokens, parts_of, principal_of
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker.security.delegation_tokens import USER_TYPE
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

_REQUESTER_SINCE = CreateDelegationTokenResponse.since("token_requester_principal_type")
REPEATABLE = False  # a token that no client knows would stay


def handle(ctx: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse | Parked:
    """Make the token."""
    error = _refusal(ctx, request)
    if error is not None:
        return refuse(ctx, request, error)
    renewers = tuple(principal_of(each.principal_type, each.principal_name) for each in request.renewers)
    parked = Parked()
    ctx.services.tokens.create(
        NewToken(_owner(ctx, request), ctx.principal, renewers, request.max_lifetime_ms),
        lambda creation: parked.complete(_response(ctx, request, creation, no_timestamp=0)),
    )
    return parked


def refuse(
    ctx: RequestContext, request: CreateDelegationTokenRequest, error: ErrorCode
) -> CreateDelegationTokenResponse:
    """No token was made, for this reason."""
    return _response(ctx, request, TokenCreation(error))


def _refusal(ctx: RequestContext, request: CreateDelegationTokenRequest) -> ErrorCode | None:
    if not may_ask_for_tokens(ctx):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    owner = _owner(ctx, request)
    if owner != ctx.principal and not ctx.authorize(AclOperation.CREATE_TOKENS, Resource.USER, owner):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    types = (parts_of(owner)[0], *(each.principal_type for each in request.renewers))
    return None if all(each == USER_TYPE for each in types) else ErrorCode.INVALID_PRINCIPAL_TYPE


def _owner(ctx: RequestContext, request: CreateDelegationTokenRequest) -> str:
    name = request.owner_principal_name
    return principal_of(request.owner_principal_type or "", name) if name else ctx.principal


def _response(
    ctx: RequestContext,
    request: CreateDelegationTokenRequest,
    creation: TokenCreation,
    no_timestamp: int = NO_TIMESTAMP,
) -> CreateDelegationTokenResponse:
    token = creation.token
    owner_type, owner_name = parts_of(_owner(ctx, request))
    requester_type, requester_name = parts_of(ctx.principal) if ctx.api_version >= _REQUESTER_SINCE else ("", "")
    return CreateDelegationTokenResponse(
        error_code=creation.error_code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=no_timestamp if token is None else token.issue_timestamp_ms,
        expiry_timestamp_ms=no_timestamp if token is None else token.expiry_timestamp_ms,
        max_timestamp_ms=no_timestamp if token is None else token.max_timestamp_ms,
        token_id="" if token is None else token.token_id,
        hmac=creation.hmac,
        throttle_time_ms=0,
    )

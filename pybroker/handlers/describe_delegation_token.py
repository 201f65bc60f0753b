"""DescribeDelegationToken (key 41), versions 1 to 3 (KIP-48).

Behaviour: the tokens of the owners that are named, or of all, with their HMACs. Shown are those that the client owns,
asked for or may renew, and those that it may DESCRIBE, or whose owner's tokens it may (DESCRIBE_TOKENS, KIP-373).
Version notes: who asked for a token from 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.handlers.context import RequestContext, Steps
from pybroker.handlers.token_requests import may_ask_for_tokens, parts_of, principal_of
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker.security.delegation_tokens import DelegationToken
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

_REQUESTER_SINCE = DescribedDelegationToken.since("token_requester_principal_type")


def handle(ctx: RequestContext, request: DescribeDelegationTokenRequest) -> Steps:
    """Describe the tokens."""
    if not may_ask_for_tokens(ctx):
        return _response(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])
    secret = ctx.services.tokens.secret
    if secret is None:
        return _response(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, [])
    described, with_requester = [], ctx.api_version >= _REQUESTER_SINCE
    for token in _wanted(ctx, request):
        if token is not None:
            described.append(_described(token, secret.hmac_of(token.token_id), with_requester))
        yield
    return _response(ErrorCode.NONE, described)


def _wanted(ctx: RequestContext, request: DescribeDelegationTokenRequest) -> Iterator[DelegationToken | None]:
    """Those that are asked for and may be seen; None for each other one, since a look at it takes time, too."""
    owners = (
        None
        if request.owners is None
        else {principal_of(each.principal_type, each.principal_name) for each in request.owners}
    )
    if owners is not None and not owners:
        return
    for token in ctx.services.metadata.image.delegation_tokens.values():
        is_asked_for = owners is None or any(token.concerns(owner) for owner in owners)
        yield token if is_asked_for and _may_see(ctx, token) else None


def _may_see(ctx: RequestContext, token: DelegationToken) -> bool:
    return (
        token.concerns(ctx.principal)
        or ctx.authorize(AclOperation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id, log_if_denied=False)
        or ctx.authorize(AclOperation.DESCRIBE_TOKENS, Resource.USER, token.owner, log_if_denied=False)
    )


def _described(token: DelegationToken, token_hmac: bytes, with_requester: bool) -> DescribedDelegationToken:
    owner_type, owner_name = parts_of(token.owner)
    requester_type, requester_name = parts_of(token.requester) if with_requester else ("", "")
    renewers = map(parts_of, token.renewers)
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiry_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=token_hmac,
        renewers=[DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, name in renewers],
    )


def _response(error: ErrorCode, tokens: list[DescribedDelegationToken]) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error, tokens=tokens, throttle_time_ms=0)

"""Making, renewing and ending delegation tokens (KIP-48).

Owns: how long a token lasts, and who may change that.  Owns no secret: who asks has found the token by its HMAC.

Counterpart in Kafka: ``org.apache.kafka.controller.DelegationTokenControlManager``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

from pybroker.cluster.decisions.operations import NewToken, TokenExpiry
from pybroker.cluster.image.cluster_image import ImageBuilder
from pybroker.security.delegation_tokens import DelegationToken
from pybroker_protocol.errors import ErrorCode

_TIMESTAMP_MAX: Final = 2**63 - 1


class Lifetimes(NamedTuple):
    """The broker's bounds."""

    max_lifetime_ms: int  # delegation.token.max.lifetime.ms: after it nobody renews a token
    expiry_time_ms: int  # delegation.token.expiry.time.ms: how long a token lasts unless it is renewed


def create_token(
    builder: ImageBuilder, token_id: str, wanted: NewToken, lifetimes: Lifetimes, now_ms: int
) -> DelegationToken:
    """Add the token."""
    max_timestamp_ms = min(now_ms + _at_most(lifetimes.max_lifetime_ms, wanted.max_lifetime_ms), _TIMESTAMP_MAX)
    expiry_timestamp_ms = min(now_ms + lifetimes.expiry_time_ms, max_timestamp_ms)
    owner, requester, renewers, _ = wanted
    token = DelegationToken(token_id, owner, requester, renewers, now_ms, expiry_timestamp_ms, max_timestamp_ms)
    builder.put_delegation_token(token)
    return token


def renew_token(
    builder: ImageBuilder,
    token: DelegationToken | None,
    principal: str,
    period_ms: int,
    lifetimes: Lifetimes,
    now_ms: int,
) -> TokenExpiry:
    """Have the token last so much longer from now on; a period that is not positive is the broker's."""
    if token is None:
        return TokenExpiry(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if token.has_expired(now_ms):
        return TokenExpiry(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not token.may_be_renewed_by(principal):
        return TokenExpiry(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return _put(builder, token, now_ms + _at_most(lifetimes.expiry_time_ms, period_ms))


def expire_token(
    builder: ImageBuilder, token: DelegationToken | None, principal: str, period_ms: int, now_ms: int
) -> TokenExpiry:
    """Have the token last so long from now on; a negative period ends it at once."""
    if token is None:
        return TokenExpiry(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not token.may_be_renewed_by(principal):
        return TokenExpiry(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if period_ms < 0:
        builder.remove_delegation_token(token.token_id)
        return TokenExpiry(expiry_timestamp_ms=now_ms)
    if token.has_expired(now_ms):
        return TokenExpiry(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _put(builder, token, now_ms + period_ms)


def remove_expired_tokens(builder: ImageBuilder, now_ms: int) -> Generator[None, None, list[DelegationToken]]:
    """Forget tokens that are of no use any more, in steps; which they were."""
    expired = []
    for token in builder.view().delegation_tokens.values():
        if token.has_expired(now_ms):
            expired.append(token)
        yield
    for token in expired:
        builder.remove_delegation_token(token.token_id)
        yield
    return expired


def _put(builder: ImageBuilder, token: DelegationToken, expiry_timestamp_ms: int) -> TokenExpiry:
    expiry_timestamp_ms = min(expiry_timestamp_ms, token.max_timestamp_ms)
    builder.put_delegation_token(token._replace(expiry_timestamp_ms=expiry_timestamp_ms))
    return TokenExpiry(expiry_timestamp_ms=expiry_timestamp_ms)


def _at_most(bound_ms: int, wanted_ms: int) -> int:
    return min(bound_ms, wanted_ms) if wanted_ms > 0 else bound_ms

"""What the requests about delegation tokens share: on which connections they may come, principals in two fields, and
how a change of a token's expiry is answered.

Kafka asks for the protocol of the listener; a client without a login, on a listener that needs none, is ANONYMOUS here,
on any broker that judges the request.

Counterpart in Kafka: ``KafkaApis.allowTokenRequests``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from pybroker import limits
from pybroker.cluster.decisions.operations import TokenExpiry
from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol.errors import ErrorCode

Response = TypeVar("Response")

NO_TIMESTAMP: Final = -1  # what Kafka's broker says where it refuses by itself; its controller says 0


def may_ask_for_tokens(ctx: RequestContext) -> bool:
    """Whether it is known who asks, by something else than a token."""
    return ctx.principal != limits.ANONYMOUS and not ctx.by_token


def change_expiry(
    ctx: RequestContext,
    change: Callable[[bytes, str, int, Callable[[TokenExpiry], None]], None],
    token_hmac: Any,
    period_ms: int,
    response: type[Response],
) -> Response | Parked:
    """Have ``change(hmac, principal, period_ms, done)`` say when a token expires, and answer so."""
    if not may_ask_for_tokens(ctx):
        return expiry_response(response, TokenExpiry(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP))
    parked = Parked()
    change(
        bytes(token_hmac), ctx.principal, period_ms, lambda expiry: parked.complete(expiry_response(response, expiry))
    )
    return parked


def expiry_response(response: type[Response], expiry: TokenExpiry) -> Response:
    """The response of RenewDelegationToken or ExpireDelegationToken."""
    return response(  # type: ignore[call-arg]  # both have these fields
        error_code=expiry.error_code, expiry_timestamp_ms=expiry.expiry_timestamp_ms, throttle_time_ms=0
    )


def principal_of(principal_type: str, name: str) -> str:
    """As ``RequestContext`` has it."""
    return f"{principal_type}:{name}"


def parts_of(principal: str) -> tuple[str, str]:
    """Type and name, as messages have them."""
    principal_type, _, name = principal.partition(":")
    return principal_type, name

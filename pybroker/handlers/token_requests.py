"""What the requests about delegation tokens share: on which connections they may come, and principals in two fields.

Kafka asks for the protocol of the listener; a client without a login, on a listener that needs none, is ANONYMOUS here,
on any broker that judges the request.

Counterpart in Kafka: ``KafkaApis.allowTokenRequests``.
"""

from __future__ import annotations

from typing import Final

from pybroker import limits
from pybroker.handlers.context import RequestContext

NO_TIMESTAMP: Final = -1  # what Kafka's broker says where it refuses by itself; its controller says 0


def may_ask_for_tokens(ctx: RequestContext) -> bool:
    """Whether it is known who asks, by something else than a token."""
    return ctx.principal != limits.ANONYMOUS and not ctx.by_token


def principal_of(principal_type: str, name: str) -> str:
    """As ``RequestContext`` has it."""
    return f"{principal_type}:{name}"


def parts_of(principal: str) -> tuple[str, str]:
    """Type and name, as messages have them."""
    principal_type, _, name = principal.partition(":")
    return principal_type, name

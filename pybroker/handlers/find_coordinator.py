"""FindCoordinator (key 10), versions 0 to 6.

Behaviour: the broker that coordinates a group (key type 0) or a transactional id (key type 1). It leads the key's
partition of ``__consumer_offsets`` or ``__transaction_state``, and is named by the listener that the request came in
on. The topic comes into being at the first request that needs it, and the reply is parked until it is there. Kafka
answers COORDINATOR_NOT_AVAILABLE at once and lets the client come back. A reply is parked, too, while a broker's death
is in doubt. From 4 several keys at once (KIP-699).

Not served: share groups (key type 2), INVALID_REQUEST as in a Kafka without them.
"""

from __future__ import annotations

from typing import Final

from pybroker.cluster.image.coordinator_table import COORDINATORS, CoordinatorType
from pybroker.coordinators.partitioning import partitioner
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.suspicion_hold import suspicion_hold
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_KEYS_SINCE: Final = FindCoordinatorRequest.since("coordinator_keys")

SHARE = 2  # a type of keys that nothing here coordinates
NO_NODE_ID = -1
NO_PORT = -1

_KINDS: Final = {kind.key_type: kind for kind in COORDINATORS}

# Where a response has many keys Kafka leaves these without words.
_ERRORS_WITHOUT_MESSAGE = frozenset(
    {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, *(kind.unauthorized for kind in _KINDS.values())}
)


def handle(ctx: RequestContext, request: FindCoordinatorRequest) -> Steps:
    """Answer now if the topic is there, else as soon as it is."""
    keys = request.coordinator_keys if ctx.api_version >= _KEYS_SINCE else [request.key]
    kind = _KINDS.get(request.key_type)
    if (
        kind is not None
        and kind.topic not in ctx.services.metadata.image.topics_by_name
        and any(_may_see(ctx, kind, key) for key in keys)
    ):
        created = Parked()
        ctx.services.auto_topic_creation.ensure(kind.topic, created.complete)
        yield created
    if (certain := suspicion_hold(ctx)) is not None:
        yield certain
    coordinators = []
    for key in keys:
        coordinators.append(_find(ctx, request.key_type, key))
        yield
    return _response(ctx, coordinators)


def _may_see(ctx: RequestContext, kind: CoordinatorType, key: str) -> bool:
    return ctx.authorize(AclOperation.DESCRIBE, Resource[kind.resource], key)


def _response(ctx: RequestContext, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if ctx.api_version >= _KEYS_SINCE:
        for coordinator in coordinators:
            if coordinator.error_code in _ERRORS_WITHOUT_MESSAGE:
                coordinator.error_message = ""
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=coordinators)
    (found,) = coordinators
    return FindCoordinatorResponse(
        throttle_time_ms=0,
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    kind = _KINDS.get(key_type)
    if kind is None:
        return _not_found(key, ErrorCode.INVALID_REQUEST, "" if key_type == SHARE else None)
    if not _may_see(ctx, kind, key):
        return _not_found(key, kind.unauthorized)
    metadata = ctx.services.metadata
    leader = metadata.leader(kind.topic, partitioner(kind, ctx.services.config, metadata)(key))
    node = None if leader is None else metadata.view(ctx.listener).live.get(leader)
    if node is None:
        return _not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(
        key=key,
        node_id=node.broker_id,
        host=node.host,
        port=node.port,
        error_code=0,
        error_message=ErrorCode.NONE.message,
    )


def _not_found(key: str, error: ErrorCode, message: str | None = None) -> Coordinator:
    error_message = error.message if message is None else message
    return Coordinator(
        key=key, node_id=NO_NODE_ID, host="", port=NO_PORT, error_code=error, error_message=error_message
    )

"""ConsumerGroupHeartbeat (key 68), versions 0 and 1.

Behaviour: a member of a consumer group (KIP-848) joins with epoch 0, stays with the epoch that it was given, and says
what it owns. It leaves with epoch -1, or -2 if it is static and coming back. The response has the member's epoch, and
its assignment where that changed or the client asked for it by a full request. From 1 the client makes the member id
and may subscribe by regular expression, which names no topic that it may not DESCRIBE.
"""

from __future__ import annotations

from pybroker.coordinators.group.consumer.consumer_requests import heartbeat_error
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | Parked:
    """Ask the group; the answer is there at once unless the group's partition is busy with an append."""
    if not ctx.services.groups.serves_consumer_groups:
        return heartbeat_error(ErrorCode.UNSUPPORTED_VERSION)
    if not ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id):
        return heartbeat_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for topic in request.subscribed_topic_names or ():
        if not ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic):
            return heartbeat_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def may_describe(topic: str) -> bool:
        return ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic, log_if_denied=False)

    parked = Parked()
    ctx.services.groups.consumer_heartbeat(
        request, ctx.api_version, ctx.client_id or "", ctx.client_host, may_describe, parked.complete
    )
    return parked

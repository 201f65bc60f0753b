"""ConsumerGroupDescribe (key 69), versions 0 and 1.

Behaviour: state, epochs and members of consumer groups (KIP-848), each with what it has and what it is to have; the
operations that the client may do, if it asks.  From 1 the protocol that a member speaks.  A group of another kind is
GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from pybroker.coordinators.group.consumer.consumer_requests import describe_error
from pybroker.handlers.authorized_operations import authorized_operations
from pybroker.handlers.context import RequestContext, Steps
from pybroker.handlers.portions import asked_in_portions
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(ctx: RequestContext, request: ConsumerGroupDescribeRequest) -> Steps:
    """Describe what the client may see; the rest comes first, with an error each."""
    if not ctx.services.groups.serves_consumer_groups:
        unserved = []
        for group_id in request.group_ids:
            unserved.append(describe_error(group_id, ErrorCode.UNSUPPORTED_VERSION))
            yield
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=unserved)
    allowed, refused = [], []
    for group_id in request.group_ids:
        if ctx.authorize(AclOperation.DESCRIBE, Resource.GROUP, group_id):
            allowed.append(group_id)
        else:
            refused.append(describe_error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        yield
    answers = yield from asked_in_portions(allowed, ctx.services.groups.describe_consumer_groups)
    groups: list[DescribedGroup] = refused
    for described in answers:
        visible = [_visible(ctx, group) for group in described]
        for group in visible:
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = authorized_operations(ctx, Resource.GROUP, group.group_id)
        groups.extend(visible)
        yield
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _visible(ctx: RequestContext, group: DescribedGroup) -> DescribedGroup:
    """The group, or an error in its place when a topic shows in it that the client may not describe."""
    topics = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if all(ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic) for topic in topics):
        return group
    message = "The group has described topic(s) that the client is not authorized to describe."
    return describe_error(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)

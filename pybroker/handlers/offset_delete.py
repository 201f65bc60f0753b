"""OffsetDelete (key 47), version 0 (KIP-496).

Behaviour: forget single offsets of a group. Topics that a member reads are refused (GROUP_SUBSCRIBED_TO_TOPIC), as are
topics and partitions that do not exist. A group with members of another protocol than the consumers' is refused as a
whole (NON_EMPTY_GROUP).
"""

from __future__ import annotations

from copy import copy
from operator import attrgetter

from pybroker.coordinators.group.offsets.offset_operations import offset_delete_error
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import merge_topics, portions_of_topics
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Steps:
    """Delete what exists; the rest comes first in the response, with an error each."""
    if not ctx.authorize(AclOperation.DELETE, Resource.GROUP, request.group_id):
        return offset_delete_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _delete(ctx, request)


def _delete(ctx: RequestContext, request: OffsetDeleteRequest) -> Steps:
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        existing, errors = _split(ctx, topic)
        if errors:
            refused[topic.name] = OffsetDeleteResponseTopic(name=topic.name, partitions=errors)
        if existing.partitions:
            accepted.append(existing)
        yield
    for portion in portions_of_topics(accepted, "partitions") or (accepted,):
        part = copy(request)
        part.topics = list(portion)
        deleted = Parked()
        ctx.services.groups.delete_offsets(part, deleted.complete)
        response: OffsetDeleteResponse = yield deleted
        if response.error_code:
            return response
        merge_topics(refused, response.topics, attrgetter("name"))
        yield
    return OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=list(refused.values()))


def _split(
    ctx: RequestContext, topic: OffsetDeleteRequestTopic
) -> tuple[OffsetDeleteRequestTopic, list[OffsetDeleteResponsePartition]]:
    """(the topic with the partitions that exist, errors of the others)."""
    known = ctx.services.metadata.image.topics_by_name.get(topic.name)
    count = 0 if known is None else len(known.partitions)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not ctx.authorize(AclOperation.READ, Resource.TOPIC, topic.name):
        count, error = 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    existing, errors = [], []
    for partition in topic.partitions:
        if 0 <= partition.partition_index < count:
            existing.append(partition)
        else:
            errors.append(OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error))
    return OffsetDeleteRequestTopic(name=topic.name, partitions=existing), errors

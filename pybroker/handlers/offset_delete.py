"""OffsetDelete (key 47), version 0 (KIP-496).

Behaviour: forget single offsets of a group.  Topics that a member reads are refused (GROUP_SUBSCRIBED_TO_TOPIC), as
are topics and partitions that do not exist; a group with members of another protocol than the consumers' is refused
as a whole (NON_EMPTY_GROUP).
"""

from __future__ import annotations

from pybroker.apis import Operation, Resource
from pybroker.coordinators.group.offset_operations import offset_delete_error
from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Parked:
    """Delete what exists; the rest comes first in the response, with an error each."""
    if not ctx.authorize(Operation.DELETE, Resource.GROUP, request.group_id):
        return offset_delete_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    accepted = []
    for topic in request.topics:
        existing, errors = _split(ctx, topic)
        if errors:
            refused[topic.name] = OffsetDeleteResponseTopic(name=topic.name, partitions=errors)
        if existing.partitions:
            accepted.append(existing)
    request.topics = accepted
    parked = Parked()

    def done(response: OffsetDeleteResponse) -> None:
        if not response.error_code:
            for topic in response.topics:
                before = refused.setdefault(topic.name, topic)
                if before is not topic:
                    before.partitions = [*before.partitions, *topic.partitions]
            response.topics = list(refused.values())
        parked.complete(response)

    ctx.services.groups.delete_offsets(request, done)
    return parked


def _split(
    ctx: RequestContext, topic: OffsetDeleteRequestTopic
) -> tuple[OffsetDeleteRequestTopic, list[OffsetDeleteResponsePartition]]:
    """(the topic with the partitions that exist, errors of the others)."""
    known = ctx.services.metadata.image.topics_by_name.get(topic.name)
    count = 0 if known is None else len(known.partitions)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not ctx.authorize(Operation.READ, Resource.TOPIC, topic.name):
        count, error = 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    existing, errors = [], []
    for partition in topic.partitions:
        if 0 <= partition.partition_index < count:
            existing.append(partition)
        else:
            errors.append(OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error))
    return OffsetDeleteRequestTopic(name=topic.name, partitions=existing), errors

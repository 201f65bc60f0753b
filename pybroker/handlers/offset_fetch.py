"""OffsetFetch (key 9), versions 1 to 10.

Behaviour: how far a group has read; -1 where it has committed nothing. From 2 null topics stand for all, and errors
have a place of their own; before, every partition carried them. From 5 the reply has the leader epoch. From 7 a client
may insist on offsets that no open transaction can change. From 8 several groups come at once (KIP-709). From 10 topics
come by id (KIP-848), and a topic without one cannot be shown.

In any version an offset that was committed to a deleted topic of the same name is not shown; Kafka shows it below 10.
"""

from __future__ import annotations

from copy import copy
from operator import attrgetter
from typing import Any

from pybroker.coordinators.group.offsets.offset_operations import no_offset, offset_fetch_error
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import merge_topics, portions_of_topics
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERROR_VERSION = OffsetFetchResponse.since("error_code")
BATCHED_VERSION = OffsetFetchRequest.since("groups")
TOPIC_IDS_VERSION = OffsetFetchRequestTopics.since("topic_id")


def handle(ctx: RequestContext, request: OffsetFetchRequest) -> Steps:
    """Ask every group in the shape of the newest version, and answer in the shape of the request's."""
    groups = request.groups if ctx.api_version >= BATCHED_VERSION else [_as_group(request)]
    asked: list[list[Parked]] = []
    for group in groups:
        topics, of_group = group.topics, []
        for portion in (None,) if topics is None else portions_of_topics(topics, "partition_indexes") or ((),):
            part = group if portion is topics else copy(group)
            part.topics = None if portion is None else list(portion)
            of_group.append(Parked())
            _fetch_group(ctx, part, request.require_stable, of_group[-1].complete)
            yield
        asked.append(of_group)
    fetched = []
    for of_group in asked:
        fetched.append((yield from _merged(of_group)))
    if ctx.api_version >= BATCHED_VERSION:
        return OffsetFetchResponse(throttle_time_ms=0, groups=fetched)
    return (yield from _as_single(ctx.api_version, request, fetched[0]))


def _merged(asked: list[Parked]) -> Steps:
    """What the portions of a group come to: a topic that is cut is one again, and the first error is the group's."""
    merged: dict[tuple[bytes, str], OffsetFetchResponseTopics] = {}
    for parked in asked:
        fetched: OffsetFetchResponseGroup = yield parked
        if fetched.error_code or len(asked) == 1:
            return fetched
        merge_topics(merged, fetched.topics, attrgetter("topic_id", "name"))
        yield
    fetched.topics = list(merged.values())
    return fetched


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )


def _as_single(api_version: int, request: OffsetFetchRequest, group: OffsetFetchResponseGroup) -> Steps:
    topics = []
    if group.error_code and api_version < GROUP_ERROR_VERSION:
        for asked in request.topics or ():
            topics.append(_failed(asked, group.error_code))
            yield
    else:
        for topic in group.topics:
            topics.append(_as_single_topic(topic))
            yield
    return OffsetFetchResponse(throttle_time_ms=0, topics=topics, error_code=group.error_code)


def _as_single_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    partitions = [
        OffsetFetchResponsePartition(
            partition_index=partition.partition_index,
            committed_offset=partition.committed_offset,
            committed_leader_epoch=partition.committed_leader_epoch,
            metadata=partition.metadata,
            error_code=partition.error_code,
        )
        for partition in topic.partitions
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


def _failed(topic: OffsetFetchRequestTopic, error: int) -> OffsetFetchResponseTopic:
    partitions = [no_offset(partition, error) for partition in topic.partition_indexes]
    return _as_single_topic(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))


def _fetch_group(ctx: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool, done: Any) -> None:
    """Fetch what the client may see of one group; topics that it may not see, or that are unknown, come last."""
    if not ctx.authorize(AclOperation.DESCRIBE, Resource.GROUP, group.group_id):
        done(offset_fetch_error(group.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    everything = group.topics is None
    refused: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        group.topics = [topic for topic in group.topics if not _refuse(ctx, topic, refused)]

    def fetched(response: OffsetFetchResponseGroup) -> None:
        if not response.error_code:
            visible = _visible(ctx, response.topics) if everything else response.topics
            response.topics = [*visible, *refused]
        done(response)

    ctx.services.groups.fetch_offsets(group, require_stable, fetched)


def _refuse(ctx: RequestContext, topic: OffsetFetchRequestTopics, refused: list[OffsetFetchResponseTopics]) -> bool:
    """Resolve the topic's name; a topic that is unknown or not to be seen goes to ``refused``."""
    error = ErrorCode.NONE
    if ctx.api_version >= TOPIC_IDS_VERSION:
        name = ctx.services.metadata.topic_name(topic.topic_id)
        topic.name = name or ""
        error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
    if not error and not ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic.name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if error:
        partitions = [no_offset(partition, error) for partition in topic.partition_indexes]
        refused.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return bool(error)


def _visible(ctx: RequestContext, topics: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """Those that the client may see, and that have an id where the version shows nothing else."""
    by_name = ctx.services.metadata.image.topics_by_name
    visible = []
    for topic in topics:
        if not ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic.name):
            continue
        known = by_name.get(topic.name)
        if known is not None:
            topic.topic_id = known.topic_id
        if known is not None or ctx.api_version < TOPIC_IDS_VERSION:
            visible.append(topic)
    return visible

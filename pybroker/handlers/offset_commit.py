"""OffsetCommit (key 8), versions 2 to 10.

Behaviour: a group remembers how far it has read. 2 to 4 may ask for a retention of their own. From 6 the leader epoch
is kept, and from 7 there are static members (KIP-345). From 9 a group that does not exist is GROUP_ID_NOT_FOUND instead
of ILLEGAL_GENERATION. From 10 topics come by id (KIP-848). Topics and partitions that do not exist are refused one by
one.

Who may commit is asked in two functions, each of them in one place: ``_refusal_of_group`` and ``_refusal_of_topic``;
whether the group takes the offsets is ``offset_operations``' to say.  ``handle`` asks them for any request,
``commit_run`` for those that ``net.commit_fast_path`` recognizes: a rule that is written there holds for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from pybroker.coordinators.group.offsets.offset_operations import offset_commit_error
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import answered_in_portions, merge_topics
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from pybroker.coordinators.group.offsets.repeated_commit import CommittedPositions, RepeatedCommit

TOPIC_IDS_VERSION = OffsetCommitRequestTopic.since("topic_id")

_key = attrgetter("topic_id", "name")


def handle(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | Parked | Steps:
    """Commit what exists and may be read; the rest comes first in the response, with an error each."""
    answer: OffsetCommitResponse | Parked | Steps = answered_in_portions(ctx, request, _commit, _key)
    return answer


def commit_run(
    ctx: RequestContext,
    commit: RepeatedCommit,
    image_epoch: int,
    requests: Sequence[CommittedPositions],
    done: Callable[[int], None],
) -> bool:
    """Commit requests that differ from an accepted one in their positions alone; False if ``handle`` is to answer.

    ``image_epoch``: the metadata by which it was accepted; by others its topics may not be there.  ``done`` gets the
    one error code of all of them, in the call or later.
    """
    services, accepted = ctx.services, commit.request
    if services.metadata.image.epoch != image_epoch or _refusal_of_group(ctx, accepted.group_id):
        return False
    for topic in accepted.topics:
        if _refusal_of_topic(ctx, topic.name):
            return False
    services.groups.commit_offsets_again(commit, requests, done)
    return True


def _commit(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | Parked:
    refusal = _refusal_of_group(ctx, request.group_id)
    if refusal:
        return offset_commit_error(request, refusal)
    refused: list[OffsetCommitResponseTopic] = []
    accepted = []
    for topic in request.topics:
        error = _resolve(ctx, topic)
        if error:
            refused.append(_refuse(topic, topic.partitions, error))
        elif _split(ctx, topic, refused):
            accepted.append(topic)
    if not accepted:
        return OffsetCommitResponse(throttle_time_ms=0, topics=refused)
    request.topics = accepted
    parked = Parked()
    if not refused:
        ctx.services.groups.commit_offsets(request, ctx.api_version, parked.complete)
        return parked

    def done(response: OffsetCommitResponse) -> None:
        merged: dict[tuple[bytes, str], OffsetCommitResponseTopic] = {}
        merge_topics(merged, refused, _key)
        merge_topics(merged, response.topics, _key)
        response.topics = list(merged.values())
        parked.complete(response)

    ctx.services.groups.commit_offsets(request, ctx.api_version, done)
    return parked


def _refusal_of_group(ctx: RequestContext, group_id: str) -> int:
    """The error of all partitions, or 0, as far as it depends on no topic."""
    if ctx.services.authorizer is None or ctx.authorize(AclOperation.READ, Resource.GROUP, group_id):
        return 0
    return ErrorCode.GROUP_AUTHORIZATION_FAILED


def _refusal_of_topic(ctx: RequestContext, name: str) -> int:
    """The error of a topic's partitions, or 0, whether there is such a topic or not."""
    if ctx.services.authorizer is None or ctx.authorize(AclOperation.READ, Resource.TOPIC, name):
        return 0
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _resolve(ctx: RequestContext, topic: OffsetCommitRequestTopic) -> int:
    """Fill in the topic's name or its id, whichever the version lacks; returns why it is refused, or 0."""
    image = ctx.services.metadata.image
    by_id = ctx.api_version >= TOPIC_IDS_VERSION
    known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics_by_name.get(topic.name)
    if by_id and known is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    refusal = _refusal_of_topic(ctx, topic.name if known is None else known.name)
    if refusal:
        return refusal
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic.name, topic.topic_id = known.name, known.topic_id
    return 0


def _split(ctx: RequestContext, topic: OffsetCommitRequestTopic, refused: list[OffsetCommitResponseTopic]) -> bool:
    """Leave only partitions that exist in the topic; returns whether there are any."""
    count = len(ctx.services.metadata.image.topics_by_name[topic.name].partitions)
    unknown = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
    if unknown:
        refused.append(_refuse(topic, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
    return bool(topic.partitions)


def _refuse(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], error: int
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            for partition in partitions
        ],
    )

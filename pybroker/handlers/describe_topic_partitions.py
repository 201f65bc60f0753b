"""DescribeTopicPartitions (key 75), version 0 (KIP-966).

Behaviour: topics in the order of their names, all of them when none is asked for, up to a number of partitions. The
cursor in the reply is where the next page begins. A cursor asks for the rest of its own topic and for those behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pybroker.cluster.image.cluster_image import PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import INTERNAL_TOPICS
from pybroker.cluster.image.listener_view import ListenerView
from pybroker.cluster.image.topic_names import invalid_reason
from pybroker.handlers.authorized_operations import authorized_operations
from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from pybroker_protocol.uuids import ZERO_UUID


class _Page(NamedTuple):
    """What one reply may hold: the names in order, where the first of them begins, how many partitions."""

    names: list[str]
    first_index: int
    partitions_max: int


def handle(ctx: RequestContext, request: DescribeTopicPartitionsRequest) -> Steps:
    """Describe one page of topics."""
    image, view = ctx.services.metadata.image, ctx.services.metadata.view(ctx.listener)
    page = _page(ctx, request)
    if page is None:
        return _refused(request)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    unauthorized: list[DescribeTopicPartitionsResponseTopic] = []
    remaining = page.partitions_max
    cursor = None
    for position, name in enumerate(page.names):
        yield
        if not ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, name):
            if request.topics:
                unauthorized.append(_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if remaining == 0:
            cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0)
            break
        topic = image.topics_by_name.get(name)
        if topic is None:
            topics.append(_unknown(ctx, name))
            continue
        first = page.first_index if position == 0 else 0
        rows = list(_rows(topic, first, remaining, view))
        topics.append(_described(ctx, topic, rows))
        remaining -= len(rows)
        if first + len(rows) < len(topic.partitions):
            cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=first + len(rows))
            break
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics + unauthorized, next_cursor=cursor)


def _page(ctx: RequestContext, request: DescribeTopicPartitionsRequest) -> _Page | None:
    """The page asked for, or None when the cursor makes no sense."""
    existing = ctx.services.metadata.image.topics_by_name
    cursor: DescribeTopicPartitionsRequestCursor | None = request.cursor
    names = {topic.name for topic in request.topics} or set(existing)
    if cursor is not None:
        if cursor.partition_index < 0:
            return None
        if request.topics and cursor.topic_name not in names:
            return None
        names = {name for name in names if name >= cursor.topic_name}
    in_order = sorted(names)
    first_index = cursor.partition_index if cursor is not None and in_order[:1] == [cursor.topic_name] else 0
    limit = ctx.services.config.get_int("max.request.partition.size.limit")
    return _Page(in_order, first_index, max(min(limit, request.response_partition_limit), 1))


def _refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """INVALID_REQUEST for every topic asked for."""
    topics = [_failed(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=None)


def _failed(name: str, error: int) -> DescribeTopicPartitionsResponseTopic:
    """A topic of which nothing is said but its name."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_id=ZERO_UUID, is_internal=False, partitions=[]
    )


def _rows(
    topic: TopicImage, first: int, count: int, view: ListenerView
) -> Iterator[DescribeTopicPartitionsResponsePartition]:
    for index, partition in enumerate(topic.partitions[first : first + count], start=first):
        yield _row(index, partition, view)


def _row(index: int, partition: PartitionImage, view: ListenerView) -> DescribeTopicPartitionsResponsePartition:
    leader_id, _ = view.leader(partition)
    return DescribeTopicPartitionsResponsePartition(
        error_code=0,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline(partition),
    )


def _described(
    ctx: RequestContext, topic: TopicImage, rows: list[DescribeTopicPartitionsResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=rows,
        topic_authorized_operations=authorized_operations(ctx, Resource.TOPIC, topic.name),
    )


def _unknown(ctx: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    valid = invalid_reason(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=authorized_operations(ctx, Resource.TOPIC, name),
    )

"""Metadata (key 3), versions 0 to 13.

Behaviour: all topics for null (for an empty list in version 0), otherwise those asked for, by name or, from 12, by id.
Leaders and brokers are as the listener of the request leads to them. The creation of a missing topic is begun where
both the request and ``auto.create.topics.enable`` allow it. The reply is UNKNOWN_TOPIC_OR_PARTITION, and clients ask
again, also where the client's ``controller_mutation_rate`` is used up.
Version notes: 0 reports replicas that cannot be reached as REPLICA_NOT_AVAILABLE. A leader without the listener is
LEADER_NOT_AVAILABLE up to 5, LISTENER_NOT_FOUND from 6. Authorized operations come from 8 (KIP-430), those of the
cluster until 10.

Topics are encoded once per change and version, and replies assembled from those fragments. With 10,000 topics that is
the difference between 1 ms and 60 ms for each client that asks for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from pybroker import limits
from pybroker.cluster.image.cluster_image import ClusterImage, PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import INTERNAL_TOPICS
from pybroker.cluster.image.listener_view import ListenerView
from pybroker.cluster.image.topic_names import invalid_reason
from pybroker.handlers.authorized_operations import NOT_ASKED, authorized_operations, cluster_operations
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.mutation_quotas import Mutations
from pybroker.handlers.portions import at_once, portions
from pybroker.handlers.suspicion_hold import suspicion_hold
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pybroker_protocol.primitives import uvarint
from pybroker_protocol.uuids import ZERO_UUID

_IDS_ASKED_SINCE: Final = 12
_LISTENER_NOT_FOUND_SINCE: Final = 6
_CLUSTER_OPERATIONS_SINCE, _CLUSTER_OPERATIONS_LAST = MetadataResponse.versions_of("cluster_authorized_operations")
_FLEXIBLE_SINCE: Final = MetadataResponse.flexible_since()
_ERROR_CODE_SINCE: Final = MetadataResponse.since("error_code")
_THROTTLE_TIME_SINCE: Final = MetadataResponse.since("throttle_time_ms")
_STRICT_QUOTA_SINCE: Final = 0  # Kafka's broker asks by a CreateTopics that is (KIP-599), whatever its client speaks


class AssembledResponse(NamedTuple):
    """A MetadataResponse that is encoded already, in pieces: ``encoder`` puts the number of topics between them."""

    before_topics: bytes
    topic_count: int
    topics: list[bytes]
    after_topics: bytes
    throttle_time_ms: int = 0  # in place of that in ``before_topics``, which is 0


def handle(ctx: RequestContext, request: MetadataRequest) -> AssembledResponse | Steps:
    """Answer from the image, and begin to create what is missing; while a death is in doubt wait for certainty."""
    certain = suspicion_hold(ctx)
    steps = _answer(ctx, request, certain)
    answer: AssembledResponse | Steps = at_once(steps) if certain is None else steps
    return answer


def _answer(ctx: RequestContext, request: MetadataRequest, certain: Parked | None) -> Steps:
    if certain is not None:
        yield certain
    size = limits.ELEMENTS_AT_ONCE
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        answer: _Answer = _respond_known
        keys: Sequence[Any] = list(ctx.services.metadata.image.topics_by_name.values())
        if len(keys) <= limits.PARTITIONS_AT_ONCE:
            size = limits.PARTITIONS_AT_ONCE
    else:
        answer, keys = yield from _asked(ctx.api_version, request.topics)
    count, topics = 0, []
    for portion in portions(keys, size) or (keys,):
        part = answer(ctx, request, portion)
        if portion is keys:
            return part
        count += part.topic_count
        topics += part.topics
        yield
    return part._replace(topic_count=count, topics=topics)


_Answer = Callable[["RequestContext", MetadataRequest, Sequence[Any]], AssembledResponse]


def _asked(
    version: int, topics: Sequence[MetadataRequestTopic]
) -> Generator[None, None, tuple[_Answer, Sequence[Any]]]:
    """How the topics are answered for, and by which names or ids, once each."""
    is_bad = _is_bad if version >= _IDS_ASKED_SINCE else _is_bad_before_ids
    topic_ids: dict[bytes, None] = {}
    names: dict[str, None] = {}
    for portion in portions(topics):
        if any(map(is_bad, portion)):
            return _refused, topics
        topic_ids.update((topic.topic_id, None) for topic in portion if topic.topic_id != ZERO_UUID)
        if not topic_ids:
            names.update((topic.name, None) for topic in portion if topic.name is not None)
        if portion is not topics:
            yield
    return (_answer_by_id, list(topic_ids)) if topic_ids else (_answer_by_name, list(names))


# ------------------------------------------------------------------------------------------------------ which topics


def _is_bad(topic: MetadataRequestTopic) -> bool:
    """Neither a name nor an id."""
    return topic.name is None and topic.topic_id == ZERO_UUID


def _is_bad_before_ids(topic: MetadataRequestTopic) -> bool:
    """Ids, or no name, in a version that has the field without its meaning."""
    return topic.name is None or topic.topic_id != ZERO_UUID


def _may_see(ctx: RequestContext, name: str, *, is_named: bool = True) -> bool:
    return ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, name, log_if_denied=is_named)


def _answer_by_id(ctx: RequestContext, request: MetadataRequest, topic_ids: Sequence[bytes]) -> AssembledResponse:
    by_id = ctx.services.metadata.image.topics_by_id
    known, others = [], []
    for topic_id in topic_ids:
        topic = by_id.get(topic_id)
        if topic is not None and _may_see(ctx, topic.name):
            known.append(topic)
        else:
            error = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            others.append(MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id, partitions=[]))
    return _respond(ctx, request, known, others)


def _answer_by_name(ctx: RequestContext, request: MetadataRequest, names: Sequence[str]) -> AssembledResponse:
    services = ctx.services
    by_name = services.metadata.image.topics_by_name
    hidden = {name: None for name in names if not _may_see(ctx, name)}
    if hidden:
        names = [name for name in names if name not in hidden]
    missing = [name for name in names if name not in by_name]
    errors = {name: _missing_error(name) for name in missing}
    if missing and request.allow_auto_topic_creation and services.config.get_bool("auto.create.topics.enable"):
        may_create_any = ctx.authorize(AclOperation.CREATE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)
        for name in missing:
            if not may_create_any and not ctx.authorize(AclOperation.CREATE, Resource.TOPIC, name):
                errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        creatable = [name for name in missing if errors[name] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        services.auto_topic_creation.begin(creatable, Mutations(ctx, _STRICT_QUOTA_SINCE).allows)
    return _respond_named(ctx, request, names, errors, hidden)


def _missing_error(name: str) -> int:
    valid = invalid_reason(name) is None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION


def _respond_named(
    ctx: RequestContext,
    request: MetadataRequest,
    names: Sequence[str],
    errors: dict[str, int],
    hidden: Iterable[str],
) -> AssembledResponse:
    by_name = ctx.services.metadata.image.topics_by_name
    known = [by_name[name] for name in names if name in by_name]
    unknown = [
        MetadataResponseTopic(error_code=errors[name], name=name, is_internal=name in INTERNAL_TOPICS, partitions=[])
        for name in names
        if name not in by_name
    ]
    if request.include_topic_authorized_operations:
        for topic in unknown:
            if topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = _topic_operations(ctx, topic.name or "")
    # Whether they exist was not even looked at.
    unknown += [
        MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, partitions=[])
        for name in hidden
    ]
    return _respond(ctx, request, known, unknown)


# ---------------------------------------------------------------------------------------------------- the response


def _respond_known(ctx: RequestContext, request: MetadataRequest, topics: Sequence[TopicImage]) -> AssembledResponse:
    """All topics, but those that are not for the client to see."""
    if ctx.services.authorizer is not None:
        topics = [topic for topic in topics if _may_see(ctx, topic.name, is_named=False)]
    return _respond(ctx, request, topics, [])


def _respond(
    ctx: RequestContext,
    request: MetadataRequest,
    topics: Iterable[TopicImage],
    unknown: Sequence[MetadataResponseTopic],
) -> AssembledResponse:
    metadata, version = ctx.services.metadata, ctx.api_version
    image, view = metadata.image, metadata.view(ctx.listener)
    if request.include_topic_authorized_operations:
        fragments = []
        for topic in topics:
            row = _topic(topic, view, version)
            row.topic_authorized_operations = _topic_operations(ctx, topic.name)
            fragments.append(_encode_topics([row], version))
    else:
        fragments = _cached_fragments(topics, view, version)
    count = len(fragments) + len(unknown)
    if unknown:
        fragments.append(_encode_topics(unknown, version))
    before, after = _frame(ctx, request, image, view)
    return AssembledResponse(before, count, fragments, after)


def _frame(
    ctx: RequestContext, request: MetadataRequest, image: ClusterImage, view: ListenerView
) -> tuple[bytes, bytes]:
    """What stands before and after the topics."""
    if request.include_cluster_authorized_operations:
        return _encode_frame(_without_topics(image, view, cluster_operations(ctx)), ctx.api_version)
    if departed := _departed(ctx, view):
        response = _without_topics(image, view, NOT_ASKED)
        response.brokers += departed
        return _encode_frame(response, ctx.api_version)
    frame = view.metadata_frames.get(ctx.api_version)
    if frame is None:
        frame = _encode_frame(_without_topics(image, view, NOT_ASKED), ctx.api_version)
        view.metadata_frames[ctx.api_version] = frame
    return frame


def _departed(ctx: RequestContext, view: ListenerView) -> list[MetadataResponseBroker]:
    """Brokers that died a moment ago: see ``cluster/failure_detection/recently_fenced``."""
    recently_fenced = ctx.services.recently_fenced
    if recently_fenced is None or not recently_fenced.broker_ids:
        return []
    return [
        MetadataResponseBroker(node_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in view.registered
        if broker.broker_id in recently_fenced.broker_ids and broker.broker_id not in view.live
    ]


def _without_topics(image: ClusterImage, view: ListenerView, operations: int) -> MetadataResponse:
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in view.live.values()
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id if image.controller_id in view.live else -1,
        topics=[],
        cluster_authorized_operations=operations,
        error_code=0,
    )


def _refused(
    ctx: RequestContext, _request: MetadataRequest, asked: Sequence[MetadataRequestTopic]
) -> AssembledResponse:
    """INVALID_REQUEST for every topic, and nothing else, as Kafka answers where one of them is bad."""
    topics = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id, partitions=[]
        )
        for topic in asked
    ]
    before, after = _no_topics(ctx.api_version)
    return AssembledResponse(before, len(topics), [_encode_topics(topics, ctx.api_version)], after)


def _topic_operations(ctx: RequestContext, name: str) -> int:
    return authorized_operations(ctx, Resource.TOPIC, name)


def _topic(topic: TopicImage, view: ListenerView, version: int) -> MetadataResponseTopic:
    row = _partition_of_version_0 if version == 0 else _partition
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[row(index, partition, view, version) for index, partition in enumerate(topic.partitions)],
        topic_authorized_operations=NOT_ASKED,
    )


def _partition(index: int, partition: PartitionImage, view: ListenerView, version: int) -> MetadataResponsePartition:
    leader_id, error = view.leader(partition)
    if error == ErrorCode.LISTENER_NOT_FOUND and version < _LISTENER_NOT_FOUND_SINCE:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=view.offline(partition),
    )


def _partition_of_version_0(
    index: int, partition: PartitionImage, view: ListenerView, version: int
) -> MetadataResponsePartition:
    """Only replicas that can be reached are listed; leaving one out is an error where there is no worse one."""
    row = _partition(index, partition, view, version)
    row.replica_nodes = view.reachable(partition.replicas)
    row.isr_nodes = view.reachable(partition.isr)
    all_there = len(row.replica_nodes) == len(partition.replicas) and len(row.isr_nodes) == len(partition.isr)
    if row.error_code == ErrorCode.NONE and not all_there:
        row.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    return row


# ---------------------------------------------------------------------------------------------------- the encoding


def encoder(version: int) -> Callable[[AssembledResponse, list[Any]], None]:
    """The encoder of this handler's responses; dispatch takes it instead of the codec's."""

    def encode(response: AssembledResponse, parts: list[Any]) -> None:
        before, topic_count, topics, after, throttle_time_ms = response
        if throttle_time_ms and version >= _THROTTLE_TIME_SINCE:
            before = throttle_time_ms.to_bytes(4) + before[4:]
        parts.append(b"".join((before, _count_bytes(topic_count, version), *topics, after)))

    return encode


def _count_bytes(count: int, version: int) -> bytes:
    return uvarint(count + 1) if version >= _FLEXIBLE_SINCE else count.to_bytes(4)


def _encoded(response: MetadataResponse, version: int) -> bytes:
    parts: list[Any] = []
    codec.encoder(MetadataResponse, version)(response, parts)
    return b"".join(parts)


def _encode_frame(response: MetadataResponse, version: int) -> tuple[bytes, bytes]:
    """What of a response without topics stands before and after their number."""
    data = _encoded(response, version)
    end = len(data) - _bytes_after_topics(version)
    return data[: end - len(_count_bytes(0, version))], data[end:]


def _bytes_after_topics(version: int) -> int:
    operations = 4 if _CLUSTER_OPERATIONS_SINCE <= version <= _CLUSTER_OPERATIONS_LAST else 0
    error_code = 2 if version >= _ERROR_CODE_SINCE else 0
    tagged_fields = 1 if version >= _FLEXIBLE_SINCE else 0
    return operations + error_code + tagged_fields


def _encode_topics(topics: Sequence[MetadataResponseTopic], version: int) -> bytes:
    """Elements of ``topics``: what a response with them has between what one without them has."""
    before, after = _no_topics(version)
    start = len(before) + len(_count_bytes(len(topics), version))
    return _encoded(MetadataResponse(brokers=[], topics=list(topics)), version)[start : -len(after) or None]


@cache
def _no_topics(version: int) -> tuple[bytes, bytes]:
    return _encode_frame(MetadataResponse(brokers=[], topics=[]), version)


def _cached_fragments(topics: Iterable[TopicImage], view: ListenerView, version: int) -> list[bytes]:
    cached = view.topic_fragments.setdefault(version, {})
    fragments = []
    for topic in topics:
        fragment = cached.get(topic.topic_id)
        if fragment is None:
            fragment = cached[topic.topic_id] = _encode_topics([_topic(topic, view, version)], version)
        fragments.append(fragment)
    return fragments

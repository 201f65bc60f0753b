"""OffsetCommit, OffsetFetch, OffsetDelete, and the expiry of offsets.

Owns: the decisions of OffsetCommit v2-10, OffsetFetch v1-10 and OffsetDelete v0, given names of topics that exist, and
which offsets expire.  Requests of all versions have one shape here; the handlers see to that.

Counterpart in Kafka: ``OffsetMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.rebalance import renew_session
from pybroker.coordinators.group.classic.states import ClassicState
from pybroker.coordinators.group.group import Group
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.group.group_records import (
    pack_offset,
    pack_offset_with_expiry,
    pack_partition,
    read_offset,
)
from pybroker.coordinators.group.offsets.offset_store import OffsetStore, TopicOffsets
from pybroker.coordinators.group.offsets.repeated_commit import CommittedPositions, RepeatedCommit
from pybroker.coordinators.result import Record, Result
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pybroker_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pybroker_protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pybroker_protocol.uuids import ZERO_UUID

# The version of OffsetCommit that learned to say that the group does not exist.
GROUP_ID_NOT_FOUND_VERSION = 9

_STATES_WITH_SESSIONS = frozenset((ClassicState.STABLE, ClassicState.PREPARING_REBALANCE))

_OLDER_EPOCH = frozenset((ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION))

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
BROKER_RETENTION = -1
_LAST_TIMESTAMP_MS = (1 << 63) - 1

Topic = TypeVar("Topic")


# --- OffsetCommit ----------------------------------------------------------------------------------------------------


def offset_commit_error(request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    """Every partition of the request answered with the same error."""
    topics = same_error(request, error_code, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
    return OffsetCommitResponse(throttle_time_ms=0, topics=topics)


def same_error(request: Any, error_code: int, topic_type: type[Topic], partition_type: type[Any]) -> list[Topic]:
    """The topics of a response to OffsetCommit or TxnOffsetCommit, each partition with the same error."""
    make_topic: Any = topic_type
    return [
        make_topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                partition_type(partition_index=partition.partition_index, error_code=error_code)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def commit_offsets(
    group: Group | None,
    offsets: OffsetStore,
    request: OffsetCommitRequest,
    api_version: int,
    settings: GroupSettings,
    now_ms: int,
) -> Result:
    """Write offsets.  An unknown group is fine as long as it claims no generation."""
    result = Result()
    error = _accept(group, request, api_version, result)
    if error:
        return Result(offset_commit_error(request, error))
    records, topics = result.records, []
    metadata_max = settings.offset_metadata_max_bytes
    for topic in request.topics:
        prefix = offsets.key_prefix(request.group_id, topic.name)
        partitions = []
        for partition in topic.partitions:
            code = 0
            if partition.committed_metadata is not None and len(partition.committed_metadata) > metadata_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = _offset_value(partition, topic.topic_id, request.retention_time_ms, now_ms)
                records.append((prefix + pack_partition(partition.partition_index), value))
            partitions.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    result.response = OffsetCommitResponse(throttle_time_ms=0, topics=topics)
    return result


def commit_offsets_again(
    group: Group | None, commit: RepeatedCommit, requests: Sequence[CommittedPositions], now_ms: int
) -> Result:
    """Requests of a member that differ in their offsets alone; the response is the error code of all of them."""
    result = Result()
    result.response = _accept(group, commit.request, commit.api_version, result)
    if not result.response:
        for positions in requests:
            commit.add_records(result.records, positions, now_ms)
    return result


def _accept(group: Group | None, request: OffsetCommitRequest, api_version: int, result: Result) -> int:
    """Why the request is refused, or 0: then it is a sign of life of its member."""
    error = _check_commit(group, request, api_version)
    if not error and isinstance(group, ClassicGroup) and group.state in _STATES_WITH_SESSIONS:
        renew_session(group, group.members[request.member_id], result)
    return error


def _check_commit(group: Group | None, request: OffsetCommitRequest, api_version: int) -> int:
    generation_id = request.generation_id_or_member_epoch
    if group is not None:
        error = group.check_offset_commit(request.member_id, request.group_instance_id, generation_id)
        if api_version < group.offset_commit_version_min(request.member_id):
            return ErrorCode.UNSUPPORTED_VERSION
        if error not in _OLDER_EPOCH:
            return error
        partitions = ((topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions)
        return 0 if group.accepts_older_commit(request.member_id, generation_id, partitions) else error
    if generation_id < 0:
        return 0
    is_aware = api_version >= GROUP_ID_NOT_FOUND_VERSION
    return ErrorCode.GROUP_ID_NOT_FOUND if is_aware else ErrorCode.ILLEGAL_GENERATION


def _offset_value(partition: OffsetCommitRequestPartition, topic_id: bytes, retention_ms: int, now_ms: int) -> bytes:
    metadata = partition.committed_metadata or ""
    if retention_ms != BROKER_RETENTION:
        expire_ms = min(now_ms + retention_ms, _LAST_TIMESTAMP_MS)
        return pack_offset_with_expiry(partition.committed_offset, metadata, now_ms, expire_ms)
    return pack_offset(partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, topic_id)


# --- OffsetFetch -----------------------------------------------------------------------------------------------------


def fetch_offsets(
    group: Group | None,
    offsets: OffsetStore,
    request: OffsetFetchRequestGroup,
    require_stable: bool,
    topic_id: Callable[[str], bytes | None],
) -> OffsetFetchResponseGroup:
    """Offsets of one group: those that were asked for, or all that there are when ``topics`` is None.

    An offset of a deleted topic is not shown as one of its namesake, even where its tombstone could not be written or
    the partition was being loaded then. Kafka looks at that only where the client names ids. ``topic_id(name)`` is the
    id of the topic that has the name now.
    """
    group_id, exists = request.group_id, group is not None
    error = 0 if group is None else group.check_offset_fetch(request.member_id, request.member_epoch)
    if error:
        return offset_fetch_error(group_id, error)
    topics = []
    if request.topics is None:
        for committed in offsets.topics(group_id) if exists else ():
            current_id = topic_id(committed.topic) or ZERO_UUID
            partitions = [
                _fetch_one(offsets, committed, group_id, committed.topic, partition, current_id, require_stable)
                for partition in committed.values
            ]
            topics.append(OffsetFetchResponseTopics(name=committed.topic, topic_id=ZERO_UUID, partitions=partitions))
    for topic in request.topics or ():
        known = offsets.topic(group_id, topic.name) if exists else None
        current_id = topic_id(topic.name) or ZERO_UUID if topic.topic_id == ZERO_UUID else topic.topic_id
        partitions = [
            _fetch_one(offsets, known, group_id, topic.name, partition, current_id, require_stable)
            for partition in topic.partition_indexes
        ]
        topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=0)


def _fetch_one(
    offsets: OffsetStore,
    committed: TopicOffsets | None,
    group_id: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    require_stable: bool,
) -> OffsetFetchResponsePartitions:
    if require_stable and offsets.is_unstable(group_id, topic, partition):
        return no_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    value = None if committed is None else committed.values.get(partition)
    if value is None:
        return no_offset(partition)
    offset = read_offset(value)
    if topic_id not in {ZERO_UUID, offset.topic_id} and offset.topic_id != ZERO_UUID:
        return no_offset(partition)  # committed to a topic of this name that was deleted since
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=0,
    )


def no_offset(partition: int, error_code: int = 0) -> OffsetFetchResponsePartitions:
    """A partition without a committed offset."""
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=error_code,
    )


# --- OffsetDelete and the end of offsets -----------------------------------------------------------------------------


def offset_fetch_error(group_id: str, error_code: int) -> OffsetFetchResponseGroup:
    """Consumers before 3.9 do not retry an OffsetFetch on COORDINATOR_NOT_AVAILABLE, but look for it anew on this."""
    if error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        error_code = ErrorCode.NOT_COORDINATOR
    return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error_code)


def offset_delete_error(error_code: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error_code, throttle_time_ms=0, topics=[])


def delete_offsets(group: Group | None, offsets: OffsetStore, request: OffsetDeleteRequest) -> Result:
    """Forget single offsets, except of topics that a member reads."""
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
    if error or group is None:
        return Result(offset_delete_error(error))
    result = Result()
    topics = []
    for topic in request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        indexes = [partition.partition_index for partition in topic.partitions]
        if not subscribed:
            result.records += _tombstones(offsets, request.group_id, topic.name, indexes)
        partitions = [OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes]
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    result.response = OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics)
    return result


def _tombstones(offsets: OffsetStore, group_id: str, topic: str, partitions: list[int]) -> list[Record]:
    """For those of the partitions that have an offset, committed or inside a transaction; each once."""
    committed = offsets.topic(group_id, topic)
    prefix = offsets.key_prefix(group_id, topic)
    return [
        (prefix + pack_partition(partition), None)
        for partition in dict.fromkeys(partitions)
        if (committed is not None and partition in committed.values) or offsets.is_unstable(group_id, topic, partition)
    ]


def all_tombstones(offsets: OffsetStore, group_id: str) -> list[Record]:
    """For everything that the group has committed, or has inside open transactions."""
    records = [topic.tombstone(partition) for topic in offsets.topics(group_id) for partition in topic.values]
    keys = {key for key, _ in records}
    records += [(key, None) for key in offsets.unstable_keys(group_id) - keys]
    return records


def expired_tombstones(
    group: Group, offsets: OffsetStore, settings: GroupSettings, now_ms: int
) -> tuple[list[Record], bool]:
    """(tombstones of the group's expired offsets, whether nothing is left then)."""
    records: list[Record] = []
    nothing_left = True
    for topic in offsets.topics(group.group_id):
        if group.is_subscribed_to(topic.topic):
            nothing_left = False
            continue
        for partition, value in topic.values.items():
            if _is_expired(group, value, settings, now_ms) and not offsets.is_unstable(
                group.group_id, topic.topic, partition
            ):
                records.append(topic.tombstone(partition))
            else:
                nothing_left = False
    return records, nothing_left and not offsets.has_unstable(group.group_id)


def _is_expired(group: Group, value: bytes, settings: GroupSettings, now_ms: int) -> bool:
    offset = read_offset(value)
    begin_ms = group.offsets_expire_from(offset.commit_timestamp_ms)
    if begin_ms is None:
        return False
    if offset.expire_timestamp_ms != -1:
        return now_ms >= offset.expire_timestamp_ms
    return now_ms - begin_ms >= settings.offsets_retention_ms

"""TxnOffsetCommit and the end of its transactions: offsets that become current with the transaction, or never.

Owns: the decisions of TxnOffsetCommit v0-6, given names of topics that exist.  The pending offsets themselves, and what
the end of a transaction does to them, are in ``offset_store``; whether the transaction is open is the log's to know.

Counterpart in Kafka: ``OffsetMetadataManager.commitTransactionalOffset``.
"""

from __future__ import annotations

from pybroker.coordinators.group.group import Group
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.group.group_records import pack_offset, pack_partition
from pybroker.coordinators.group.offsets.offset_operations import same_error
from pybroker.coordinators.group.offsets.offset_store import OffsetStore
from pybroker.coordinators.result import ProducerOfRecords, Result
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

# The first version that tells of member epochs by their own names, too (KIP-1319).
TOPIC_IDS_VERSION = TxnOffsetCommitRequestTopic.since("topic_id")

# What consumers of a KIP-848 group call their generation, by the names of the classic protocol.
_OLD_GENERATIONS = frozenset((ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND))


def txn_offset_commit_error(request: TxnOffsetCommitRequest, error_code: int) -> TxnOffsetCommitResponse:
    """Every partition of the request answered with the same error."""
    topics = same_error(request, error_code, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition)
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)


def commit_transactional_offsets(
    group: Group | None,
    offsets: OffsetStore,
    request: TxnOffsetCommitRequest,
    api_version: int,
    settings: GroupSettings,
    now_ms: int,
) -> Result:
    """Write offsets inside of the producer's transaction.

    A producer may leave its consumer's generation and member out; what it names is checked (KIP-447).  A member of a
    KIP-848 group may be an epoch behind for what it has kept since then.  Topics have their names and their ids.
    """
    error = _check(group, request)
    if error:
        if api_version < TOPIC_IDS_VERSION and error in _OLD_GENERATIONS:
            error = ErrorCode.ILLEGAL_GENERATION
        return Result(txn_offset_commit_error(request, error))
    result = Result()
    result.producer = ProducerOfRecords(request.producer_id, request.producer_epoch)
    topics = []
    for topic in request.topics:
        prefix = offsets.key_prefix(request.group_id, topic.name)
        partitions = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            code = 0
            if len(metadata) > settings.offset_metadata_max_bytes:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = pack_offset(
                    partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, topic.topic_id
                )
                result.records.append((prefix + pack_partition(partition.partition_index), value))
            partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    result.response = TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)
    return result


def _check(group: Group | None, request: TxnOffsetCommitRequest) -> int:
    generation = request.generation_id_or_member_epoch
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND if generation >= 0 else 0
    error = group.check_offset_commit(request.member_id, request.group_instance_id, generation, is_transactional=True)
    if error == ErrorCode.STALE_MEMBER_EPOCH:
        partitions = ((topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions)
        if group.accepts_older_commit(request.member_id, generation, partitions):
            return 0
    return error

"""The records of consumer groups (KIP-848) in ``__consumer_offsets``, as bytes.

Owns: making and reading their keys and values in the versions that Kafka 4.4 writes.  The schemas are declared in
``pybroker_protocol.messages.records_consumer_group``.

Counterpart in Kafka: ``GroupCoordinatorRecordHelpers`` and ``GroupCoordinatorRecordSerde``.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from pybroker.coordinators.group.assignors.spec import Partitions
from pybroker.coordinators.group.consumer.consumer_member import (
    Assigned,
    ClassicFacet,
    ConsumerMember,
    MemberState,
    topic_names,
)
from pybroker.coordinators.result import Record
from pybroker_protocol import codec
from pybroker_protocol.messages.records_consumer_group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

# Kinds of keys.  PARTITION_METADATA is of Kafka 4.0, where a hash in GROUP_METADATA had not taken its place yet.
GROUP_METADATA = 3
PARTITION_METADATA = 4
MEMBER_METADATA = 5
TARGET_ASSIGNMENT_METADATA = 6
TARGET_ASSIGNMENT_MEMBER = 7
CURRENT_MEMBER_ASSIGNMENT = 8
REGULAR_EXPRESSION = 16

KINDS = frozenset(
    {
        GROUP_METADATA,
        PARTITION_METADATA,
        MEMBER_METADATA,
        TARGET_ASSIGNMENT_METADATA,
        TARGET_ASSIGNMENT_MEMBER,
        CURRENT_MEMBER_ASSIGNMENT,
        REGULAR_EXPRESSION,
    }
)

# Kinds whose keys name a member or a regular expression after the group.
_LONG_KEYS = frozenset({MEMBER_METADATA, TARGET_ASSIGNMENT_MEMBER, CURRENT_MEMBER_ASSIGNMENT, REGULAR_EXPRESSION})

# A key's kind and the length of its first string; the length of its second.
_KEY_HEAD = Struct(">hh")
_INT16 = Struct(">h")

VERSION_0 = _INT16.pack(0)


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched in the image of that version, at that time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def _key(kind: int, group_id: str, second: str | None = None) -> bytes:
    group = group_id.encode()
    key = _KEY_HEAD.pack(kind, len(group)) + group
    if second is None:
        return key
    encoded = second.encode()
    return key + _INT16.pack(len(encoded)) + encoded


def second_of_key(key: bytes) -> str:
    """The member id or the regular expression that a key names after the group, empty when it names the group alone."""
    kind, length = _KEY_HEAD.unpack_from(key)
    return key[_KEY_HEAD.size + length + _INT16.size :].decode() if kind in _LONG_KEYS else ""


def tombstone(kind: int, group_id: str, second: str | None = None) -> Record:
    """The record that takes another one back."""
    return _key(kind, group_id, second), None


# --- the group -------------------------------------------------------------------------------------------------------


def group_metadata_record(group_id: str, group_epoch: int, metadata_hash: int) -> Record:
    value = ConsumerGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash)
    return _key(GROUP_METADATA, group_id), VERSION_0 + codec.encode(value, 0)


def read_group_metadata(value: bytes) -> ConsumerGroupMetadataValue:
    return codec.decode(ConsumerGroupMetadataValue, 0, memoryview(value)[2:])


def regular_expression_record(group_id: str, regex: str, resolved: ResolvedRegex) -> Record:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return _key(REGULAR_EXPRESSION, group_id, regex), VERSION_0 + codec.encode(value, 0)


def read_regular_expression(value: bytes) -> ResolvedRegex:
    decoded = codec.decode(ConsumerGroupRegularExpressionValue, 0, memoryview(value)[2:])
    return ResolvedRegex(frozenset(decoded.topics), decoded.version, decoded.timestamp)


# --- the target assignment -------------------------------------------------------------------------------------------


def target_metadata_record(group_id: str, assignment_epoch: int, timestamp_ms: int) -> Record:
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms
    )
    return _key(TARGET_ASSIGNMENT_METADATA, group_id), VERSION_0 + codec.encode(value, 0)


def read_target_metadata(value: bytes) -> ConsumerGroupTargetAssignmentMetadataValue:
    return codec.decode(ConsumerGroupTargetAssignmentMetadataValue, 0, memoryview(value)[2:])


def target_member_record(group_id: str, member_id: str, target: Partitions) -> Record:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in target.items()
        ]
    )
    return _key(TARGET_ASSIGNMENT_MEMBER, group_id, member_id), VERSION_0 + codec.encode(value, 0)


def read_target_member(value: bytes) -> Partitions:
    decoded = codec.decode(ConsumerGroupTargetAssignmentMemberValue, 0, memoryview(value)[2:])
    return {topic.topic_id: frozenset(topic.partitions) for topic in decoded.topic_partitions}


# --- the members -----------------------------------------------------------------------------------------------------


def member_metadata_record(group_id: str, member: ConsumerMember) -> Record:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None if member.classic is None else _classic_metadata(member.classic),
    )
    return _key(MEMBER_METADATA, group_id, member.member_id), VERSION_0 + codec.encode(value, 0)


def _classic_metadata(classic: ClassicFacet) -> ClassicMemberMetadata:
    protocols = [ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols]
    return ClassicMemberMetadata(session_timeout_ms=classic.session_timeout_ms, supported_protocols=protocols)


def read_member_metadata(value: bytes, member: ConsumerMember) -> ConsumerMember:
    """The member with what the record says of it."""
    decoded = codec.decode(ConsumerGroupMemberMetadataValue, 0, memoryview(value)[2:])
    classic = decoded.classic_member_metadata
    return member._replace(
        instance_id=decoded.instance_id,
        rack_id=decoded.rack_id,
        rebalance_timeout_ms=decoded.rebalance_timeout_ms,
        client_id=decoded.client_id,
        client_host=decoded.client_host,
        subscribed_topic_names=topic_names(decoded.subscribed_topic_names),
        subscribed_topic_regex=decoded.subscribed_topic_regex or "",
        server_assignor=decoded.server_assignor,
        classic=None
        if classic is None
        else ClassicFacet(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )


def current_assignment_record(group_id: str, member: ConsumerMember) -> Record:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )
    return _key(CURRENT_MEMBER_ASSIGNMENT, group_id, member.member_id), VERSION_0 + codec.encode(value, 0)


def _topic_partitions(assigned: Assigned) -> list[TopicPartitions]:
    topics = []
    for topic_id, epochs in assigned.items():
        partitions = sorted(epochs)
        topics.append(
            TopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=[epochs[partition] for partition in partitions],
            )
        )
    return topics


def read_current_assignment(value: bytes, member: ConsumerMember) -> ConsumerMember:
    """The member with the epoch, the state and the partitions of the record."""
    decoded = codec.decode(ConsumerGroupCurrentMemberAssignmentValue, 0, memoryview(value)[2:])
    known = MemberState.STABLE <= decoded.state < MemberState.UNKNOWN
    return member._replace(
        member_epoch=decoded.member_epoch,
        previous_member_epoch=decoded.previous_member_epoch,
        state=MemberState(decoded.state) if known else MemberState.UNKNOWN,
        assigned=_read_topics(decoded.assigned_partitions, decoded.member_epoch),
        pending_revocation=_read_topics(decoded.partitions_pending_revocation, decoded.member_epoch),
    )


def _read_topics(topics: Iterable[TopicPartitions], member_epoch: int) -> Assigned:
    """Brokers before 4.3 wrote no epochs of partitions; a member's own is the latest that they can have."""
    assigned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        assigned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned

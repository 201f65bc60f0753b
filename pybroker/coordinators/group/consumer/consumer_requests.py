"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848) outside of any group: checks and responses.

Owns: what a request must be like whatever state its group is in, and the shape of what a group tells of itself.

Counterpart in Kafka: ``throwIfConsumerGroupHeartbeatRequestIsInvalid`` of ``GroupCoordinatorService``;
``asDescribedGroup`` of ``ConsumerGroup`` and ``ConsumerGroupMember``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pybroker.coordinators.group.consumer.consumer_group import NOTHING, ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_TIMEOUT,
    ConsumerMember,
)
from pybroker.coordinators.group.failures import GroupFailure
from pybroker.coordinators.group.group_topics import Topics
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.java_order import in_timeline_order, string_hash
from pybroker_protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from pybroker_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

# From this version on members make their ids themselves.
CLIENT_MEMBER_ID_VERSION = 1

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]
) -> GroupFailure | None:
    """Why the request is refused before its group is looked at."""
    message = _malformed(request, api_version)
    if message is not None:
        return GroupFailure(ErrorCode.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = f"ServerAssignor {request.server_assignor} is not supported. "
        message += f"Supported assignors: {', '.join(assignors)}."
        return GroupFailure(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    return None


def _malformed(request: ConsumerGroupHeartbeatRequest, api_version: int) -> str | None:
    epoch = request.member_epoch
    needs_id = api_version >= CLIENT_MEMBER_ID_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    if needs_id and not request.member_id.strip():
        return "MemberId can't be empty."
    for name, text in (("GroupId", request.group_id), ("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            return f"{name} can't be empty."
    if epoch == JOIN_EPOCH:
        return _malformed_join(request)
    if epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < LEAVE_STATIC_EPOCH else None


def _malformed_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def heartbeat_error(error_code: int, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error_code,
        error_message=message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )


# --- ConsumerGroupDescribe -------------------------------------------------------------------------------------------


def describe_error(group_id: str, error_code: int, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def described(group: ConsumerGroup, default_assignor: str, topics: Topics) -> DescribedGroup:
    """The group with all its members, as the log has them."""
    return DescribedGroup(
        error_code=0,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, member, topics) for member in in_timeline_order(group.members.values(), _hash_of)],
    )


def _hash_of(member: ConsumerMember) -> int:
    return string_hash(member.member_id)


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Member:
    has: dict[bytes, list[int]] = {}
    for assigned in (member.assigned, member.pending_revocation):
        for topic_id, epochs in assigned.items():
            has.setdefault(topic_id, []).extend(epochs)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(has, topics),
        target_assignment=_assignment(group.target.get(member.member_id, NOTHING), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(assigned: Mapping[bytes, Iterable[int]], topics: Topics) -> Assignment:
    """Topics that do not exist any more are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )

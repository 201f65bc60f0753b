"""Which member of a consumer group a request is about (KIP-848).

Owns: finding it, and what is wrong with a request that names none.  Changes nothing.

Counterpart in Kafka: ``getOrMaybeCreateMember`` of ``ConsumerGroup`` and the ``throwIf`` checks of
``GroupMetadataManager``.
"""

from __future__ import annotations

from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_member import ConsumerMember
from pybroker.coordinators.group.consumer.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.failures import GroupFailure
from pybroker_protocol.errors import ErrorCode


def check_not_full(group: ConsumerGroup, member_id: str, settings: ConsumerSettings) -> None:
    """Raise GroupFailure when the group is full and this is not one of its members."""
    if len(group.members) >= settings.max_size and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {settings.max_size} members."
        raise GroupFailure(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def dynamic_member(group: ConsumerGroup, member_id: str, may_be_new: bool) -> ConsumerMember:
    """The member, or a new one that is not in the group yet.  Raises GroupFailure."""
    member = group.members.get(member_id)
    if member is None and not may_be_new:
        message = f"Member {member_id} is not a member of group {group.group_id}."
        raise GroupFailure(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member or ConsumerMember(member_id)


def known_static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The member that has the instance id, if that is this one.  Raises GroupFailure."""
    member = group.static_member(instance_id)
    if member is None:
        raise GroupFailure(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise GroupFailure(ErrorCode.FENCED_INSTANCE_ID, message)
    return member

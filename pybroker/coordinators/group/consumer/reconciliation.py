"""The way of one member from what it has to what the target gives it: first it gives up, then it gets.

Owns: the next state of a member, given its own, the target and what others still have.  A pure function; its caller
writes the record.

    STABLE --------------- newer target ---------------> one of the three, by what is left to do
    UNREVOKED_PARTITIONS   stays until the member no longer names what it is to give up; its epoch stays, too
    UNRELEASED_PARTITIONS  has the target's epoch, and gets the rest as others let go of it

Counterpart in Kafka: ``CurrentAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pybroker.coordinators.group.assignors.spec import Partitions
from pybroker.coordinators.group.consumer.consumer_member import Assigned, ConsumerMember, MemberState, Owned
from pybroker.coordinators.group.failures import GroupFailure
from pybroker_protocol.errors import ErrorCode

NO_PARTITIONS: frozenset[int] = frozenset()


class Situation(NamedTuple):
    """What a member's next state depends on besides itself.

    ``owned`` is what the client says that it has, None when it does not say.  ``owner(topic_id, partition)`` is
    who has a partition, or None.  ``subscription_changed``: what is no longer subscribed to has to go at once.
    """

    assignment_epoch: int
    target: Partitions
    subscribed: frozenset[bytes]
    subscription_changed: bool
    owned: Owned | None
    owner: Callable[[bytes, int], str | None]


def reconcile(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    """The member's next state, or the same object when there is nothing to do; raises GroupFailure."""
    state = member.state
    if state is MemberState.STABLE:
        if member.member_epoch != situation.assignment_epoch:
            return _next(member, situation)
        return _drop_unsubscribed(member, situation) if situation.subscription_changed else member
    if state is MemberState.UNREVOKED_PARTITIONS and _still_owns(situation.owned, member.pending_revocation):
        return _drop_unsubscribed(member, situation) if situation.subscription_changed else member
    if state is MemberState.UNKNOWN and situation.owned != {}:
        message = "The consumer group member is in a unknown state. "
        message += "The member must abandon all its partitions and rejoin."
        raise GroupFailure(ErrorCode.FENCED_MEMBER_EPOCH, message)
    return _next(member, situation)


def _still_owns(owned: Owned | None, revoked: Assigned) -> bool:
    """Whether the client has, or may have, something that it is to give up."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoked.get(topic_id, ())) for topic_id, partitions in owned.items())


def _drop_unsubscribed(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    """Take away what the member does not subscribe to any more, without waiting for a new target."""
    gone = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in situation.subscribed}
    if not gone:
        return member
    kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in gone}
    pending = dict(member.pending_revocation)
    for topic_id, epochs in gone.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
    if not _still_owns(situation.owned, pending):
        return member.with_epoch(member.member_epoch, assigned=kept)
    return member.with_epoch(
        member.member_epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=pending
    )


def _next(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    """A step towards the target."""
    kept, revoked, granted, has_unreleased = _divide(member, situation)
    if revoked and _still_owns(situation.owned, revoked):
        epoch = situation.assignment_epoch if member.state is MemberState.UNKNOWN else member.member_epoch
        return member.with_epoch(
            epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
        )
    for topic_id, partitions in granted.items():
        kept[topic_id] = {**kept.get(topic_id, {}), **dict.fromkeys(partitions, situation.assignment_epoch)}
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
    return member.with_epoch(situation.assignment_epoch, state=state, assigned=kept, pending_revocation={})


def _divide(
    member: ConsumerMember, situation: Situation
) -> tuple[dict[bytes, dict[int, int]], dict[bytes, dict[int, int]], dict[bytes, list[int]], bool]:
    """(what stays, what has to go, what is free to come, whether something to come is still with others)."""
    kept: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    granted: dict[bytes, list[int]] = {}
    has_unreleased = False
    for topic_id in dict.fromkeys((*situation.target, *member.assigned)):
        target = situation.target.get(topic_id, NO_PARTITIONS) if topic_id in situation.subscribed else NO_PARTITIONS
        has = member.assigned.get(topic_id, {})
        stays = {partition: epoch for partition, epoch in has.items() if partition in target}
        if stays:
            kept[topic_id] = stays
        if len(stays) < len(has):
            revoked[topic_id] = {partition: epoch for partition, epoch in has.items() if partition not in target}
        own = member.pending_revocation.get(topic_id, {})
        wanted = [partition for partition in target if partition not in has]
        free = [partition for partition in wanted if partition in own or situation.owner(topic_id, partition) is None]
        if free:
            granted[topic_id] = free
        has_unreleased = has_unreleased or len(free) < len(wanted)
    return kept, revoked, granted, has_unreleased

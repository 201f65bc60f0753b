"""Classic groups become consumer groups and back, while their members go on (KIP-848).

Owns: when a group may change its protocol, and the records of the other kind of group.  All records of a change are one
batch with those of the request that caused it: either all of it happens or nothing.

A group that goes back to the classic protocol in the middle of a rebalance writes what its members hold, and a state
without a time. A broker that loads it goes on with the rebalance. A request that is refused does not disturb a classic
rebalance by upgrading it.

Counterpart in Kafka: ``convertToConsumerGroup``, ``convertToClassicGroup`` and their checks in
``GroupMetadataManager``; ``ConsumerGroup.fromClassicGroup``, ``ClassicGroup.fromConsumerGroup``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from pybroker.coordinators.group.classic.classic_group import NO_TIMESTAMP, ClassicGroup
from pybroker.coordinators.group.classic.classic_member import ClassicMember
from pybroker.coordinators.group.classic.group_responses import join_error, sync_error
from pybroker.coordinators.group.classic.rebalance import (
    SESSION_TIMER,
    join_timer,
    prepare_rebalance,
    renew_session,
    sync_timer,
)
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_member import ClassicFacet, ConsumerMember, topic_names
from pybroker.coordinators.group.consumer.consumer_records import (
    current_assignment_record,
    group_metadata_record,
    member_metadata_record,
    second_of_key,
    target_member_record,
    target_metadata_record,
)
from pybroker.coordinators.group.consumer.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.consumer.member_removal import cancel_timers
from pybroker.coordinators.group.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from pybroker.coordinators.group.failures import GroupFailure
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.group.group_records import key_kind
from pybroker.coordinators.group.group_topics import Topics
from pybroker.coordinators.result import Record, Result
from pybroker_protocol.errors import ErrorCode, ProtocolError

logger = logging.getLogger(__name__)


# --- up --------------------------------------------------------------------------------------------------------------


def upgraded(classic: ClassicGroup, settings: ConsumerSettings, topics: Topics) -> tuple[ConsumerGroup, list[Record]]:
    """(the consumer group that a classic one would be, the records that make it so).  Raises GroupFailure."""
    _check_upgrade(classic, settings)
    try:
        members = [_as_consumer_member(classic, member, topics) for member in classic.members.values()]
    except ProtocolError:
        raise _no_upgrade(classic, "the embedded consumer protocol is malformed") from None
    group_id, generation = classic.group_id, classic.generation_id
    names = {name for member in members for name in member.subscribed_topic_names}
    targets = [target_member_record(group_id, member.member_id, _partitions(member)) for member in members]
    records = [
        *(member_metadata_record(group_id, member) for member in members),
        group_metadata_record(group_id, generation, topics.metadata_hash(names)),
        *targets,
        target_metadata_record(group_id, generation, 0),
        *(current_assignment_record(group_id, member) for member in members),
    ]
    group = ConsumerGroup(group_id)
    for key, value in records:
        group.replay(key_kind(key), second_of_key(key), value)
    return group, [*classic.tombstones(), *records]


def _check_upgrade(classic: ClassicGroup, settings: ConsumerSettings) -> None:
    if not settings.may_upgrade:
        raise _no_upgrade(classic, "online upgrade is disabled")
    if not classic.uses_consumer_protocol:
        raise _no_upgrade(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > settings.max_size:
        raise _no_upgrade(classic, "the group size exceeds the consumer group maximum size")


def _no_upgrade(classic: ClassicGroup, reason: str) -> GroupFailure:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}."
    return GroupFailure(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _as_consumer_member(classic: ClassicGroup, member: ClassicMember, topics: Topics) -> ConsumerMember:
    """Raises ProtocolError, GroupFailure."""
    generation = classic.generation_id
    assigned, user_data = read_assignment(member.held)
    if user_data:
        reason = "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
        raise _no_upgrade(classic, f"{reason}assignor before re-attempting the upgrade")
    # A group that never came to a generation has chosen no protocol yet.
    protocols = dict(member.protocols)
    name = classic.protocol_name if classic.protocol_name in protocols else next(iter(protocols), "")
    subscription = read_subscription(protocols.get(name or "", b""))
    return ConsumerMember(
        member.member_id,
        generation,
        generation,
        member.group_instance_id,
        subscription.rack_id,
        member.rebalance_timeout_ms,
        member.client_id,
        member.client_host,
        topic_names(subscription.topics),
        assigned=_with_epoch(assigned, topics, generation),
        classic=ClassicFacet(member.session_timeout_ms, member.protocols),
    )


def _with_epoch(assigned: Mapping[str, frozenset[int]], topics: Topics, epoch: int) -> dict[bytes, dict[int, int]]:
    """By topic id; topics that do not exist any more are left out."""
    by_id = {topics.id_of(name): dict.fromkeys(sorted(partitions), epoch) for name, partitions in assigned.items()}
    return {topic_id: epochs for topic_id, epochs in by_id.items() if topic_id is not None}


def _partitions(member: ConsumerMember) -> dict[bytes, frozenset[int]]:
    return {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}


def finish_upgrade(classic: ClassicGroup, result: Result) -> None:
    """Members that wait for the classic rebalance begin anew; their sessions go on in the new group."""
    logger.debug("group %s: from the classic to the consumer protocol", classic.group_id)
    code = ErrorCode.REBALANCE_IN_PROGRESS
    for member in classic.members.values():
        result.reply(classic.take_join_waiter(member), join_error(member.member_id, code))
        result.reply(member.sync_waiter, sync_error(code))
        member.sync_waiter = None
        result.schedule((SESSION_TIMER, classic.group_id, member.member_id), member.session_timeout_ms)

    def then(_now_ms: int) -> Result:
        done = Result()
        done.cancel(join_timer(classic))
        done.cancel(sync_timer(classic))
        return done

    result.then = then


# --- down ------------------------------------------------------------------------------------------------------------


def may_downgrade(
    group: ConsumerGroup,
    gone: Sequence[ConsumerMember],
    come: int,
    settings: ConsumerSettings,
    classic_max_size: int,
) -> bool:
    """Whether all are classic with these members gone and so many classic ones come, and may be such a group."""
    left = len(group.members) - len(gone)
    only_classic = group.classic_members == left and all(member.classic is None for member in gone)
    return only_classic and 0 < left + come <= classic_max_size and settings.may_downgrade


def downgrade(
    group: ConsumerGroup,
    gone: Iterable[str],
    joining: ConsumerMember | None,
    topics: Topics,
    settings: GroupSettings,
    live: Callable[[], ClassicGroup],
    rebalance: bool,
    result: Result,
    now_ms: int,
) -> bool:
    """Add the records that make a classic group of this one; False, and nothing added, when they cannot be made.

    ``joining`` takes the place of the static member with its instance id; its own records are in ``result``.
    ``live()`` is the classic group once they are replayed: then sessions begin and, if ``rebalance``, a join phase.

    Kafka writes the target as what members have. Where a rebalance follows, the target may give away what its owner has
    not given back. A restart or an upgrade before the rebalance ends would make two owners of it. So what members hold
    is written then, and that a rebalance is due (see ``ClassicGroup.is_rebalance_due``).
    """
    classic = _as_classic_group(group, set(gone), joining, now_ms)
    gives = _held if rebalance else _target
    try:
        assignments = {
            member_id: _assignment(gives(group, member_id, joining), classic, member_id, topics)
            for member_id in classic.members
        }
    except ProtocolError:
        logger.warning("group %s stays a consumer group: a subscription cannot be read", group.group_id)
        return False
    replaced = group.static_member(joining.instance_id) if joining is not None else None
    renamed = {} if joining is None or replaced is None else {replaced.member_id: joining.member_id}
    members = list(classic.member_metadata(assignments))
    result.records += group.tombstones(renamed)
    state_timestamp_ms = NO_TIMESTAMP if rebalance else now_ms
    result.records.append(classic.record(classic.generation_id, state_timestamp_ms, members, classic.leader_id))
    protocols = {member_id: member.protocols for member_id, member in classic.members.items()}

    def then(then_ms: int) -> Result:
        logger.debug("group %s: from the consumer to the classic protocol", group.group_id)
        done = Result()
        now_classic = live()
        for member in now_classic.members.values():
            now_classic.set_protocols(member, protocols[member.member_id])
            cancel_timers(group, member.member_id, done)
            renew_session(now_classic, member, done)
        now_classic.learn_subscribed_topics()
        if rebalance:
            prepare_rebalance(now_classic, settings, then_ms, done)
        return done

    result.then = then
    return True


def _as_classic_group(
    group: ConsumerGroup, gone: set[str], joining: ConsumerMember | None, now_ms: int
) -> ClassicGroup:
    classic = ClassicGroup(group.group_id, now_ms)
    classic.generation_id = group.group_epoch
    members = [
        member
        for member in group.members.values()
        if member.member_id not in gone and (joining is None or member.instance_id != joining.instance_id)
    ]
    for member in members if joining is None else [*members, joining]:
        assert member.classic is not None
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                member.classic.protocols,
            ),
            CONSUMER_PROTOCOL_TYPE,
        )
    classic.protocol_name = classic.select_protocol()
    return classic


def _assignment(
    partitions: Mapping[bytes, Iterable[int]], classic: ClassicGroup, member_id: str, topics: Topics
) -> bytes:
    """A member's partitions, as the classic protocol says them.  Raises ProtocolError."""
    if classic.protocol_name is None:
        raise ProtocolError("the members have no protocol in common")
    return named_assignment(partitions, classic.members[member_id].metadata(classic.protocol_name), topics)


def _target(group: ConsumerGroup, member_id: str, joining: ConsumerMember | None) -> Mapping[bytes, Iterable[int]]:
    if joining is not None and joining.member_id == member_id:
        return group.target_of(joining)
    return group.target.get(member_id, {})


def _held(group: ConsumerGroup, member_id: str, joining: ConsumerMember | None) -> Mapping[bytes, Iterable[int]]:
    member = joining if joining is not None and joining.member_id == member_id else group.members[member_id]
    assigned, pending = member.assigned, member.pending_revocation
    return {
        topic_id: sorted({*assigned.get(topic_id, ()), *pending.get(topic_id, ())})
        for topic_id in {**assigned, **pending}
    }


def named_assignment(target: Mapping[bytes, Iterable[int]], metadata: bytes, topics: Topics) -> bytes:
    """Partitions as an assignment of the classic protocol, in the version of the member's subscription.

    Topics that do not exist any more are left out.  Raises ProtocolError.
    """
    by_name = {topics.name_of(topic_id): partitions for topic_id, partitions in target.items()}
    known = {name: partitions for name, partitions in by_name.items() if name is not None}
    return write_assignment(known, read_version(metadata))

"""The group epoch, the metadata hash and the target assignment of a consumer group.

Owns: when the group epoch grows, when a new target assignment is computed, and the records of both.

The group epoch grows when a subscription changes or a topic does; the target follows it, but not more often than the
group's assignment interval allows: members that heartbeat meanwhile go by the last one.  A target that takes long is
worked out in slices of the loop's time behind the request that asked for it, and then is the target of the epoch in
which it began; one at a time.

Counterpart in Kafka: ``TargetAssignmentBuilder``, and ``updateSubscriptionMetadata`` and
``maybeUpdateTargetAssignment`` of ``GroupMetadataManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

from pybroker import limits
from pybroker.coordinators.group.assignors.spec import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberSubscription,
    Partitions,
)
from pybroker.coordinators.group.consumer_group import NOTHING, ConsumerGroup
from pybroker.coordinators.group.consumer_member import ConsumerMember
from pybroker.coordinators.group.consumer_records import (
    PARTITION_METADATA,
    group_metadata_record,
    target_member_record,
    target_metadata_record,
    tombstone,
)
from pybroker.coordinators.group.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.topics import Topics
from pybroker.coordinators.result import Record, Result, TimerKey

logger = logging.getLogger(__name__)

ASSIGNMENT_TIMER = "consumer-assignment"


def update_group_epoch(
    group: ConsumerGroup,
    topics: Topics,
    bump: bool,
    after: ConsumerMember,
    records: list[Record],
) -> int:
    """The group epoch with one member changed: a new one if ``bump``, or if the topics are not what they were."""
    before = group.predecessor(after)
    removed = [] if before is None else [before]
    metadata_hash = topics.metadata_hash(group.subscribed_topics(removed, [after]))
    epoch = group.group_epoch
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        records.append(group_metadata_record(group.group_id, epoch, metadata_hash))
        logger.debug("group %s: epoch %d", group.group_id, epoch)
    group.metadata_checked = (topics.version, epoch)
    if group.has_partition_metadata:
        records.append(tombstone(PARTITION_METADATA, group.group_id))
    return epoch


def update_target(
    group: ConsumerGroup,
    settings: ConsumerSettings,
    topics: Topics,
    group_epoch: int,
    after: ConsumerMember,
    now_ms: int,
    result: Result,
) -> tuple[int, Partitions]:
    """(epoch of the target assignment, what it gives the member): a new one when it is time for it.

    One that takes long goes on behind the request; until it is there members go by the last one.
    """
    if not is_target_due(group, settings, group_epoch, now_ms):
        return group.assignment_epoch, group.target_of(after)
    coming = ComingTarget(group, _assignor(group, settings, after), topics, group_epoch, after)
    if coming.advance():
        result.records += coming.records(coming.shares.items(), group, now_ms)
        return group_epoch, coming.shares.get(after.member_id, NOTHING)
    group.coming_target = coming
    result.schedule(assignment_timer(group), 0)

    def on_failure(_failed_ms: int, _code: int) -> Result:
        # It is for a member, and an epoch, that the group does not have.
        group.coming_target = None
        return Result()

    result.on_failure = on_failure
    return group.assignment_epoch, group.target_of(after)


def assignment_timer(group: ConsumerGroup) -> TimerKey:
    return (ASSIGNMENT_TIMER, group.group_id, "")


def go_on_assigning(group: ConsumerGroup, settings: ConsumerSettings, topics: Topics, now_ms: int) -> Result:
    """Another slice of the target that is being worked out; written when it is the last, if it is of use yet.

    It begins here where the group was not there yet when it was asked for.
    """
    result = Result()
    if is_target_due(group, settings, group.group_epoch, now_ms):
        group.coming_target = ComingTarget(group, _assignor(group, settings), topics, group.group_epoch)
    coming = group.coming_target
    if coming is None:
        return result
    if not coming.advance():
        result.schedule(assignment_timer(group), 0)
        return result
    group.coming_target = None
    if group.assignment_epoch < coming.epoch <= group.group_epoch:
        result.records += coming.records(coming.shares_now(group), group, now_ms)
    return result


def is_target_due(group: ConsumerGroup, settings: ConsumerSettings, group_epoch: int, now_ms: int) -> bool:
    """Whether the target assignment is behind that epoch of the group, old enough for another, and none is coming."""
    if group_epoch <= group.assignment_epoch or group.coming_target is not None:
        return False
    last_ms = group.assignment_timestamp_ms
    if last_ms == 0:
        return True
    interval_ms = settings.assignment_interval_ms(group.group_id)
    return interval_ms == 0 or now_ms >= last_ms + interval_ms


# A target in the making, see ``assignors.spec.Steps``: the shares, and the records of those that are new.
_Making = Generator[int, None, tuple[GroupAssignment, dict[str, Record]]]


def _assignor(group: ConsumerGroup, settings: ConsumerSettings, after: ConsumerMember | None = None) -> Assignor:
    predecessor = None if after is None else group.predecessor(after)
    name = group.preferred_assignor(predecessor, after) or settings.default_assignor
    return settings.assignors.get(name) or settings.assignors[settings.default_assignor]


class ComingTarget:
    """A target assignment in the making, of the members and the topics as they were when it began.

    ``epoch`` is that of the group for which it is.  ``shares`` are what each member is to have, once it is done.
    """

    __slots__ = ("_assignor_name", "_encoded", "_group_id", "_making", "_members", "epoch", "shares")

    def __init__(
        self,
        group: ConsumerGroup,
        assignor: Assignor,
        topics: Topics,
        epoch: int,
        after: ConsumerMember | None = None,
    ) -> None:
        """``after`` is a member that changes, as it is about to be."""
        self._group_id = group.group_id
        self._assignor_name = assignor.name
        self.epoch = epoch
        self.shares: GroupAssignment = {}
        self._encoded: dict[str, Record] = {}
        members = dict(group.members)
        if after is not None:
            predecessor = group.predecessor(after)
            if predecessor is not None and predecessor.member_id != after.member_id:
                del members[predecessor.member_id]
            members[after.member_id] = after
        # Each member with what the target gives it so far.
        self._members = [
            (member, group.target_of(member) if member is after else group.target.get(member_id, NOTHING))
            for member_id, member in members.items()
        ]
        subscriptions = {_subscription(member): group.subscription(member) for member in members.values()}
        # Topics of its own, which no later image changes.
        self._making = _make(group.group_id, self._members, subscriptions, assignor, Topics(topics.image))

    def advance(self) -> bool:
        """Work on it for a slice of the loop's time; True when it is done."""
        left = limits.ASSIGNMENT_STEPS_PER_SLICE
        while left > 0:
            try:
                left -= next(self._making)
            except StopIteration as end:
                self.shares, self._encoded = end.value
                return True
        return False

    def shares_now(self, group: ConsumerGroup) -> Iterator[tuple[str, Partitions]]:
        """The shares of those members that are there yet; another that took a static one's place has its share."""
        for member, _ in self._members:
            present = group.members.get(member.member_id) or group.static_member(member.instance_id)
            if present is not None:
                yield present.member_id, self.shares[member.member_id]

    def records(self, shares: Iterable[tuple[str, Partitions]], group: ConsumerGroup, now_ms: int) -> Iterator[Record]:
        """The records of the shares that are not what the target has, and of the target as a whole."""
        for member_id, partitions in shares:
            if group.target.get(member_id) != partitions:
                encoded = self._encoded.get(member_id)
                yield encoded or target_member_record(self._group_id, member_id, partitions)
        yield target_metadata_record(self._group_id, self.epoch, now_ms)
        logger.debug("group %s: target assignment of epoch %d by %s", self._group_id, self.epoch, self._assignor_name)


def _subscription(member: ConsumerMember) -> tuple[frozenset[str], str]:
    return member.subscribed_topic_names, member.subscribed_topic_regex


def _make(
    group_id: str,
    members: Sequence[tuple[ConsumerMember, Partitions]],
    subscriptions: Mapping[tuple[frozenset[str], str], frozenset[str]],
    assignor: Assignor,
    topics: Topics,
) -> _Making:
    # Members have few different subscriptions, and those that have the same one share a set of ids.
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    for subscription, names in subscriptions.items():
        ids[subscription] = topics.ids_of(names)
        yield len(names)
    spec = {
        member.member_id: MemberSubscription(
            member.member_id, member.instance_id, member.rack_id, ids[_subscription(member)], assigned
        )
        for member, assigned in members
    }
    shares = yield from assignor.steps(GroupSpec(spec, len(ids) == 1), topics)
    encoded: dict[str, Record] = {}
    for member_id, partitions in shares.items():
        if partitions != spec[member_id].assigned:
            encoded[member_id] = target_member_record(group_id, member_id, partitions)
        yield 1 + len(partitions)
    return shares, encoded

"""A target assignment of a consumer group in the making.

Owns: the steps of one calculation, from the members and topics as they were when it began to the shares and their
records.  Knows no group: when one is made, and whether its target is still wanted, is ``assignment``'s.

Classic members do not rejoin while one is in the making, and a reload forgets it.

Counterpart in Kafka: ``TargetAssignmentBuilder``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

from pybroker.coordinators.group.assignors.spec import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberSubscription,
    Partitions,
)
from pybroker.coordinators.group.consumer.consumer_member import ConsumerMember
from pybroker.coordinators.group.consumer.consumer_records import target_member_record, target_metadata_record
from pybroker.coordinators.group.group_topics import Topics
from pybroker.coordinators.result import Record

# How many subscriptions and partitions a slice of working out a consumer group's target assignment goes through: about
# two milliseconds.
ASSIGNMENT_STEPS_PER_SLICE = 20_000

logger = logging.getLogger(__name__)

# Each member with what the last target gives it.
MembersToAssign = Sequence[tuple[ConsumerMember, Partitions]]
# See ``assignors.spec.Steps``: the shares, and the records of those that are new.
_Making = Generator[int, None, tuple[GroupAssignment, dict[str, Record]]]


class TargetAssignmentBuilder:
    """``epoch`` is that of the group for which it is.  ``shares`` are what each member is to have, once it is done."""

    __slots__ = ("_assignor_name", "_encoded", "_group_id", "_making", "_members", "epoch", "shares")

    def __init__(
        self,
        group_id: str,
        epoch: int,
        assignor: Assignor,
        topics: Topics,
        members: MembersToAssign,
        topics_of: Callable[[ConsumerMember], frozenset[str]],
    ) -> None:
        """``topics_of`` tells the names of all topics that a member subscribes to now."""
        self._group_id = group_id
        self._assignor_name = assignor.name
        self.epoch = epoch
        self.shares: GroupAssignment = {}
        self._encoded: dict[str, Record] = {}
        self._members = members
        subscriptions = {_subscription(member): topics_of(member) for member, _ in members}
        # Topics of its own, which no later image changes.
        self._making = _make(group_id, members, subscriptions, assignor, Topics(topics.image))

    def advance(self) -> bool:
        """Work on it for a slice of the loop's time; True when it is done."""
        left = ASSIGNMENT_STEPS_PER_SLICE
        while left > 0:
            try:
                left -= next(self._making)
            except StopIteration as end:
                self.shares, self._encoded = end.value
                return True
        return False

    def shares_now(
        self, successor: Callable[[ConsumerMember], ConsumerMember | None]
    ) -> Iterator[tuple[str, Partitions]]:
        """The shares of those members that are there yet; another that took a static one's place has its share."""
        for member, _ in self._members:
            present = successor(member)
            if present is not None:
                yield present.member_id, self.shares[member.member_id]

    def records(
        self, shares: Iterable[tuple[str, Partitions]], target: Mapping[str, Partitions], now_ms: int
    ) -> Iterator[Record]:
        """The records of the shares that are not what the last target has, and of the target as a whole."""
        for member_id, partitions in shares:
            if target.get(member_id) != partitions:
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

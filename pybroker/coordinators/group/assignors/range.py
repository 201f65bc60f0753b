"""The range assignor: contiguous ranges of each topic, so that equal topics are read side by side.

Owns: its rules. Each topic's partitions are cut into as many ranges as it has subscribers, the first ones longer by one
where the division leaves a rest. Members that subscribe to the same topics get the same partitions of all topics with
equally many, which is what joins need. What members had before does not count. Their order does: static members by
instance id, then the others by member id, so that a static member that comes back finds its ranges again.

Counterpart in Kafka: ``RangeAssignor``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import pairwise

from pybroker.coordinators.group.assignors.spec import (
    Assignor,
    GroupSpec,
    MemberSubscription,
    Partitions,
    Steps,
    TopicDescriber,
    partition_counts,
)

# A number of partitions and a number of subscribers: what the ranges of a topic depend on.
Shape = tuple[int, int]
Ranges = list[frozenset[int]]


class RangeAssignor(Assignor):
    """``range``."""

    name = "range"

    def steps(self, spec: GroupSpec, topics: TopicDescriber) -> Steps:
        """Cut every topic among its subscribers."""
        members = sorted(spec.members.values(), key=_rank)
        subscribers = yield from _subscribers(members, spec.subscription_is_homogeneous)
        counts = partition_counts(subscribers, topics)
        yield len(counts)
        shapes = {topic_id: (count, subscribers[topic_id]) for topic_id, count in counts.items()}
        ranges: dict[Shape, Ranges] = {}
        for shape in shapes.values():
            if shape not in ranges:
                ranges[shape] = _ranges(*shape)
                yield sum(shape)
        if spec.subscription_is_homogeneous:
            return (yield from _assign_homogeneous(members, shapes, ranges))
        by_topic = {topic_id: ranges[shape] for topic_id, shape in shapes.items()}
        return (yield from _assign_heterogeneous(members, by_topic))


def _rank(member: MemberSubscription) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id


def _subscribers(members: Sequence[MemberSubscription], homogeneous: bool) -> Generator[int, None, Mapping[bytes, int]]:
    if homogeneous:
        return dict.fromkeys(members[0].subscribed_topic_ids, len(members)) if members else {}
    counts: Counter[bytes] = Counter()
    for member in members:
        counts.update(member.subscribed_topic_ids)
        yield len(member.subscribed_topic_ids)
    return counts


def _ranges(partitions: int, subscribers: int) -> Ranges:
    """The ranges of a topic, in the order of its subscribers; there are none for those who get nothing."""
    quota, rest = divmod(partitions, subscribers)
    ends = [position * quota + min(position, rest) for position in range(subscribers + 1)]
    return [frozenset(range(start, end)) for start, end in pairwise(ends) if start < end]


def _assign_homogeneous(
    members: Iterable[MemberSubscription], shapes: Mapping[bytes, Shape], ranges: Mapping[Shape, Ranges]
) -> Steps:
    """The n-th member gets the n-th range of every topic."""
    alike: dict[Shape, list[bytes]] = {}
    for topic_id, shape in shapes.items():
        alike.setdefault(shape, []).append(topic_id)
    assignment: dict[str, Partitions] = {}
    for position, member in enumerate(members):
        partitions: dict[bytes, frozenset[int]] = {}
        for shape, topic_ids in alike.items():
            if position < len(ranges[shape]):
                partitions.update(dict.fromkeys(topic_ids, ranges[shape][position]))
        assignment[member.member_id] = _kept_if_same(member, partitions)
        yield 1 + len(partitions)
    return assignment


def _assign_heterogeneous(members: Iterable[MemberSubscription], ranges: Mapping[bytes, Ranges]) -> Steps:
    """Every member gets the next range of each topic that it subscribes to."""
    remaining = {topic_id: iter(each) for topic_id, each in ranges.items()}
    assignment: dict[str, Partitions] = {}
    for member in members:
        partitions = {
            topic_id: own
            for topic_id in member.subscribed_topic_ids & remaining.keys()
            if (own := next(remaining[topic_id], None))
        }
        assignment[member.member_id] = _kept_if_same(member, partitions)
        yield len(member.subscribed_topic_ids)
    return assignment


def _kept_if_same(member: MemberSubscription, partitions: Partitions) -> Partitions:
    return member.assigned if member.assigned == partitions else partitions

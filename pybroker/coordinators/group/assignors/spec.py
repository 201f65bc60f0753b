"""The input and the output of an assignor.

Owns: the vocabulary that all assignors share. An assignor is a function of its arguments alone: the same members,
subscriptions, assignments and topics give the same answer, whatever order they come in and after any restart. It
changes nothing that it is handed, and pauses often. A thousand members that subscribe to a thousand topics each keep it
busy for a third of a second, and its caller has others to serve.

A topic that the describer does not know has no partitions.  (Kafka's assignors fail on one, which cannot happen there
either: subscriptions are resolved by the same image of the metadata.)  Racks are part of the vocabulary, as in Kafka,
where no assignor looks at them either: a change of racks only makes a group assign anew.

Counterpart in Kafka: ``GroupSpec``, ``MemberSubscription``, ``SubscribedTopicDescriber``, ``GroupAssignment``,
``ConsumerGroupPartitionAssignor``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple, Protocol

# Topic id (16 bytes) -> partitions.
Partitions = Mapping[bytes, frozenset[int]]

# Member id -> what it is to read.  Every member of the spec is in it.
GroupAssignment = Mapping[str, Partitions]

# An assignment in the making: says at each pause how many subscriptions and partitions it went through since the last.
Steps = Generator[int, None, GroupAssignment]


class MemberSubscription(NamedTuple):
    """A member, what it subscribes to, and what the target assignment so far gives it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    subscribed_topic_ids: frozenset[bytes]
    assigned: Partitions


class GroupSpec(NamedTuple):
    """The members by id; ``subscription_is_homogeneous`` when all of them subscribe to the same topics."""

    members: Mapping[str, MemberSubscription]
    subscription_is_homogeneous: bool


class TopicDescriber(Protocol):
    """What the metadata says of topics."""

    def partition_count(self, topic_id: bytes) -> int:
        """How many partitions the topic has, -1 when there is no such topic."""

    def racks(self, topic_id: bytes, partition: int) -> frozenset[str]:
        """The racks of the partition's replicas."""


class Assignor(Protocol):
    """A way of dividing partitions among members."""

    # As clients and ``group.consumer.assignors`` say it.
    name: str

    def steps(self, spec: GroupSpec, topics: TopicDescriber) -> Steps:
        """The new target assignment, in steps; neither argument may change before the last.

        Of every topic that a member subscribes to, each partition goes to exactly one of its subscribers. A member
        whose share stays as it was gets the very object of ``assigned`` back.
        """
        ...

    def assign(self, spec: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """The new target assignment, at once."""
        steps = self.steps(spec, topics)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                assignment: GroupAssignment = end.value
                return assignment


def partition_counts(topic_ids: Iterable[bytes], topics: TopicDescriber) -> dict[bytes, int]:
    """The topics that have partitions, in the order of their ids, with their number."""
    counts = ((topic_id, topics.partition_count(topic_id)) for topic_id in sorted(topic_ids))
    return {topic_id: count for topic_id, count in counts if count > 0}


class Ownership:
    """What members may keep of their assignments: partitions that exist, that they subscribe to, and no other member
    has.

    A sound target assignment has no partition twice; should one have, the first member that asks keeps it.
    """

    __slots__ = ("_counts", "_owned")

    def __init__(self, counts: Mapping[bytes, int]) -> None:
        self._counts = counts
        self._owned: dict[bytes, set[int]] = {topic_id: set() for topic_id in counts}

    def keep(self, member: MemberSubscription) -> Partitions:
        """What this member may keep, from now on its own; ``member.assigned`` itself when that is all of it."""
        kept: dict[bytes, frozenset[int]] = {}
        altered = False
        for topic_id, partitions in member.assigned.items():
            valid = self._valid(topic_id, partitions) if topic_id in member.subscribed_topic_ids else frozenset()
            altered = altered or valid is not partitions
            if valid:
                kept[topic_id] = valid
                self._owned[topic_id] |= valid
        return kept if altered else member.assigned

    def _valid(self, topic_id: bytes, partitions: frozenset[int]) -> frozenset[int]:
        count = self._counts.get(topic_id, 0)
        if not partitions or not count:
            return frozenset()
        owned = self._owned[topic_id]
        if owned.isdisjoint(partitions) and max(partitions) < count:
            return partitions
        return frozenset(partition for partition in partitions - owned if partition < count)

    def unowned(self, topic_id: bytes) -> list[int]:
        """The partitions of a topic that no member keeps, ascending."""
        owned = self._owned[topic_id]
        count = self._counts[topic_id]
        return [] if len(owned) == count else [index for index in range(count) if index not in owned]

"""The uniform assignor: everybody as many partitions as everybody else, and as few moves as that takes.

Owns: the choice between the two ways of doing it, and the simpler one, for members that all subscribe to the same
topics.  Balance comes first: sizes differ by one at most.  Then stickiness: as many partitions as balance allows stay
where they are.  The members that get one more than the rest are those that have it already.

Counterpart in Kafka: ``UniformAssignor``, ``UniformHomogeneousAssignmentBuilder``.  Kafka goes through members and
topics in the order of their hashes; here both go by their ids, so that the outcome does not depend on history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybroker.coordinators.group.assignors.spec import (
    Assignor,
    GroupSpec,
    Ownership,
    Partitions,
    Steps,
    TopicDescriber,
    partition_counts,
)
from pybroker.coordinators.group.assignors.uniform_heterogeneous import assign_heterogeneous


class UniformAssignor(Assignor):
    """``uniform``."""

    name = "uniform"

    def steps(self, spec: GroupSpec, topics: TopicDescriber) -> Steps:
        """Divide all partitions evenly."""
        if not spec.members:
            return {}
        if spec.subscription_is_homogeneous:
            return (yield from _assign_homogeneous(spec, topics))
        return (yield from assign_heterogeneous(spec, topics))


def _assign_homogeneous(spec: GroupSpec, topics: TopicDescriber) -> Steps:
    subscribed = next(iter(spec.members.values())).subscribed_topic_ids
    counts = partition_counts(subscribed, topics)
    yield len(counts)
    ownership = Ownership(counts)
    kept: dict[str, Partitions] = {}
    for member_id in sorted(spec.members):
        kept[member_id] = ownership.keep(spec.members[member_id])
        yield 1 + len(kept[member_id])
    unassigned: list[tuple[bytes, int]] = []
    for topic_id, count in counts.items():
        unassigned += [(topic_id, index) for index in ownership.unowned(topic_id)]
        yield count
    return (yield from _even_out(kept, sum(counts.values()), unassigned))


def _even_out(kept: dict[str, Partitions], partitions_in_all: int, unassigned: list[tuple[bytes, int]]) -> Steps:
    """Cut what members keep to their quotas, and fill them up to those with what is left."""
    quota, members_with_one_more = divmod(partitions_in_all, len(kept))
    missing: dict[str, int] = {}
    for position, (member_id, partitions) in enumerate(kept.items()):
        size = sum(map(len, partitions.values()))
        # Who does not need the one more leaves it to those behind, as long as there are enough of them.
        one_more = members_with_one_more > 0 and (size > quota or len(kept) - position <= members_with_one_more)
        members_with_one_more -= one_more
        own_quota = quota + one_more
        if size > own_quota:
            kept[member_id], revoked = _cut(partitions, own_quota)
            unassigned += revoked
        elif size < own_quota:
            missing[member_id] = own_quota - size
        yield 1 + len(partitions)

    remaining = iter(unassigned)
    for member_id, count in missing.items():
        kept[member_id] = _fill(kept[member_id], remaining, count)
        yield count
    return kept


def _cut(partitions: Partitions, quota: int) -> tuple[Partitions, list[tuple[bytes, int]]]:
    """The first partitions, as many as the quota, and a list of the others."""
    kept: dict[bytes, frozenset[int]] = {}
    revoked: list[tuple[bytes, int]] = []
    for topic_id in sorted(partitions):
        indexes = sorted(partitions[topic_id])
        if quota:
            kept[topic_id] = frozenset(indexes[:quota])
        revoked += [(topic_id, index) for index in indexes[quota:]]
        quota = max(quota - len(indexes), 0)
    return kept, revoked


def _fill(partitions: Partitions, unassigned: Iterator[tuple[bytes, int]], count: int) -> Partitions:
    added: dict[bytes, list[int]] = {}
    for _, (topic_id, index) in zip(range(count), unassigned, strict=False):
        added.setdefault(topic_id, []).append(index)
    return merged(partitions, added)


def merged(partitions: Partitions, added: Mapping[bytes, list[int]]) -> Partitions:
    """The partitions with some more."""
    return {**partitions, **{topic: partitions.get(topic, frozenset()).union(more) for topic, more in added.items()}}

"""The uniform assignor for members that subscribe to different topics.

Owns: balance as far as subscriptions allow it.  Unassigned partitions go to the least loaded subscribers of their
topic, those of the topics with the most partitions per subscriber first.  Then, topic by topic and round by round,
partitions move from the most loaded subscribers to the least loaded ones, until a round moves nothing.

Counterpart in Kafka: ``UniformHeterogeneousAssignmentBuilder``, whose results it shares, ties included, given the same
order of members.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

from pybroker.coordinators.group.assignors.spec import (
    GroupSpec,
    MemberSubscription,
    Ownership,
    Partitions,
    Steps,
    TopicDescriber,
    partition_counts,
)

# Rounds of moves over all topics.  Where topics share all their subscribers the second round finds nothing to do;
# overlapping subscriptions may take long to settle, each round about halving the imbalance.
ROUNDS_MAX = 16

UNOWNED = -1

# How many it went through since the last pause; see ``spec.Steps``.
Pauses = Generator[int, None, None]


def assign_heterogeneous(spec: GroupSpec, topics: TopicDescriber) -> Steps:
    """The new target assignment of a group with different subscriptions."""
    members = [spec.members[member_id] for member_id in sorted(spec.members)]
    topic_ids: set[bytes] = set()
    for member in members:
        topic_ids |= member.subscribed_topic_ids
        yield len(member.subscribed_topic_ids)
    return (yield from _Builder(members, partition_counts(topic_ids, topics)).build())


class _Builder:
    """One assignment in the making.  Members are positions in the order of their ids."""

    def __init__(self, members: Sequence[MemberSubscription], counts: Mapping[bytes, int]) -> None:
        self._members = members
        self._counts = counts
        self._subscribers: dict[bytes, list[int]] = {topic_id: [] for topic_id in counts}
        # Topic id -> the owner of each partition.
        self._owners = {topic_id: [UNOWNED] * count for topic_id, count in counts.items()}
        # How many partitions each member has.
        self._sizes = [0] * len(members)
        self._kept: list[Partitions] = []
        self._ownership = Ownership(counts)

    def build(self) -> Steps:
        """Keep, fill up, balance."""
        yield from self._subscribe()
        yield from self._keep()
        by_density = sorted(self._counts, key=self._density)
        yield len(by_density)
        yield from self._fill_up(by_density)
        yield from self._balance([topic_id for topic_id in by_density if len(self._subscribers[topic_id]) > 1])
        return (yield from self._result())

    def _subscribe(self) -> Pauses:
        for position, member in enumerate(self._members):
            for topic_id in member.subscribed_topic_ids & self._counts.keys():
                self._subscribers[topic_id].append(position)
            yield len(member.subscribed_topic_ids)

    def _density(self, topic_id: bytes) -> tuple[float, int, bytes]:
        """Sorts the topics with the most partitions per subscriber first."""
        subscribers = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscribers, subscribers, topic_id

    def _keep(self) -> Pauses:
        for position, member in enumerate(self._members):
            kept = self._ownership.keep(member)
            self._kept.append(kept)
            for topic_id, partitions in kept.items():
                self._sizes[position] += len(partitions)
                owners = self._owners[topic_id]
                for partition in partitions:
                    owners[partition] = position
            yield 1 + len(kept)

    def _fill_up(self, topic_ids: Iterable[bytes]) -> Pauses:
        for topic_id in topic_ids:
            if unowned := self._ownership.unowned(topic_id):
                yield len(unowned) + len(self._subscribers[topic_id])
                levels = _Levels(self._subscribers[topic_id], self._sizes)
                for partition in unowned:
                    self._give(topic_id, partition, levels.next_least_loaded())

    def _give(self, topic_id: bytes, partition: int, position: int) -> None:
        owners = self._owners[topic_id]
        if owners[partition] != UNOWNED:
            self._sizes[owners[partition]] -= 1
        owners[partition] = position
        self._sizes[position] += 1

    def _balance(self, topic_ids: Sequence[bytes]) -> Pauses:
        """Go round the topics until all others have found nothing to move since the last one that moved something."""
        settled = 0
        for _ in range(ROUNDS_MAX):
            for topic_id in topic_ids:
                yield len(self._subscribers[topic_id])
                moved = self._balance_topic(topic_id)
                settled = 1 if moved else settled + 1
                if settled == len(topic_ids):
                    return

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Move partitions of one topic from its most to its least loaded subscribers; whether any moved."""
        loads = [self._sizes[position] for position in self._subscribers[topic_id]]
        if max(loads) - min(loads) <= 1:
            return False
        levels = _Levels(self._subscribers[topic_id], self._sizes)
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        moved = False
        while (giver := self._next_giver(levels, owned)) is not None:
            partition = owned[giver].pop()
            taker = levels.next_least_loaded()
            if levels.is_balanced:
                break
            self._give(topic_id, partition, taker)
            moved = True
        return moved

    @staticmethod
    def _next_giver(levels: _Levels, owned: Mapping[int, list[int]]) -> int | None:
        """The most loaded subscriber that has a partition of the topic to give, those without one left out for good."""
        while (giver := levels.next_most_loaded()) is not None and not owned.get(giver):
            levels.exclude_most_loaded()
        return giver

    def _result(self) -> Steps:
        shares: list[dict[bytes, list[int]]] = [{} for _ in self._members]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                shares[owner].setdefault(topic_id, []).append(partition)
            yield len(owners)
        assignment: dict[str, Partitions] = {}
        for member, kept, share in zip(self._members, self._kept, shares, strict=True):
            partitions = {topic_id: frozenset(indexes) for topic_id, indexes in share.items()}
            assignment[member.member_id] = kept if kept == partitions else partitions
            yield len(share)
        return assignment


class _Levels:
    """Two ranges of a topic's subscribers, sorted by load: the least loaded, which grows upwards as it is filled, and
    the most loaded, which grows downwards as it is emptied.

    A range is gone through once at its level; then its level moves by one and takes in the subscribers that were at
    that level from the start.  The sizes are those at the beginning of a range's life: a range's own moves are in its
    level.  When the levels are one apart or less, moving more would not help.
    """

    def __init__(self, subscribers: Iterable[int], sizes: Sequence[int]) -> None:
        """The subscribers in ascending order, and the sizes of all members."""
        self._sizes = sizes
        # Stable: equals stay in the order of their positions.
        self._sorted = sorted(subscribers, key=sizes.__getitem__)
        # The least loaded: [0, end).
        self._least_end = 0
        self._least_level = sizes[self._sorted[0]] - 1
        self._next_least = 0
        # The most loaded: [start, end); those behind the end have nothing to give.
        self._most_start = self._most_end = len(self._sorted)
        self._most_level = sizes[self._sorted[-1]] + 1
        self._next_most = len(self._sorted) - 1

    @property
    def is_balanced(self) -> bool:
        """Whether the two levels are one apart or less."""
        return self._most_level - self._least_level <= 1

    def next_least_loaded(self) -> int:
        """Whom to give the next partition; taken to have got it."""
        if self._next_least >= self._least_end:
            self._least_level += 1
            while self._least_end < len(self._sorted) and self._size_at(self._least_end) == self._least_level:
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return self._sorted[self._next_least - 1]

    def next_most_loaded(self) -> int | None:
        """The member to take the next partition from, taken to have lost it; None when none is left."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All of the range was excluded: go on with whoever comes next.
                self._most_level = self._size_at(self._most_start - 1)
            else:
                self._most_level -= 1
            while self._most_start > 0 and self._size_at(self._most_start - 1) == self._most_level:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        self._next_most -= 1
        return self._sorted[self._next_most + 1]

    def exclude_most_loaded(self) -> None:
        """Leave out whom :meth:`next_most_loaded` named last: nothing to give."""
        self._most_end -= 1
        last, excluded = self._most_end, self._next_most + 1
        self._sorted[last], self._sorted[excluded] = self._sorted[excluded], self._sorted[last]

    def _size_at(self, index: int) -> int:
        return self._sizes[self._sorted[index]]

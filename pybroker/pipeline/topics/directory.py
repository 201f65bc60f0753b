"""What a driver asks the cluster: which partitions a subscription has, and where they begin and end.

Owns what a subscription means; ``cluster_queries`` asks, one request per leader, however many partitions.  Nothing is
remembered: topics and partitions come and go under a running query.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec

from pybroker.pipeline.topics.cluster_queries import ClusterQueries
from pybroker.pipeline.topics.source_options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Bound,
    ByOffset,
    ByTimestamp,
    Edge,
    SourceOptions,
    Subscription,
)
from pybroker.pipeline.topics.topic_partitions import Offsets, TopicPartition, listed


class MissingTopics(RuntimeError):
    """A subscription names topics or partitions that the cluster does not have."""


class NoOffset(RuntimeError):
    """No record of a partition is as late as a starting timestamp, and the strategy is ``error``."""


class Directory:
    """Partitions and offsets, as they are at each call; raises `ClusterUnreachable` where the cluster is gone
    meanwhile.

    A refused client raises when it is made (`LoginRefused`).
    """

    def __init__(self, options: SourceOptions) -> None:
        self._subscription = options.subscription
        self._latest_without_timestamp = options.latest_without_timestamp
        self._queries = ClusterQueries(options.client)

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the subscription; raises `MissingTopics`."""
        return chosen(self._subscription, self._known())

    def partitions_left(self) -> frozenset[TopicPartition]:
        """Those of the subscription that are there, whatever is missing."""
        known = self._known()
        subscription = self._subscription
        if subscription.pattern:
            return chosen(subscription, known)
        named = {*subscription.topics, *(at.topic for at in subscription.assigned)} & known.keys()
        found = chosen(Subscription(topics=tuple(named)), known)
        return found & subscription.assigned if subscription.assigned else found

    def _known(self) -> Mapping[str, Iterable[int]]:
        """What a subscription may have: a pattern finds no internal topics, as with ``exclude.internal.topics``."""
        known = self._queries.partitions()
        if not self._subscription.pattern:
            return known
        found = matching(self._subscription.pattern, known)
        internal = self._queries.internal(found)
        return {name: known[name] for name in found if name not in internal}

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """What tells a topic from a former one of its name; none of topics that go meanwhile, or before KIP-516."""
        return {name: topic_id for name, topic_id in self._queries.topic_ids(names).items() if topic_id}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each begins."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def earliest_left(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where those begin that are there."""
        return self._queries.offsets_left(dict.fromkeys(partitions, OffsetSpec.earliest()))[0]

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each ends: for committed reads the last stable offset, else the high watermark."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where those that are there end, what open transactions have written counted in."""
        specs = dict.fromkeys(partitions, OffsetSpec.latest())
        return self._queries.offsets_left(specs, isolation=IsolationLevel.READ_UNCOMMITTED)[0]

    def starts(self, partitions: Iterable[TopicPartition], bound: Bound) -> dict[TopicPartition, int]:
        """Where ``bound`` begins in each; raises `NoOffset`."""
        return self._resolved(partitions, bound, self._start_without_timestamp)

    def ends(self, partitions: Iterable[TopicPartition], bound: Bound) -> dict[TopicPartition, int]:
        """Where ``bound`` ends in each; a partition without a record so late ends at its end."""
        return self._resolved(partitions, bound, self.latest)

    def _resolved(
        self,
        partitions: Iterable[TopicPartition],
        bound: Bound,
        without_timestamp: Callable[[Iterable[TopicPartition]], dict[TopicPartition, int]],
    ) -> dict[TopicPartition, int]:
        partitions = frozenset(partitions)
        if isinstance(bound, ByOffset):
            return self._by_offset(partitions, bound.offsets)
        if isinstance(bound, ByTimestamp):
            asked = _timestamps(partitions, bound)
            found = self._offsets({at: OffsetSpec.for_timestamp(ms) for at, ms in asked.items()})
            absent = [at for at, offset in found.items() if offset < 0]
            return {**found, **(without_timestamp(absent) if absent else {})}
        return self.earliest(partitions) if bound is Edge.EARLIEST else self.latest(partitions)

    def _by_offset(self, partitions: frozenset[TopicPartition], offsets: Offsets) -> dict[TopicPartition, int]:
        _check_named(partitions, offsets, "offsets")
        earliest = self.earliest(at for at, offset in offsets.items() if offset == EARLIEST_OFFSET)
        latest = self.latest(at for at, offset in offsets.items() if offset == LATEST_OFFSET)
        return {**offsets, **earliest, **latest}

    def _start_without_timestamp(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if not self._latest_without_timestamp:
            raise NoOffset(
                f"no record is as late as the starting timestamp in {listed(partitions)}; "
                "startingOffsetsByTimestampStrategy=latest starts at the end there"
            )
        return self.latest(partitions)

    def _offsets(self, specs: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        found, gone = self._queries.offsets_left(specs)
        for at in gone:
            raise MissingTopics(f"{at} has no leader: its topic may be gone")
        return found


def chosen(subscription: Subscription, known: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    """Those of ``known`` partitions that a subscription has; raises `MissingTopics` for named ones that are not."""
    if subscription.pattern:
        topics = matching(subscription.pattern, known)
    else:
        topics = [*subscription.topics, *{at.topic for at in subscription.assigned}]
    missing = [name for name in topics if name not in known]
    if missing:
        raise MissingTopics(f"no such topic: {', '.join(sorted(missing))}")
    found = frozenset(TopicPartition(name, partition) for name in topics for partition in known[name])
    if absent := subscription.assigned - found:
        raise MissingTopics(f"no such partition: {listed(absent)}")
    return subscription.assigned or found


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names in which the pattern is found, as by Spark's connector (its SubscribePatternStrategy)."""
    return [name for name in names if re.search(pattern, name)]


def _timestamps(partitions: frozenset[TopicPartition], bound: ByTimestamp) -> Offsets:
    if bound.everywhere_ms is not None:
        return dict.fromkeys(partitions, bound.everywhere_ms)
    _check_named(partitions, bound.partition_ms, "timestamps")
    return bound.partition_ms


def _check_named(partitions: frozenset[TopicPartition], named: Offsets, what: str) -> None:
    if partitions != named.keys():
        raise ValueError(
            f"{what} must be given for each subscribed partition and no other: "
            f"subscribed are {listed(partitions)}, given are {listed(named)}"
        )

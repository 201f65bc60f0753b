"""What a driver asks the cluster: which partitions a subscription has, and where they begin and end.

Owns one librdkafka admin client; each question about offsets is one request per leader, however many partitions.
Nothing is remembered: topics and partitions come and go under a running query.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import OffsetSpec

from pybroker.pipeline.topics.logins import admin_client
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

REQUEST_TIMEOUT_S = 60.0

_NO_ID = str(Uuid(0, 0))

# What is said of the leader of a partition that went since it was asked for.
_GONE = (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART)


class MissingTopics(RuntimeError):
    """A subscription names topics or partitions that the cluster does not have."""


class NobodyAnswers(RuntimeError):
    """No broker says which topics there are."""


class NoOffset(RuntimeError):
    """No record of a partition is as late as a starting timestamp, and the strategy is ``error``."""


class Directory:
    """Partitions and offsets, as they are at each call; raises `NobodyAnswers` where the cluster is gone meanwhile.

    Who is not let in is told when it is made (`LoginRefused`).
    """

    def __init__(self, options: SourceOptions) -> None:
        self._subscription = options.subscription
        self._latest_without_timestamp = options.latest_without_timestamp
        committed = options.client["isolation.level"] == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        consumers_alone = {"group.id", "isolation.level"}
        settings = {name: at for name, at in options.client.items() if name not in consumers_alone}
        self._bootstrap = options.client["bootstrap.servers"]
        self._admin = admin_client(settings, REQUEST_TIMEOUT_S)

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the subscription; raises `MissingTopics`."""
        return chosen(self._subscription, self._known_partitions())

    def partitions_left(self) -> frozenset[TopicPartition]:
        """Those of the subscription that are there, whatever is missing."""
        known = self._known_partitions()
        subscription = self._subscription
        if subscription.pattern:
            return chosen(subscription, known)
        named = {*subscription.topics, *(at.topic for at in subscription.assigned)} & known.keys()
        found = chosen(Subscription(topics=tuple(named)), known)
        return found & subscription.assigned if subscription.assigned else found

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """What tells a topic from a former one of its name; none of topics that go meanwhile, or before KIP-516."""
        if not names:
            return {}
        futures = self._admin.describe_topics(TopicCollection([*names]), request_timeout=REQUEST_TIMEOUT_S)
        ids: dict[str, str] = {}
        for name, future in futures.items():
            with suppress(KafkaException):
                ids[name] = str(future.result().topic_id)
        return {name: topic_id for name, topic_id in ids.items() if topic_id != _NO_ID}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each begins."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each ends: for committed reads the last stable offset, else the high watermark."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def starts(self, partitions: Iterable[TopicPartition], bound: Bound) -> dict[TopicPartition, int]:
        """Where ``bound`` begins in each; raises `NoOffset`."""
        return self._resolved(partitions, bound, self._start_without_timestamp)

    def ends(self, partitions: Iterable[TopicPartition], bound: Bound) -> dict[TopicPartition, int]:
        """Where ``bound`` ends in each; a partition without a record so late ends at its end."""
        return self._resolved(partitions, bound, self.latest)

    def _known_partitions(self) -> dict[str, list[int]]:
        try:
            topics = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        except KafkaException as error:
            raise NobodyAnswers(
                f"no broker of {self._bootstrap} answered within {REQUEST_TIMEOUT_S:.0f} s ({error.args[0].str()}); "
                "started again on its checkpoint, a query goes on where it stood"
            ) from error
        return {name: sorted(topic.partitions) for name, topic in topics.items() if topic.error is None}

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
        if not specs:
            return {}
        asked = {ClientTopicPartition(*at): spec for at, spec in specs.items()}
        futures = self._admin.list_offsets(asked, isolation_level=self._isolation, request_timeout=REQUEST_TIMEOUT_S)
        found: dict[TopicPartition, int] = {}
        for at, future in futures.items():
            try:
                found[TopicPartition(at.topic, at.partition)] = future.result().offset
            except KafkaException as error:
                if error.args[0].code() in _GONE:
                    raise MissingTopics(f"{at.topic}-{at.partition} has no leader: its topic may be gone") from error
                raise RuntimeError(f"the offset of {at.topic}-{at.partition}: {error.args[0].str()}") from error
        return found


def chosen(subscription: Subscription, known: Mapping[str, Iterable[int]]) -> frozenset[TopicPartition]:
    """Those of ``known`` partitions that a subscription has; raises `MissingTopics` for named ones that are not."""
    if subscription.pattern:
        topics = [name for name in known if re.fullmatch(subscription.pattern, name)]
    else:
        topics = [*subscription.topics, *{at.topic for at in subscription.assigned}]
    missing = [name for name in topics if name not in known]
    if missing:
        raise MissingTopics(f"no such topic: {', '.join(sorted(missing))}")
    found = frozenset(TopicPartition(name, partition) for name in topics for partition in known[name])
    if absent := subscription.assigned - found:
        raise MissingTopics(f"no such partition: {listed(absent)}")
    return subscription.assigned or found


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

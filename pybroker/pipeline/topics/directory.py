"""What a driver asks the cluster: which partitions a subscription has, and where they begin and end.

Owns one librdkafka admin client; each question about offsets is one request per leader, however many partitions.
Nothing is remembered: topics and partitions come and go under a running query.  A question is asked again where a
leader moves or a broker is gone: librdkafka's admin client leaves that to its caller.
"""

import re
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import ClusterMetadata, OffsetSpec

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

# How long a question is asked again: brokers may start anew meanwhile.  Twice what a write gives each of its calls:
# Spark repeats a task that fails, but ends a query whose look does.
REQUEST_TIMEOUT_S = 60.0
# A request to a broker that is gone waits for its timeout, while another one leads already.
ASKED_AGAIN_AFTER_S = 5.0
_PAUSE_S = 0.1

T = TypeVar("T")
At = TypeVar("At", bound=Hashable)

_NO_ID = str(Uuid(0, 0))

# What passes by itself: a leader moves or begins, or a broker is gone.
_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)

# What is said of the leader of a partition that went since it was asked for.
_GONE = frozenset({KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART})


class MissingTopics(RuntimeError):
    """A subscription names topics or partitions that the cluster does not have."""


class NobodyAnswers(RuntimeError):
    """No broker says which topics there are, or no leader where its partition ends."""


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
        # A connection to a broker that stands still is given up, or each request for metadata would take it again.
        settings.setdefault("socket.timeout.ms", str(int(ASKED_AGAIN_AFTER_S * 1_000)))
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

        def ask(names: Collection[str], within_s: float) -> Mapping[str, Callable[[], Any]]:
            futures = self._admin.describe_topics(TopicCollection([*names]), request_timeout=within_s)
            return {name: future.result for name, future in futures.items()}

        bootstrap = self._bootstrap
        found, _ = self._answers(names, ask, lambda name, known: name in known, lambda _: f"broker of {bootstrap}")
        ids = {name: str(topic.topic_id) for name, topic in found.items()}
        return {name: topic_id for name, topic_id in ids.items() if topic_id != _NO_ID}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each begins."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def earliest_left(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where those begin that are there."""
        return self._offsets_left(dict.fromkeys(partitions, OffsetSpec.earliest()))[0]

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
        return _partitions_of(self._metadata(time.monotonic() + REQUEST_TIMEOUT_S))

    def _metadata(self, deadline: float) -> ClusterMetadata:
        """What there is and who leads it; librdkafka asks those leaders from then on."""
        while True:
            try:
                return self._admin.list_topics(timeout=_within_s(deadline))
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                    raise _nobody_answers(f"broker of {self._bootstrap}", error.args[0]) from error
            time.sleep(_PAUSE_S)

    def _answers(
        self,
        asked: Collection[At],
        ask: Callable[[Collection[At], float], Mapping[At, Callable[[], T]]],
        is_there: Callable[[At, Mapping[str, Collection[int]]], bool],
        who: Callable[[At], str],
    ) -> tuple[dict[At, T], dict[At, KafkaError]]:
        """What is answered to each, and what has failed for good; raises `NobodyAnswers`, about the ``who`` of one."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        found: dict[At, T] = {}
        failed: dict[At, KafkaError] = {}
        while True:
            for at, answer in ask(asked, _within_s(deadline)).items():
                failed.pop(at, None)
                try:
                    found[at] = answer()
                except KafkaException as error:
                    failed[at] = error.args[0]
            again = [at for at, error in failed.items() if error.code() in _PASSING | _GONE]
            if not again:
                return found, failed
            if time.monotonic() > deadline:
                raise _nobody_answers(who(again[0]), failed[again[0]])
            time.sleep(_PAUSE_S)
            # A partition that changes its leader has none for a moment, as one that is gone.
            known = _partitions_of(self._metadata(deadline))
            asked = [at for at in again if failed[at].code() in _PASSING or is_there(at, known)]
            if not asked:
                return found, failed

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
        found, gone = self._offsets_left(specs)
        for at in gone:
            raise MissingTopics(f"{at} has no leader: its topic may be gone")
        return found

    def _offsets_left(
        self, specs: Mapping[TopicPartition, Any]
    ) -> tuple[dict[TopicPartition, int], Collection[TopicPartition]]:
        """Of those that are there, and which are not."""
        if not specs:
            return {}, ()

        def ask(partitions: Collection[TopicPartition], within_s: float) -> Mapping[TopicPartition, Callable[[], int]]:
            asked = {ClientTopicPartition(*at): specs[at] for at in partitions}
            futures = self._admin.list_offsets(asked, isolation_level=self._isolation, request_timeout=within_s)
            return {TopicPartition(at.topic, at.partition): partial(_offset, each) for at, each in futures.items()}

        def is_there(at: TopicPartition, known: Mapping[str, Collection[int]]) -> bool:
            return at.partition in known.get(at.topic, ())

        found, failed = self._answers(specs.keys(), ask, is_there, lambda at: f"leader of {at}")
        gone = [at for at, error in failed.items() if error.code() in _GONE]
        for at, error in failed.items():
            if error.code() not in _GONE:
                raise RuntimeError(f"the offset of {at}: {error.str()}")
        return found, gone


def _partitions_of(metadata: ClusterMetadata) -> dict[str, list[int]]:
    return {name: sorted(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}


def _offset(answer: Future[Any]) -> int:
    """What a leader said; of one that said nothing in time librdkafka may give no error, but this instead."""
    offset: int = answer.result().offset
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return offset


def _nobody_answers(who: str, error: KafkaError) -> NobodyAnswers:
    return NobodyAnswers(
        f"no {who} answered within {REQUEST_TIMEOUT_S:.0f} s ({error.str()}); "
        "started again on its checkpoint, a query goes on where it stood"
    )


def _within_s(deadline: float) -> float:
    """How long the next request may take; librdkafka wants some time in any case."""
    return max(min(ASKED_AGAIN_AFTER_S, deadline - time.monotonic()), _PAUSE_S)


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

"""Reads the results topic with a consumer group of librdkafka's, each member on a thread of its own.

The topic may hold a result more than once (the sink is at-least-once) and a rebalance may deliver a record twice; of
all records with one key the one with the highest offset wins. Keys stay in one partition, so offsets order them.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import OffsetSpec

from examples import feed
from examples.flights.delays import Cell, Delays, Results, cell_from_json, delays_from_json
from examples.flights.failures import RunFailed
from pybroker.pipeline.topics.client_calls import NoAnswer, commit_by
from pybroker.pipeline.topics.client_log import with_client_log
from pybroker.pipeline.topics.cluster_queries import ClusterQueries, ClusterUnreachable
from pybroker.pipeline.topics.topic_partitions import Offsets, TopicPartition, listed

POLL_RECORDS_MAX = 5_000
POLL_S = 0.1
STALLED_AFTER_SECONDS = 60

# The topic has no transactions; its end is that of its log, and what is read goes up to there.
ISOLATION = {"isolation.level": "read_uncommitted"}
MEMBER_SETTINGS: dict[str, Any] = {
    **ISOLATION,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    # A member learns by its next heartbeat that another one joins; with the default of three seconds the group would
    # spend more time on that than on reading.
    "heartbeat.interval.ms": 300,
}
# What a commit is answered with while another member joins or leaves.
_REBALANCING = frozenset(
    {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID}
)


class ResultRecord(NamedTuple):
    """What is read of a record."""

    offset: int
    key: bytes
    value: bytes


class ResultsNotRead(RunFailed):
    """The group read nothing for a minute although the topic holds more, or could not commit what it has read."""


class LatestResults:
    """What the group has read and committed so far, and whether that is all. Shared by the members' threads."""

    def __init__(self, end_offsets: Offsets, on_progress: Callable[[int], None]) -> None:
        self._lock = threading.Lock()
        self._unread = {partition: end for partition, end in end_offsets.items() if end > 0}
        self._uncommitted = dict(end_offsets)
        self._on_progress = on_progress
        self._latest: dict[Cell, tuple[int, Delays]] = {}
        self._progress_at = monotonic()
        self._heard = ""
        self.records_read = 0

    def add(self, partition: TopicPartition, records: Sequence[ResultRecord]) -> None:
        """Takes what one poll brought from a partition, in the order of offsets."""
        with self._lock:
            for record in records:
                cell = cell_from_json(record.key)
                if cell not in self._latest or self._latest[cell][0] <= record.offset:
                    self._latest[cell] = (record.offset, delays_from_json(record.value))
            if partition in self._unread and records[-1].offset + 1 >= self._unread[partition]:
                del self._unread[partition]
            self.records_read += len(records)
            self._progress_at = monotonic()
            self._on_progress(len(records))

    def hear(self, error: KafkaError) -> None:
        """Takes what librdkafka says of a partition or of the group: it tries again, and what does not pass stalls."""
        with self._lock:
            self._heard = error.str()

    def complete(self) -> bool:
        """Whether every partition was read to the end that it had at first; raises `ResultsNotRead`."""
        with self._lock:
            if self._unread and monotonic() - self._progress_at > STALLED_AFTER_SECONDS:
                why = f": {self._heard}" if self._heard else ""
                raise ResultsNotRead(f"nothing more comes from {listed(self._unread)}{why}")
            return not self._unread

    def uncommitted(self) -> Offsets:
        """The partitions whose ends no member has committed yet, with those."""
        with self._lock:
            return dict(self._uncommitted)

    def commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes that a member has committed the ends of its partitions."""
        with self._lock:
            for partition in partitions:
                self._uncommitted.pop(partition, None)

    def results(self) -> Results:
        """The last result of each cell."""
        with self._lock:
            return {cell: delays for cell, (_, delays) in self._latest.items()}


def end_offsets(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """The end of each partition of a topic; raises `ResultsNotRead`."""
    try:
        cluster_queries = ClusterQueries({"bootstrap.servers": bootstrap, **ISOLATION})
        partitions = [TopicPartition(topic, partition) for partition in cluster_queries.partitions().get(topic, ())]
        ends, _ = cluster_queries.offsets_left(dict.fromkeys(partitions, OffsetSpec.latest()))
    except KafkaException as error:
        raise ResultsNotRead(f"no broker answers at {bootstrap}: {feed.reason_of(error)}") from None
    except ClusterUnreachable as error:
        raise ResultsNotRead(str(error)) from None
    return ends


def read_results(
    bootstrap: str,
    ends: Offsets,
    group_id: str,
    members: int,
    on_progress: Callable[[int], None],
) -> LatestResults:
    """Reads partitions up to the given ends by a group of consumers that commits what it read.

    `on_progress` is called, by any member's thread, with the number of records read since its last call.
    Raises `ResultsNotRead`.
    """
    latest = LatestResults(ends, on_progress)
    topics = {partition.topic for partition in ends}
    with ThreadPoolExecutor(members, thread_name_prefix=group_id) as pool:
        runs = [pool.submit(_read_as_member, bootstrap, topics, group_id, latest) for _ in range(members)]
    for run in runs:
        run.result()
    return latest


def _read_as_member(bootstrap: str, topics: set[str], group_id: str, latest: LatestResults) -> None:
    settings = {"bootstrap.servers": bootstrap, **MEMBER_SETTINGS, "group.id": group_id}
    consumer = Consumer(with_client_log(settings))
    try:
        consumer.subscribe(sorted(topics))
        while not latest.complete():
            take(consumer.consume(POLL_RECORDS_MAX, POLL_S), latest)
        commit_ends(consumer, latest)
    finally:
        consumer.close()


def take(messages: Iterable[Any], latest: LatestResults) -> None:
    """Hands over what librdkafka's messages have: records by partition, in the order of offsets, and errors."""
    found: dict[TopicPartition, list[ResultRecord]] = {}
    for message in messages:
        if (error := message.error()) is not None:
            latest.hear(error)
            continue
        partition = TopicPartition(message.topic(), message.partition())
        found.setdefault(partition, []).append(ResultRecord(message.offset(), message.key(), message.value()))
    for partition, records in found.items():
        latest.add(partition, records)


def commit_ends(consumer: Consumer, latest: LatestResults) -> None:
    """Commits the ends of this member's partitions, and returns when the group has committed all of them.

    While another member joins or leaves nothing can be committed, and librdkafka has no partitions for a while: this
    member takes part in that, and commits for what it has then. Raises `ResultsNotRead` after a minute of that, and
    where a commit is refused.
    """
    gives_up_at = monotonic() + STALLED_AFTER_SECONDS
    while uncommitted := latest.uncommitted():
        assigned = {TopicPartition(each.topic, each.partition) for each in consumer.assignment()}
        owned = {partition: end for partition, end in uncommitted.items() if partition in assigned}
        why = _refusal(consumer, owned) if owned else "no member has it"
        if why is None:
            latest.commit(owned)
        elif monotonic() > gives_up_at:
            raise _not_committed(uncommitted, why)
        else:
            consumer.consume(POLL_RECORDS_MAX, POLL_S)


def _refusal(consumer: Consumer, offsets: Offsets) -> str | None:
    """Commits; why that cannot be done yet, if it cannot. Raises `ResultsNotRead` for what does not pass."""
    at_ends = [ClientTopicPartition(*partition, offset) for partition, offset in offsets.items()]
    try:
        commit_by(consumer, at_ends, STALLED_AFTER_SECONDS)
    except KafkaException as error:
        if error.args[0].code() in _REBALANCING:
            return feed.reason_of(error)
        raise _not_committed(offsets, feed.reason_of(error)) from None
    except NoAnswer as error:
        raise _not_committed(offsets, str(error)) from None
    return None


def _not_committed(partitions: Iterable[TopicPartition], why: str) -> ResultsNotRead:
    return ResultsNotRead(f"{listed(partitions)} was read, and its end could not be committed: {why}")

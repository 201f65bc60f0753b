"""Reads the results topic with a kafka-python consumer group, each member on a thread of its own.

The topic may hold a result more than once (the sink is at-least-once) and a rebalance may deliver a record twice; of
all records with one key the one with the highest offset wins. Keys stay in one partition, so offsets order them.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import CommitFailedError, RebalanceInProgressError

from pybroker.pipeline.flights.delays import Cell, Delays, Results, cell_from_json, delays_from_json

POLL_TIMEOUT_MS = 500
# A member learns by its next heartbeat that another one joins; with kafka-python's three seconds the group would spend
# more time on that than on reading.
HEARTBEAT_INTERVAL_MS = 300
STALLED_AFTER_SECONDS = 60


class ResultsStalled(RuntimeError):
    """The group read nothing for a minute although the topic holds more."""


class LatestResults:
    """What the group has read so far, and whether that is all. Shared by the members' threads."""

    def __init__(self, end_offsets: Mapping[TopicPartition, int], on_progress: Callable[[int], None]) -> None:
        self._lock = threading.Lock()
        self._unread = {partition: end for partition, end in end_offsets.items() if end > 0}
        self._on_progress = on_progress
        self._latest: dict[Cell, tuple[int, Delays]] = {}
        self._progress_at = monotonic()
        self.records_read = 0

    def add(self, partition: TopicPartition, records: list[ConsumerRecord]) -> None:
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

    def complete(self) -> bool:
        """Whether every partition was read to the end that it had at first; raises `ResultsStalled`."""
        with self._lock:
            if self._unread and monotonic() - self._progress_at > STALLED_AFTER_SECONDS:
                raise ResultsStalled(f"nothing more comes from {sorted(self._unread)}")
            return not self._unread

    def results(self) -> Results:
        """The last result of each cell."""
        with self._lock:
            return {cell: delays for cell, (_, delays) in self._latest.items()}


def end_offsets(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """The end of each partition of a topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        partitions = [TopicPartition(topic, partition) for partition in sorted(consumer.partitions_for_topic(topic))]
        return dict(consumer.end_offsets(partitions))
    finally:
        consumer.close()


def read_results(
    bootstrap: str,
    ends: Mapping[TopicPartition, int],
    group_id: str,
    members: int,
    on_progress: Callable[[int], None],
) -> LatestResults:
    """Reads partitions up to the given ends by a group of consumers that commits what it read.

    `on_progress` is called, by any member's thread, with the number of records read since its last call.
    Raises `ResultsStalled`.
    """
    latest = LatestResults(ends, on_progress)
    topics = {partition.topic for partition in ends}
    with ThreadPoolExecutor(members, thread_name_prefix=group_id) as pool:
        runs = [pool.submit(_read_as_member, bootstrap, topics, group_id, latest, ends) for _ in range(members)]
    for run in runs:
        run.result()
    return latest


def _read_as_member(
    bootstrap: str, topics: set[str], group_id: str, latest: LatestResults, ends: Mapping[TopicPartition, int]
) -> None:
    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
    )
    try:
        while not latest.complete():
            for partition, records in consumer.poll(timeout_ms=POLL_TIMEOUT_MS, max_records=5_000).items():
                latest.add(partition, records)
        commit_ends(consumer, ends)
    finally:
        consumer.close()


def commit_ends(consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]) -> None:
    """Commits the ends of the partitions that this member has, which the group has read up to there.

    While another member joins or leaves nothing can be committed: this one takes part in that, and commits for what it
    has then. Raises what the last try did after a minute of that.
    """
    gives_up_at = monotonic() + STALLED_AFTER_SECONDS
    while True:
        owned = consumer.assignment() & ends.keys()
        try:
            consumer.commit({partition: OffsetAndMetadata(ends[partition]) for partition in owned})
            return
        except (RebalanceInProgressError, CommitFailedError):
            if monotonic() > gives_up_at:
                raise
        consumer.poll(timeout_ms=POLL_TIMEOUT_MS)

"""A query's progress as a consumer group's offsets, so that every tool of Kafka's shows its lag.

Owns the way from a query's progress to a group, and back to the offsets where a new query starts.  Works with any
source whose offsets are those of topics: Spark's own connector and ``format("pybroker")``.  The group has no members;
what Spark goes by is the query's checkpoint, never the group.  A query that falls behind is a
warning, and so is that it has caught up.
"""

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from pybroker.pipeline.lag_watch import LagWatch
from pybroker.pipeline.observed_metrics import hear_nothing_more
from pybroker.pipeline.topics.admin_logins import admin_client
from pybroker.pipeline.topics.client_calls import (
    REQUEST_TIMEOUT_S,
    NoAnswer,
    commit_by,
    committing_consumer,
    connection,
    offsets_of,
)
from pybroker.pipeline.topics.cluster_queries import ClusterQueries
from pybroker.pipeline.topics.librdkafka_settings import client_settings
from pybroker.pipeline.topics.source_options import EARLIEST_OFFSET
from pybroker.pipeline.topics.topic_partitions import Offsets, TopicPartition, offsets_of_json, tree_of_offsets

COMMIT_TIMEOUT_S = 10.0
LOOKED_EVERY_S = 5.0  # at the ends of the topics, to see whether a query falls behind

_log = logging.getLogger(__name__)


def mirror_progress(
    spark: SparkSession, query: StreamingQuery, group: str, settings: Mapping[str, str]
) -> "ProgressMirror":
    """Commit, from now on and until the query ends, what ``query`` has processed as offsets of ``group``.

    ``settings`` are a client's, ``bootstrap.servers`` at least.  A commit that fails is a warning: the next progress
    carries all offsets again.
    """
    mirror = ProgressMirror(spark, str(query.id), group, settings)
    spark.streams.addListener(mirror)
    # What happened before the listener was there; the listener's thread may have reported later things by now.
    if query.lastProgress is not None:
        mirror.tell(query.lastProgress)
    if not query.isActive:
        # The listener hears nothing more when it is closed, and may not have heard of the end yet.
        if query.lastProgress is not None:
            mirror.tell(query.lastProgress)
        mirror.close()
    return mirror


def group_offsets(group: str, topics: Iterable[str], settings: Mapping[str, str]) -> str:
    """Where ``group`` stands, as a source's option ``startingOffsets``; a partition that it has not read is read whole.

    Raises ValueError for a topic that is not there, and `LoginRefused`.
    """
    client = client_settings(settings)
    admin = admin_client(client, REQUEST_TIMEOUT_S)
    known = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    offsets: dict[TopicPartition, int] = {}
    for topic in topics:
        if topic not in known:
            raise ValueError(f"no such topic: {topic}")
        offsets |= {TopicPartition(topic, partition): EARLIEST_OFFSET for partition in known[topic].partitions}
    for at in offsets_of(connection(client), group, [ClientTopicPartition(*each) for each in offsets]):
        offsets[TopicPartition(at.topic, at.partition)] = at.offset
    return json.dumps(tree_of_offsets(offsets))


def processed_offsets(progress: StreamingQueryProgress) -> dict[TopicPartition, int]:
    """Where a query stands in the topics that it reads; where it reads one twice, what both have read."""
    offsets: dict[TopicPartition, int] = {}
    for source in progress.sources:
        try:
            found = offsets_of_json(source.endOffset or "")
        except ValueError:  # of files, of a rate: another source's own form
            continue
        offsets |= {at: min(offset, offsets.get(at, offset)) for at, offset in found.items()}
    return offsets


class ProgressMirror(StreamingQueryListener):
    """Hears of each micro-batch of one query, on a thread of Spark's, until the query ends or `close`.

    Invariants: a micro-batch that is reported late moves nothing back.
    """

    def __init__(self, spark: SparkSession, query_id: str, group: str, settings: Mapping[str, str]) -> None:
        super().__init__()
        self._spark = spark
        self._query_id = query_id
        self._group = group
        self._client = client_settings(settings)
        # None once it is closed.
        self._consumer: Consumer | None = committing_consumer(self._client, group, COMMIT_TIMEOUT_S)
        self._questions: ClusterQueries | None = None
        self._watch = LagWatch(group)
        self._looked_at_s = -LOOKED_EVERY_S
        self._lock = threading.Lock()
        self._batch = -1
        # What the query said of its sources as it was committed.
        self._committed: list[str] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is processed yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A micro-batch is done."""
        if str(event.progress.id) == self._query_id:
            self.tell(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The offsets stay."""
        if str(event.id) == self._query_id:
            self.close()

    def close(self) -> None:
        """Commit nothing more.  What was committed stays."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
            self._questions = None
        if consumer is None:
            return
        hear_nothing_more(self._spark, self)
        # It ends with its last reference: where a commit is still waited for, by the thread of that commit.
        del consumer

    def tell(self, progress: StreamingQueryProgress) -> None:
        """Commit where the query stands, unless it is known to be further."""
        with self._lock:
            if progress.batchId < self._batch or self._consumer is None:
                return
            self._batch = progress.batchId
            offsets = processed_offsets(progress)
            said = [source.endOffset for source in progress.sources]
            # With a topic a group's offsets in it go.  Of one that was made anew, and is read to the same offset, the
            # query has said another one meanwhile (`planned_ids.distinguishable`).
            if offsets and said != self._committed and self._commit(self._consumer, offsets):
                self._committed = said
            now_s = time.monotonic()
            if offsets and now_s - self._looked_at_s >= LOOKED_EVERY_S:
                self._looked_at_s = now_s
                self._look_behind(offsets, progress.numInputRows, now_s)

    def _look_behind(self, offsets: Offsets, taken: int, now_s: float) -> None:
        """Say that the query falls behind, or has caught up; nothing where the ends cannot be had."""
        self._questions = self._questions or ClusterQueries({"isolation.level": "read_uncommitted", **self._client})
        try:
            ends, _ = self._questions.offsets_left(dict.fromkeys(offsets, OffsetSpec.latest()), COMMIT_TIMEOUT_S)
        except RuntimeError as error:
            _log.debug("the lag of %s: %s", self._group, error)
            return
        lag = sum(max(end - offsets[at], 0) for at, end in ends.items())
        if (said := self._watch.observe(lag, taken, now_s)) is not None:
            _log.warning("%s", said)

    def _commit(self, consumer: Consumer, offsets: Offsets) -> bool:
        """In bounded time, since this thread hears of other queries, too; False where it fails, which is logged."""
        at = [ClientTopicPartition(*where, offset) for where, offset in offsets.items()]
        try:
            commit_by(consumer, at, COMMIT_TIMEOUT_S)
        except KafkaException as error:
            _log.warning("offsets of group %s: %s", self._group, error.args[0].str())
        except NoAnswer:
            _log.warning("offsets of group %s: no broker answered within %.0f s", self._group, COMMIT_TIMEOUT_S)
        else:
            return True
        return False

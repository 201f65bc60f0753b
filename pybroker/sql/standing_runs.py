"""A standing query that runs: an object that its owner starts, asks how it is, and stops.

Owns nothing that outlives it but the query's checkpoint, its group's offsets and the records of its topic.  Where the
plan is kept, and who starts it again, is its owner's: a supervisor, or a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from pybroker.pipeline.query_failure import what_ended
from pybroker.pipeline.streams.jobs import BrokerTopics, start
from pybroker.sql.spark_plans import SparkPlan
from pybroker.sql.standing_jobs import standing_job


class StandingRun:
    """One run of a standing query."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    @property
    def failure(self) -> str | None:
        """Why it ended by itself; None while it runs."""
        if self._query.isActive:
            return None
        return what_ended(self._query) or "the query ended without an error"

    @property
    def batches(self) -> int:
        """How many micro-batches of this query are done, by all of its runs."""
        progress = self._query.lastProgress
        return 0 if progress is None else int(progress["batchId"]) + 1

    def stop(self) -> None:
        """End it; returns when it writes nothing more.  The next run goes on behind the last whole micro-batch."""
        self._query.stop()

    def process_all(self) -> None:
        """Return when all that was there at the call is processed; raises what ends the query."""
        self._query.processAllAvailable()


def start_standing(
    plan: SparkPlan,
    topic: str,
    topics: BrokerTopics,
    checkpoints_dir: Path | str,
    *,
    interval: str = "0 seconds",
    group: str | None = None,
    sink_options: Mapping[str, str] | None = None,
) -> StandingRun:
    """Run a plan that writes ``topic``, or go on where its last run stopped; arguments are those of a job's ``start``.

    Raises ValueError for what cannot be meant, and what Spark says of a query that it does not know.
    """
    job = standing_job(plan, topic)
    (query,) = start(job, topics, checkpoints_dir, interval=interval, group=group, sink_options=sink_options)
    return StandingRun(query)

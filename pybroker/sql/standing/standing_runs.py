"""A standing query that runs: an object that its owner starts, asks how it is, and stops.

Owns nothing that outlives it but the query's checkpoint, its group's offsets and the records of its topic.  Where the
plan is kept, and who starts it again, is its owner's: a supervisor, or a test.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from pybroker.pipeline.query_failure import failure_of
from pybroker.pipeline.streams.jobs import BrokerTopics, outputs_of, sink_of, start_output
from pybroker.sql.standing.left_out import LeftOut
from pybroker.sql.standing.standing_jobs import standing_job
from pybroker.sql.standing.standing_plans import SparkPlan

_BEGINS: Final = "startingOffsets"
_AT_ONCE: Final = "maxOffsetsPerTrigger"


class StandingRun:
    """One run of a standing query."""

    def __init__(self, query: StreamingQuery, left_out: LeftOut) -> None:
        self._query = query
        self._left_out = left_out

    @property
    def failure(self) -> str | None:
        """Why it ended by itself; None while it runs."""
        return failure_of(self._query)

    @property
    def remark(self) -> str | None:
        """Which records it has left out; None for none."""
        return self._left_out.remark()

    @property
    def batches(self) -> int:
        """How many micro-batches of this query are done, by all of its runs."""
        progress = self._query.lastProgress
        return 0 if progress is None else int(progress["batchId"]) + 1

    def stop(self) -> None:
        """End it; returns when it writes nothing more.  The next run goes on behind the last whole micro-batch."""
        self._query.stop()
        self._left_out.close()

    def process_all(self) -> None:
        """Return when all that was there at the call is processed; raises what ends the query."""
        self._query.processAllAvailable()


def start_standing(
    plan: SparkPlan,
    topic: str,
    topics: BrokerTopics,
    checkpoint: Path | str,
    *,
    name: str | None = None,
    interval: str = "0 seconds",
    group: str | None = None,
) -> StandingRun:
    """Run a plan that writes ``topic``, or go on where its last run stopped, as ``checkpoint`` has it.

    ``name``, by default the topic's, is unique among the queries that run.  ``group`` shows the progress.  Raises
    ValueError for what cannot be meant, and what Spark says of a query that it does not know.

    A table is read from its beginning.  Where streams meet it, the first micro-batch has all of it: else the first
    records would miss rows that were there long before.
    """
    left_out = (_BEGINS,) if plan.table is not None else (_BEGINS, _AT_ONCE)
    whole = {name: value for name, value in topics.options.items() if name not in left_out}
    output = outputs_of(standing_job(plan, topic, replace(topics, options=whole)), topics)[topic]
    sink = sink_of(topics, {}, topic, output)
    trigger = {"processingTime": interval}
    misfits = LeftOut(topics.spark, name or topic)
    query = misfits.begin(
        lambda: start_output(topics, name or topic, output, sink, str(checkpoint), trigger=trigger, group=group)
    )
    return StandingRun(query, misfits)

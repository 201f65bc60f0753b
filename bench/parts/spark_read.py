"""Spark reads 5 million records of 200 bytes, by ``format("pybroker")`` and by its own connector."""

from __future__ import annotations

import uuid

from bench.contestants import PYBROKER
from bench.context import Context
from bench.spark_load import CONNECTOR_FORMAT, FORMATS, PYBROKER_FORMAT, READ_BATCH, READ_STREAM, Job
from bench.spark_runs import alternate_formats, seconds_of
from bench.spark_topics import RECORDS, WARMUP_RECORDS, fill


def run(context: Context) -> None:
    """Fill a topic, then read it by both formats in every round, in batch and as a stream."""
    topic, warmup_topic = (f"bench-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("read", "warm-up"))
    with context.running_one(PYBROKER) as broker:
        fill(broker.bootstrap, topic, RECORDS)
        fill(broker.bootstrap, warmup_topic, WARMUP_RECORDS)
        for kind in (READ_BATCH, READ_STREAM):
            for formats in alternate_formats(context, FORMATS):
                rates = {}
                for name in formats:
                    seconds = seconds_of(Job(kind, name, broker.bootstrap, topic, warmup_topic))
                    rates[name] = RECORDS / seconds
                    context.add(f"{kind}, {name}", "rows/s", PYBROKER, rates[name])
                context.add(
                    f"{kind}, against the connector", "×", PYBROKER, rates[PYBROKER_FORMAT] / rates[CONNECTOR_FORMAT]
                )

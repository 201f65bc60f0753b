"""A stopped job is started again in a new Spark: seconds from when Spark is up to the end of its first micro-batch.

Spark's own start is told beside it.
"""

from __future__ import annotations

import tempfile
import uuid

from bench.contestants import PYBROKER
from bench.context import Context
from bench.spark_load import FORMATS, RESTART, Job
from bench.spark_runs import alternate_formats, outcome_of
from bench.spark_topics import PARTITIONS, fill
from bench.wire import Client, record_batch

RECORDS = 100_000
NEW_RECORDS = 1_000


def run(context: Context) -> None:
    """In each round and format: a first life of the job, new records, and the second life, which is timed."""
    with context.running_one(PYBROKER) as broker:
        for formats in alternate_formats(context, FORMATS):
            for name in formats:
                topic, output = (f"bench-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("input", "output"))
                fill(broker.bootstrap, topic, RECORDS)
                with Client(broker.bootstrap) as client, tempfile.TemporaryDirectory(dir=context.root) as directory:
                    client.create_topic(output, PARTITIONS)
                    job = Job(RESTART, name, broker.bootstrap, topic, output_topic=output, checkpoint_dir=directory)
                    context.add(f"first start, {name}", "s", PYBROKER, outcome_of(job).seconds)
                    client.produce(
                        topic, dict.fromkeys(range(PARTITIONS), record_batch(NEW_RECORDS // PARTITIONS, 100))
                    )
                    again = outcome_of(job)
                    context.add(f"restart, {name}", "s", PYBROKER, again.seconds)
                    context.add(f"Spark's own start, {name}", "s", PYBROKER, again.session_s)

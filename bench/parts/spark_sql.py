"""``pybroker sql`` from the shell: the first row of a topic of 1 GB, and 5 million JSON events counted and grouped.

Spark does the same count and grouping in a process of its own, from its start.  What both find is compared with what
was written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.contestants import PYBROKER
from bench.context import Context
from bench.spark_load import CONNECTOR_FORMAT, GROUP, Job
from bench.spark_runs import alternate_formats, outcome_of
from bench.spark_topics import DEVICES, RECORDS, fill, fill_events

COMMAND = Path(sys.executable).parent / "pybroker"
ENDS_WITHIN_S = 240


def run(context: Context) -> None:
    """Fill both topics, then ask both in every round."""
    events, large = (f"bench_{kind}_{uuid.uuid4().hex[:8]}" for kind in ("events", "large"))
    with context.running_one(PYBROKER) as broker:
        fill_events(broker.bootstrap, events, RECORDS)
        fill(broker.bootstrap, large, RECORDS)
        for _ in alternate_formats(context, (CONNECTOR_FORMAT,)):
            context.add("first row of 1 GB, SQL", "s", PYBROKER, first_row_s(broker.bootstrap, large))
            own_s = grouped_s(broker.bootstrap, events)
            spark = outcome_of(Job(GROUP, CONNECTOR_FORMAT, broker.bootstrap, events))
            spark_s = spark.session_s + spark.seconds
            context.add("count and group, SQL", "s", PYBROKER, own_s)
            context.add("count and group, Spark", "s", PYBROKER, spark_s)
            context.add("count and group, of Spark's time", "×", PYBROKER, own_s / spark_s)


@contextmanager
def asking(bootstrap: str, *statements: str) -> Iterator[subprocess.Popen[str]]:
    """``pybroker sql`` with JSON on its standard output."""
    command = [str(COMMAND), "sql", "--json", *(word for each in statements for word in ("-e", each))]
    environment = {**os.environ, "PYBROKER_BOOTSTRAP": bootstrap}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield process
        if process.wait(ENDS_WITHIN_S) != 0:
            raise RuntimeError(f"pybroker sql ended with {process.returncode}")


def first_row_s(bootstrap: str, topic: str) -> float:
    """Seconds from the start of the command to its first row."""
    started_s = time.perf_counter()
    with asking(bootstrap, f"SELECT * FROM {topic} LIMIT 10") as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError("no row came")
        seconds = time.perf_counter() - started_s
        process.stdout.read()
    return seconds


def grouped_s(bootstrap: str, topic: str) -> float:
    """Seconds from the start of the command to its end."""
    started_s = time.perf_counter()
    count = f"SELECT count(*) AS n FROM {topic}"
    group = f"SELECT device, count(*) AS n, avg(reading) AS mean FROM {topic} GROUP BY device"
    with asking(bootstrap, count, group) as process:
        assert process.stdout is not None
        total, *rows = [json.loads(line)["n"] for line in process.stdout]
    seconds = time.perf_counter() - started_s
    if total != RECORDS or len(rows) != DEVICES or sum(rows) != RECORDS:
        raise RuntimeError(f"{total} events in {len(rows)} groups of {sum(rows)} were found, and not {RECORDS}")
    return seconds

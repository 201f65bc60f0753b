"""Rows that are held back stay with a task's process that Spark lets go, as it does where no task ends for a minute.

Real processes, a real broker, no Spark.  Needs Arrow, which comes with Spark: marked like what starts a JVM.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from harness.waiting import wait_until

from pybroker.testing import Broker
from tests.pipeline.topics.test_epochs import QUERY, Sink

pytestmark = pytest.mark.jvm(needs="spark")

TASK = """
import os, sys
import pyarrow as pa
from pybroker.pipeline.topics import epoch_transactions as transactions
from pybroker.pipeline.topics.task_commits import QueryRun
from pybroker.pipeline.topics.sink_options import read_sink_options

bootstrap, topic, group, query = sys.argv[1:]
client = read_sink_options({"kafka.bootstrap.servers": bootstrap}).client
write = transactions.Write(client, QueryRun(group, query, "second"), topic)
written = transactions.write_epoch(write, 0, 0, [pa.RecordBatch.from_pydict({"value": ["a"], "key": ["a"]})])
print(written.outcome, os.getpid(), flush=True)
os._exit(0)
"""
# What has a task's process, and is killed.
DAEMON = """
import subprocess, sys
subprocess.run([sys.executable, "-c", *sys.argv[1:]])
"""


@contextmanager
def held(sink: Sink, *daemon: str) -> Iterator[tuple[Any, psutil.Process]]:
    """A process that has been started, and the one that holds the rows of task 0, whose task 1 is committed."""
    from pybroker.pipeline.topics import epoch_transactions

    sink.attempt(0, ["b"], task=1, run="first")
    epoch_transactions.close_idle()
    arguments = [sink.bootstrap, sink.topic, sink.group, QUERY]
    command = [sys.executable, "-c", *daemon, TASK, *arguments]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as started:
        try:
            assert started.stdout is not None
            outcome, pid = started.stdout.readline().split()
            assert outcome == "held"
            yield started, psutil.Process(int(pid))
        finally:
            started.kill()


def test_rows_that_are_held_back_outlive_that_spark_lets_their_process_go(pybroker: Broker) -> None:
    from pybroker.pipeline.topics import epoch_transactions
    from pybroker.pipeline.topics.task_commits import Outcome, Written

    sink = Sink(pybroker.bootstrap)
    with held(sink) as (task, _):
        of = sink.of(run="second")
        first = Written(0, 1, Outcome.HELD, of.query_run, 0, frozenset({1}))
        epoch_transactions.decide(of, [first, sink.attempt(0, ["b"], task=1, run="second")])
        assert task.wait(30) == 0
    assert sorted(sink.committed()) == ["a", "b"]
    epoch_transactions.close_idle()


def test_a_process_that_holds_rows_ends_with_spark(pybroker: Broker) -> None:
    sink = Sink(pybroker.bootstrap)
    with held(sink, DAEMON) as (daemon, task):
        daemon.kill()
        wait_until(lambda: not task.is_running() or task.status() == psutil.STATUS_ZOMBIE, "the end of the process")
    assert sink.committed() == ["b"]

"""A task's process that was stopped, and wakes when its task has been done by another, writes nothing.

Real processes and signals, a real broker, no Spark.  Needs Arrow, which comes with Spark: marked like what starts a
JVM.
"""

import subprocess
import sys
from typing import Any

import pytest
from harness.process_pause import pause, resume

from pybroker.testing import Broker
from tests.pipeline.topics.test_epochs import QUERY, Sink

pytestmark = pytest.mark.jvm(needs="spark")

ZOMBIE = """
import sys
import pyarrow as pa
from pybroker.pipeline.topics import epoch_transactions as transactions
from pybroker.pipeline.topics.task_commits import QueryRun
from pybroker.pipeline.topics.sink_options import read_sink_options

bootstrap, topic, group, query, run, task, moment = sys.argv[1:]
answered = transactions.answered

def wait():
    print("begun", flush=True)
    sys.stdin.readline()

def batches():
    for value in ("a", "b"):
        yield pa.RecordBatch.from_pydict({"value": [value], "key": [value]})
        if value == "a" and moment == "rows":
            wait()

def watched(call, *arguments, **given):
    if call.__name__ == "commit_transaction":
        wait()
    answered(call, *arguments, **given)

if moment == "commit":
    transactions.answered = watched
client = read_sink_options({"kafka.bootstrap.servers": bootstrap}).client
transactions.write_epoch(transactions.Write(client, QueryRun(group, query, run), topic), int(task), 0, batches())
print("committed", flush=True)
"""


@pytest.mark.parametrize("moment", ["rows", "commit"])
@pytest.mark.parametrize(
    ("run", "tasks"),
    [pytest.param("run", [["a", "b"]], id="retried"), pytest.param("next", [["a"], ["b"]], id="divided-otherwise")],
)
def test_a_zombie_wakes_in_vain(pybroker: Broker, moment: str, run: str, tasks: list[list[str]]) -> None:
    from pybroker.pipeline.topics import epoch_transactions

    sink = Sink(pybroker.bootstrap)
    # A retried task has the zombie's number; where the epoch is divided otherwise, nobody may have it.
    number = "0" if run == "run" else "3"
    arguments = [sink.bootstrap, sink.topic, sink.group, QUERY, "run", number, moment]
    command: list[str] = [sys.executable, "-c", ZOMBIE, *arguments]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as zombie:
        try:
            assert zombie.stdout is not None
            assert zombie.stdout.readline() == "begun\n"
            pause(zombie.pid)
            assert set(sink.run_epoch(0, tasks, run=run)) == {"written"}
            resume(zombie.pid)
            said, errors = zombie.communicate("\n", timeout=60)
        finally:
            zombie.kill()
    assert "committed" not in said
    assert zombie.returncode == 1, errors[-2_000:]
    assert sorted(sink.committed()) == ["a", "b"]
    epoch_transactions.close_idle()

"""On a standalone cluster of Spark: a use runs there unchanged, and attempts that run side by side write a row once.

Starts JVMs.  Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import process_tree
from harness.spark_cluster import EXECUTOR_SETTINGS, SparkCluster

from pybroker.testing import Broker
from tests.pipeline.topics.tables import Tables

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

# Two executors of one core; a task of a second is slow when another one is done.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.efficiency.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark"), hosts=("127.0.0.1", "127.0.0.2")) as started:
        yield started


@pytest.fixture
def speculating(cluster: SparkCluster) -> Iterator[Any]:
    """A session that starts slow tasks a second time."""
    from pybroker.pipeline import SHORT_LIVED, end_session, session

    settings = {**SHORT_LIVED, **EXECUTOR_SETTINGS, **SPECULATION}
    started = session("speculating", master=cluster.url, settings=settings, connector=False)
    yield started
    end_session(started)


def test_a_use_runs_on_a_cluster_unchanged(cluster: SparkCluster, tmp_path: Path) -> None:
    from pybroker.pipeline.uses.metrics import BY_SECOND, SAMPLES

    with Broker() as broker:
        arguments = ("--seconds", "1", "--bootstrap", broker.bootstrap, "--master", cluster.url)
        done = process_tree.run(
            [sys.executable, "-m", "pybroker.pipeline.uses.metrics", *arguments],
            timeout=200,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        tables = Tables(None, broker.bootstrap, tmp_path)
        samples = [value for value in tables.committed(SAMPLES) if value]
        told = [json.loads(value)["samples"] for value in tables.committed(BY_SECOND)]
    assert sum(told) == len(samples) > 0


def test_a_task_that_speculation_runs_twice_writes_its_rows_once(
    speculating: Any, kafka_broker: Broker, tmp_path: Path
) -> None:
    from pyspark import TaskContext

    tables = Tables(speculating, kafka_broker.bootstrap, tmp_path)
    source, target = tables.topic(), tables.topic()
    tables.fill(source, [b"%d" % number for number in range(8)])

    def dawdling(batches: Any) -> Any:
        """The first attempt of one task stops in the middle of its rows, until the second one is done or it is
        killed; rows tell which attempt they are of."""
        import time

        import pyarrow as pa

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            attempt = [str(context.attemptNumber())] * batch.num_rows
            for at in range(batch.num_rows):
                rows = batch.slice(at, 1)
                yield pa.RecordBatch.from_arrays([rows.column(0), pa.array(attempt[:1])], names=["key", "value"])
                if context.attemptNumber() == 0 and context.partitionId() == 1:
                    time.sleep(2)

    rows = tables.read_stream("pybroker", source, maxOffsetsPerTrigger="4").selectExpr("string(value) key")
    query = tables.start(rows.mapInArrow(dawdling, "key string, value string"), "speculated", topic=target)
    assert query.awaitTermination(200)
    found = tables.read("pybroker", target, **{"kafka.isolation.level": "read_committed"}).collect()
    assert sorted(row.key for row in found) == [b"%d" % number for number in range(8)]
    assert {row.value for row in found} == {b"0", b"1"}, "no task was run a second time"

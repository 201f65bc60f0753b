"""On a standalone cluster of Spark jobs run unchanged, and attempts that run side by side write a row once.

Starts JVMs, and PostgreSQL.  Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import process_tree
from harness.spark_cluster import EXECUTOR_SETTINGS, SparkCluster
from harness.spark_sessions import SparkSessions
from rich.console import Console

from examples.tour.postgres import DRIVER_JAR, Postgres
from pybroker.testing import Broker
from tests.docs.pages import ADDRESS, examples
from tests.pipeline.examples.answers import (
    DIGEST_OF_LOG,
    LOG,
    sessions_of,
    storms,
    told_digest,
    told_sessions,
    told_storms,
    written_by,
)
from tests.pipeline.topics.tables import Tables
from tests.source_tree import ROOT

if TYPE_CHECKING:
    from examples.tour.chapters import ShowDone

# By one process: they share the cluster.
pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(300)]

# A task that runs for a second and a half while another one is done is started a second time.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "1500ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.efficiency.enabled": "false",
}
# An executor on each worker, which leaves room for another application beside this one.
SETTINGS = {**EXECUTOR_SETTINGS, **SPECULATION, "spark.cores.max": "2", "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark"), cores=2, hosts=("127.0.0.1", "127.0.0.2")) as started:
        yield started


@pytest.fixture(scope="module")
def on_cluster(cluster: SparkCluster, spark_sessions: SparkSessions) -> Iterator[Any]:
    """A session on the cluster; it speculates."""
    with spark_sessions.lend(cluster.url, SETTINGS, [DRIVER_JAR], connector=False) as session:
        yield session
    spark_sessions.end()


def test_a_use_runs_on_a_cluster_by_its_command(cluster: SparkCluster, tmp_path: Path) -> None:
    from examples.uses.metrics import BY_SECOND, SAMPLES

    with Broker() as broker:
        arguments = ("--seconds", "1", "--bootstrap", broker.bootstrap, "--master", cluster.url)
        done = process_tree.run(
            [sys.executable, "-m", "examples.uses.metrics", *arguments],
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


def test_the_page_on_clusters_prints_what_it_says(cluster: SparkCluster) -> None:
    (example,) = examples("python", ROOT / "docs" / "pipeline" / "cluster.md")
    with Broker() as broker:
        code = example.code.replace("spark://127.0.0.1:7077", cluster.url).replace(ADDRESS, broker.bootstrap)
        done = process_tree.run(
            [sys.executable, "-c", code], timeout=200, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    assert done.stdout == example.prints, done.stderr[-3_000:]


def test_the_flights_demo_finds_what_the_batch_finds_on_a_cluster(cluster: SparkCluster) -> None:
    from examples.flights import dataset
    from examples.flights.check import aggregate
    from examples.flights.demo import DemoOptions, run

    with Broker() as broker:
        given = DemoOptions(broker.bootstrap, months=1, micro_batches=2, crash_half_way=False, master=cluster.url)
        outcome = run(given, Console(file=StringIO()))
    assert outcome.results == aggregate(dataset.rows(months=1))


def test_sessions_of_clicks_on_a_cluster_are_those_that_a_fold_finds(on_cluster: Any, tmp_path: Path) -> None:
    from examples.uses import clicks
    from examples.uses.running import end_after

    records = list(islice(clicks.clicks(clicks.data_file()), 5_000))
    end = end_after(records[-1], clicks.END_AFTER)
    found = told_sessions(written_by(clicks.USE, on_cluster, tmp_path, records, end))
    assert sum(found.values()) > 100
    assert found == sessions_of(records)


def test_storms_on_a_cluster_are_those_that_a_loop_finds(on_cluster: Any, tmp_path: Path) -> None:
    from examples.uses import sensors
    from examples.uses.running import end_after

    records = list(islice(sensors.readings(), 4_000))
    end = end_after(records[-1], sensors.END_AFTER)
    found = told_storms(written_by(sensors.USE, on_cluster, tmp_path, records, end))
    assert len(found) > 3
    assert found == storms(records)


def test_a_log_is_digested_on_a_cluster(on_cluster: Any, tmp_path: Path) -> None:
    from examples.uses import logs
    from examples.uses.running import end_after

    records = list(logs.lines(LOG.splitlines(keepends=True)))
    end = end_after(records[-1], logs.END_AFTER)
    assert told_digest(written_by(logs.USE, on_cluster, tmp_path, records, end)) == DIGEST_OF_LOG


class Unseen:
    """What a chapter shows, to nobody."""

    def bar(self, what: str, total: int) -> "ShowDone":
        return lambda done, doing="": None

    def say(self, line: str) -> None:
        pass


def test_chapters_of_the_tour_on_a_cluster_find_what_the_batch_finds(
    on_cluster: Any, postgres: Postgres, tmp_path: Path
) -> None:
    """The third to the sixth, of a month of flights.  Those with files and tables prove their answers themselves."""
    import pandas as pd

    from examples.tour import chapters, check, jobs
    from examples.tour.topics import ENRICHED
    from examples.tour.tour import FLIGHTS, PARQUET_SETTINGS, PICTURE, REPORT, UNUSUAL_SHOWN, leave

    for name, value in PARQUET_SETTINGS.items():
        on_cluster.conf.set(name, value)
    with Broker() as broker:
        stage = chapters.Stage(on_cluster, broker.bootstrap, postgres, tmp_path, 1, Unseen())
        counts = chapters.fill_topics(broker.bootstrap, stage.months, stage.shown)
        chapters.enrich(stage, counts)
        told = Tables(None, broker.bootstrap, tmp_path).committed(ENRICHED)
        chapters.keep(stage, counts)
        chapters.watch(stage, counts, with_outage=False)
    found = pd.DataFrame(map(json.loads, told))
    found["scheduled"] = pd.to_datetime(found["scheduled"], utc=True)
    expected = check.enriched(stage.months)
    assert check.difference(found, expected, jobs.ENRICHED_COLUMNS) is None
    unusual = int(check.hours(stage.months)["unusual"].sum())
    hours, weather = leave(stage, tmp_path / "output", [])
    assert hours.row_count == min(unusual, UNUSUAL_SHOWN) > 0
    assert weather.row_count > 0
    assert (tmp_path / "output" / REPORT).stat().st_size > (tmp_path / "output" / PICTURE).stat().st_size
    assert (tmp_path / "output" / PICTURE).stat().st_size
    kept = pd.read_parquet(tmp_path / "output" / FLIGHTS)
    assert check.difference(kept, expected, jobs.ENRICHED_COLUMNS) is None


def test_a_task_that_speculation_runs_twice_writes_its_rows_once(
    on_cluster: Any, pybroker: Broker, tmp_path: Path
) -> None:
    from pyspark import TaskContext

    tables = Tables(on_cluster, pybroker.bootstrap, tmp_path)
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
                    time.sleep(5)

    rows = tables.read_stream("pybroker", source, maxOffsetsPerTrigger="4").selectExpr("string(value) key")
    query = tables.start(rows.mapInArrow(dawdling, "key string, value string"), "speculated", topic=target)
    assert query.awaitTermination(200)
    found = tables.read("pybroker", target, **{"kafka.isolation.level": "read_committed"}).collect()
    assert sorted(row.key for row in found) == [b"%d" % number for number in range(8)]
    assert {row.value for row in found} == {b"0", b"1"}, "no task was run a second time"

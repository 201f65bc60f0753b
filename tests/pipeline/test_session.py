"""What `pipeline.session` sets, and that the caller's word is the last.  Starts a JVM."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pybroker.testing import Broker


def test_nothing_of_spark_is_imported_before_it_is_asked_for() -> None:
    code = "import sys, pybroker.pipeline; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_the_pipeline_does_not_have_is_an_attribute_error() -> None:
    from pybroker import pipeline

    with pytest.raises(AttributeError, match="has no attribute 'sesion'"):
        _ = pipeline.sesion


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]", "spark://127.0.0.1:7077", "spark://localhost:1"])
@pytest.mark.jvm(needs="spark")
def test_spark_on_this_machine_stays_on_loopback(master: str) -> None:
    from pybroker.pipeline.spark_session import defaults

    assert defaults(master)["spark.driver.host"] == "127.0.0.1"


@pytest.mark.jvm(needs="spark")
def test_a_cluster_elsewhere_gets_the_addresses_that_it_finds() -> None:
    from pybroker.pipeline.spark_session import defaults

    assert "spark.driver.host" not in defaults("spark://spark.example:7077")


@pytest.mark.jvm(needs="spark")
def test_checkpoints_of_this_machine_are_written_without_a_process_for_each_name() -> None:
    from pybroker.pipeline.spark_session import CHECKPOINT_SETTING, LOCAL_CHECKPOINTS, defaults

    for master in ("local[2]", "spark://127.0.0.1:7077"):
        assert defaults(master)[CHECKPOINT_SETTING] == LOCAL_CHECKPOINTS
        assert CHECKPOINT_SETTING in defaults(master, {"spark.hadoop.fs.defaultFS": "file:///"})
        # What another file system promises of renaming is for Spark to know.
        assert CHECKPOINT_SETTING not in defaults(master, {"spark.hadoop.fs.defaultFS": "hdfs://name.example"})
    assert CHECKPOINT_SETTING not in defaults("spark://spark.example:7077")


@pytest.mark.jvm(needs="spark")
def test_a_session_that_spares_memory_has_its_own_options_beside_those_of_all_sessions() -> None:
    from pybroker.pipeline.spark_memory import java_options
    from pybroker.pipeline.spark_session import JAVA_SETTING, defaults

    usual, ours = defaults("local[2]")[JAVA_SETTING], java_options({}, {})
    assert defaults("local[2]", sparing=True)[JAVA_SETTING] == f"{usual} {ours}"
    assert defaults("local[2]", {"spark.driver.memory": "4g"}, sparing=True)[JAVA_SETTING] == usual


@pytest.mark.jvm(needs="spark")
def test_a_short_lived_session_meets_its_processes_where_no_stranger_comes_by(spark: Any) -> None:
    from pybroker.pipeline.spark_session import _sockets_below

    # Not at ports: a client of a broker that is gone may try one of them, and be taken for Spark's own process.
    assert spark.sparkContext.getConf().get("spark.python.unix.domain.socket.enabled") == "true"
    # Where its own is each JVM knows: an executor on another machine may not have the driver's directory.
    assert _sockets_below("/" + "x" * 59) == {"spark.python.unix.domain.socket.enabled": "true"}
    assert _sockets_below("/" + "x" * 60) == {}, "too long a name for a socket"


@pytest.mark.jvm(needs="spark")
def test_a_session_fetches_nothing_that_was_not_asked_for(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pybroker import pipeline
    from pybroker.pipeline import jars

    def refused(coordinates: list[str], *_: Any) -> None:
        raise jars.JarsMissing(", ".join(coordinates))

    monkeypatch.setattr(jars, "_fetch", refused)
    monkeypatch.setattr(jars, "jars_dir", lambda: Path("/nonexistent"))
    assert pipeline.session(master="local[2]") is spark
    with pytest.raises(jars.JarsMissing, match="spark-sql-kafka"):
        pipeline.session(master="local[2]", connector=True)


@pytest.mark.jvm(needs="spark")
def test_settings_are_passed_through_and_win(spark: Any) -> None:
    from pybroker import pipeline
    from pybroker.pipeline.spark_session import CHECKPOINT_SETTING, LOCAL_CHECKPOINTS

    settings = {"spark.sql.session.timeZone": "Europe/Vienna", "spark.sql.shuffle.partitions": 3}
    again = pipeline.session("again", master="local[2]", settings=settings)
    assert again is spark
    assert again.conf.get("spark.ui.enabled") == "false"
    assert again.conf.get(CHECKPOINT_SETTING) == LOCAL_CHECKPOINTS
    assert again.conf.get("spark.sql.shuffle.partitions") == "3"
    assert again.range(1).selectExpr("current_timezone() AS zone").collect()[0].zone == "Europe/Vienna"


@pytest.mark.jvm(needs="spark")
def test_tasks_import_the_pyspark_that_is_installed_and_no_zip(spark: Any) -> None:
    import pyspark

    def where(batches: Any) -> Any:
        import pyarrow as pa
        import pyspark as found

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"path": [found.__file__] * batch.num_rows})

    (row,) = spark.range(1).mapInArrow(where, "path string").collect()
    assert row.path == pyspark.__file__


ENDED_WITHIN_S = 240

# What a user's program is that knows Spark: a session, a batch, a stream, and a job.
OF_THE_USERS_OWN = """
import sys

from pyspark.sql import SparkSession

from pybroker.pipeline.streams import jobs

builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
spark = builder.config("spark.ui.enabled", False).getOrCreate()
server, folder = {"kafka.bootstrap.servers": sys.argv[1]}, sys.argv[2]

orders = spark.createDataFrame([("tea",), ("milk",)], "value string")
orders.write.format("pybroker").options(**server, topic="orders").mode("append").save()
stream = spark.readStream.format("pybroker").options(**server, subscribe="orders", startingOffsets="earliest").load()
writer = stream.selectExpr("upper(string(value)) value").writeStream.format("pybroker").options(**server, topic="loud")
writer.option("checkpointLocation", f"{folder}/loud").trigger(availableNow=True).start().awaitTermination()


def job(topics):
    return {"long": topics.stream("loud").selectExpr("concat(string(value), '!') value")}


for query in jobs.start(job, jobs.BrokerTopics(spark, sys.argv[1]), folder, until_done=True):
    query.awaitTermination()
for topic in ("orders", "loud", "long"):
    rows = spark.read.format("pybroker").options(**server, subscribe=topic).load()
    print(*sorted(row.value.decode() for row in rows.collect()))
"""


@pytest.mark.jvm(needs="spark")
@pytest.mark.timeout(ENDED_WITHIN_S + 60)
def test_a_session_that_the_user_made_reads_writes_and_runs_jobs(pybroker: Broker, tmp_path: Path) -> None:
    """In a process of its own: this one's session is the pipeline's."""
    from pybroker.pipeline.spark_session import SHORT_LIVED

    command = [sys.executable, "-c", OF_THE_USERS_OWN, pybroker.bootstrap, str(tmp_path)]
    # As an activated environment has it: Spark looks for python3.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    # A JVM of a minute; and no question to the resolver of a machine that tests know nothing of.
    quick = {"JDK_JAVA_OPTIONS": SHORT_LIVED["spark.driver.extraJavaOptions"], "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command,
        env={**environment, **quick, "PATH": path},
        capture_output=True,
        text=True,
        timeout=ENDED_WITHIN_S,
        check=False,
    )
    assert done.stdout.splitlines() == ["milk tea", "MILK TEA", "MILK! TEA!"], done.stderr[-3_000:]

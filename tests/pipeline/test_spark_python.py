"""A session in which topics cannot be read or written says so in one sentence, before a query or as it starts."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.source_tree import ROOT

pytestmark = pytest.mark.jvm(needs="spark")

ENDED_WITHIN_S = 240


class OfConnect:
    """A session of Spark Connect, by the module of its class."""

    __module__ = "pyspark.sql.connect.session"


def test_a_session_of_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from pybroker import pipeline

    remote: Any = OfConnect()
    with pytest.raises(RuntimeError, match="one of Spark Connect is not"):
        pipeline.BrokerTopics(remote, "127.0.0.1:1")
    with pytest.raises(RuntimeError, match="one of Spark Connect is not"):
        pipeline.register(remote)
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(RuntimeError, match="unset SPARK_REMOTE"):
        pipeline.session()


@pytest.mark.parametrize(
    ("version", "missing", "told"),
    [
        ("4.1.4", "", r"needs PySpark 4\.2 or newer, and \S+ has 4\.1\.4$"),
        ("4.3.0", "pyarrow", "has no pyarrow: let PYSPARK_PYTHON name"),
    ],
)
def test_a_python_of_sparks_without_what_tasks_need_says_so(
    monkeypatch: pytest.MonkeyPatch, version: str, missing: str, told: str
) -> None:
    from pybroker.pipeline.topics import data_source

    monkeypatch.setattr(data_source, "pyspark", SimpleNamespace(__version__=version))
    monkeypatch.setattr(data_source, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(ModuleNotFoundError, match=told):
        data_source.TopicDataSource({})


def test_a_session_whose_tasks_have_all_is_registered(spark: Any) -> None:
    from pybroker import pipeline

    pipeline.register(spark)
    pipeline.register(spark)


# Without an activated environment: Spark looks for a python3, and the one that it finds is another.
IN_ANOTHER_PYTHON = """
import sys

from pyspark.sql import SparkSession

from pybroker import pipeline

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False)
spark = builder.getOrCreate()
if sys.argv[1] == "register":
    pipeline.register(spark)
rows = spark.read.format("pybroker").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "t").load()
rows.count()
"""


@pytest.mark.timeout(ENDED_WITHIN_S + 60)
@pytest.mark.parametrize(
    ("step", "path", "told"),
    [
        ("register", [], "has no pybroker and no pyspark_pybroker and no confluent_kafka and no pyarrow"),
        # The checkout alone, as with PYTHONPATH.
        ("read", [ROOT], "has no confluent_kafka and no pyarrow: let PYSPARK_PYTHON name"),
    ],
)
def test_another_python_of_sparks_is_told_in_one_sentence(
    tmp_path: Path, step: str, path: list[Path], told: str
) -> None:
    from pybroker.pipeline.spark_session import SHORT_LIVED

    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    other = tmp_path / "other" / "bin" / "python3"
    environment |= {
        "JDK_JAVA_OPTIONS": SHORT_LIVED["spark.driver.extraJavaOptions"],
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": os.pathsep.join([str(other.parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
    }
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PYTHON, step],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=ENDED_WITHIN_S,
        check=False,
    )
    assert done.returncode == 1
    assert str(other) in done.stderr
    (line,) = {line.strip() for line in done.stderr.splitlines() if told in line}
    assert "Error: " in line

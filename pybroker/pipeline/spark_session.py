"""Starts Spark in this process, with the stock Kafka connector and nothing that reaches beyond this machine.

Owns the session's settings and the place of the connector's jars; owns no job. The jars are resolved by
`scripts/spark-jars` once, so that starting a session needs no network.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from types import MappingProxyType

from pyspark.sql import SparkSession

JARS_DIR_VARIABLE = "PYBROKER_SPARK_JARS"
JARS_DIR_DEFAULT = Path(__file__).resolve().parents[2] / ".cache" / "jars" / "spark"

JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    # The C1 compiler alone: a job of a minute ends before C2's work has paid for itself.
    "-XX:TieredStopAtLevel=1",
    # No statistics in /tmp. What else is temporary goes below TMPDIR, so that who kills a job can clear up after it.
    "-XX:-UsePerfData",
)


class ConnectorMissing(RuntimeError):
    """The Kafka connector's jars are not where a session looks for them."""


def connector_jars() -> list[Path]:
    """The jars of the Kafka connector; raises `ConnectorMissing` when there are none."""
    jars_dir = Path(os.environ.get(JARS_DIR_VARIABLE, JARS_DIR_DEFAULT))
    jars = sorted(jars_dir.glob("*.jar"))
    if not jars:
        raise ConnectorMissing(f"no jars in {jars_dir}: run scripts/spark-jars, or set {JARS_DIR_VARIABLE}")
    return jars


def local_session(name: str, *, cores: int = 2, settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """A Spark session on this machine's loopback, sized for a laptop; ``settings`` are further ones of Spark's.

    One shuffle partition per core: the state is small, and every partition costs a task in every micro-batch.
    """
    # Spark asks the resolver for the host's name unless it is told; the answer may be an address that is not served.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    own: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in connector_jars()),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join((*JVM_OPTIONS, f"-Djava.io.tmpdir={gettempdir()}")),
        "spark.local.dir": gettempdir(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": cores,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    session = builder.config(map={**own, **settings}).getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session

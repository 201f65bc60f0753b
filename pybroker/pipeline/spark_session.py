"""Starts Spark in this process, ready for topics, and ends it.

Owns the defaults of a session: the connector's jars, and what keeps Spark on this machine while its cluster is.  What
the caller sets wins over each of them.  ``format("pybroker")`` needs nothing of this: every session has it
(``pyspark_pybroker``).
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from tempfile import gettempdir
from types import MappingProxyType
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from pybroker.pipeline import jars, spark_memory, warm_python
from pybroker.pipeline.class_archive import java_options
from pybroker.pipeline.spark_home import use_spark_home
from pybroker.pipeline.spark_python import refuse_remote

JVM_END_TIMEOUT_S = 60.0

# Options of the driver's JVM, before those that a user gives as ``spark.driver.extraJavaOptions``.
JAVA_SETTING = "spark.driver.defaultJavaOptions"

# What Spark runs as ``python``, in its environment.
PYTHON_VARIABLE = "PYSPARK_PYTHON"

# A micro-batch that is tried again has to be divided into the same tasks: their marks say what is written already
# (``topics/transactions``).  Adaptive execution divides by the cores of the moment.
ADAPTIVE_SETTING = "spark.sql.adaptive.streaming.stateless.enabled"

# Who writes checkpoints.  By Spark's own choice each file of one costs some ten processes on a disk of this machine:
# Hadoop's FileContext asks `readlink` of every name that a renaming has to do with.  The other of Spark's two managers
# renames as atomically there, and asks nobody: a small micro-batch takes a third less time.
CHECKPOINT_SETTING = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_FILE_SYSTEM_SETTING = "spark.hadoop.fs.defaultFS"

# The longest name of a socket that every system takes is of 103 bytes; Spark's own part of it is `/.UUID.sock`.
_SOCKET_DIR_BYTES_MAX = 103 - 43


def _sockets_below(directory: str) -> dict[str, str]:
    """Have Spark's processes on a machine meet at sockets that are files, where ``directory`` can hold them.

    Which directory that is each JVM knows by itself (``java.io.tmpdir``): an executor on another machine may not have
    the driver's.
    """
    if len(os.fsencode(directory)) > _SOCKET_DIR_BYTES_MAX:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true"}


# For a session of a minute, as tests and demos have.  It ends before the C2 compiler's work has paid for itself.  And
# where brokers come and go, Spark's processes had better not meet at ports of this machine: a client that still tries
# to reach a broker that is gone takes the one place in the queue of whoever has its port next, and Spark waits for ever
# for its own process.
SHORT_LIVED: Mapping[str, str] = MappingProxyType(
    {
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
        **_sockets_below(gettempdir()),
    }
)

# Partitions of a shuffle on a cluster: by Spark's default each micro-batch of a small job would be 200 tasks.
SMALL_SHUFFLE_PARTITIONS = 4

_LOOPBACK = re.compile(r"local(-cluster)?(\[.*\])?|spark://(127\.\d+\.\d+\.\d+|localhost)(:\d+)?")
_LOCAL_CORES = re.compile(r"local\[(\d+)")


def session(
    app_name: str = "pybroker",
    *,
    master: str = "local[*,4]",
    settings: Mapping[str, Any] = MappingProxyType({}),
    packages: Iterable[str] = (),
    connector: bool = False,
    sparing: bool = False,
) -> SparkSession:
    """A Spark session; a session that this process has already is taken as it is.

    By default Spark runs in this process, on all cores, and tries tasks that fail again, as a cluster does.
    ``settings`` are Spark's, by name.  ``packages`` are the Maven coordinates of further jars, which are fetched once,
    with what they depend on, and kept.  ``connector`` adds Spark's own connector, for ``format("kafka")``, in the same
    way.  ``sparing`` has the JVM take what its work needs of the memory that it may have, for a session that stays
    beside others (`spark_memory`).  Raises `JarsMissing` where jars that were asked for cannot be had.
    """
    refuse_remote()
    found = [*(jars.connector_jars(pyspark.__version__) if connector else ()), *jars.packages(packages)]
    all_jars = [*map(str, found), *_listed(settings.get("spark.jars"))]
    own = {**defaults(master, settings, sparing=sparing), "spark.jars": ",".join(all_jars)}
    if _LOOPBACK.fullmatch(master):
        # Spark asks the resolver for the host's name unless it is set; the answer may be an address nobody serves.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        # Tasks in Python run in this environment, whatever the first python3 of PATH is.
        os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    use_spark_home()
    if sparing:
        spark_memory.spare_malloc(os.environ)
    given = {name: value for name, value in settings.items() if name != "spark.jars"}
    with _forks_as_python(master):
        made = SparkSession.builder.master(master).appName(app_name).config(map={**own, **given}).getOrCreate()
    made.sparkContext.setLogLevel("WARN")
    return made


def short_lived(master: str) -> dict[str, str]:
    """The settings of a small job of minutes, here or on a cluster."""
    if master.startswith("local"):
        return dict(SHORT_LIVED)
    return {**SHORT_LIVED, "spark.sql.shuffle.partitions": str(SMALL_SHUFFLE_PARTITIONS)}


def end_session(session: SparkSession) -> None:
    """End a session and its JVM, with the process and the threads that Python's side of it has."""
    gateway: Any = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(JVM_END_TIMEOUT_S)
    SparkContext._gateway = SparkContext._jvm = None
    warm_python.end()


@contextmanager
def _forks_as_python(master: str) -> Iterator[None]:
    """A session that begins meanwhile, and its JVM, have forks for Python; what this process starts later has not.

    A child of this process may be the driver of a cluster, whose tasks are no business of this session's.
    """
    if os.environ.get(PYTHON_VARIABLE) != sys.executable or not _begins_here(master):
        yield
        return
    os.environ[PYTHON_VARIABLE] = warm_python.launcher_path() or sys.executable
    try:
        yield
    finally:
        os.environ[PYTHON_VARIABLE] = sys.executable


def _begins_here(master: str) -> bool:
    """Whether a Spark of this process alone is about to begin: none is there yet, and no cluster is named."""
    return master.startswith("local[") and SparkContext._active_spark_context is None


def defaults(
    master: str, settings: Mapping[str, Any] = MappingProxyType({}), *, sparing: bool = False
) -> dict[str, Any]:
    """What a session on ``master`` is given unless the caller's ``settings`` say otherwise."""
    heap = spark_memory.java_options(settings, os.environ) if sparing else ""
    everywhere = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        ADAPTIVE_SETTING: False,
        # What is temporary goes below TMPDIR, so that who kills a job can clear up after it.
        JAVA_SETTING: " ".join(filter(None, (f"-Djava.io.tmpdir={gettempdir()}", java_options(), heap))),
    }
    if not _LOOPBACK.fullmatch(master):
        return everywhere
    on_loopback = {
        **everywhere,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    if str(settings.get(_FILE_SYSTEM_SETTING, "file:")).startswith("file:"):
        on_loopback[CHECKPOINT_SETTING] = LOCAL_CHECKPOINTS
    if not master.startswith("local"):
        options = java_options()
        return {**on_loopback, "spark.executor.defaultJavaOptions": options} if options else on_loopback
    # The state is small, and every partition costs a task in every micro-batch.
    cores = _LOCAL_CORES.match(master)
    return {**on_loopback, "spark.sql.shuffle.partitions": int(cores[1]) if cores else os.cpu_count() or 1}


def _listed(paths: Any) -> list[str]:
    return [path for path in str(paths or "").split(",") if path]

"""A standalone cluster of Spark on loopback: a master and its workers, as processes, from the pyspark package.

Owns: start and stop of all of them, and the ways to what runs below a worker: executors, which are JVMs, and their
workers in Python.  Knows nothing of brokers or jobs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import psutil

from harness.child_process import ChildProcess
from harness.process_tree import end
from harness.waiting import wait_until
from pybroker.pipeline.class_archive import java_options
from pybroker.pipeline.spark_home import spark_home

HOST: Final = "127.0.0.1"
READY_WITHIN_S: Final = 60.0
DEPLOY: Final = "org.apache.spark.deploy"

# JVMs of a minute: the C1 compiler alone, and a collector without threads of its own.
JVM_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
# What a job of a test tells its session: executors as small as the machine.
EXECUTOR_SETTINGS: Final = {
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
}

_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkCluster:
    """The cluster; ``url`` is what a session is given as its master.  Executors are started again however often.

    Workers take ``hosts`` in turn: a second attempt beside the first one, by speculation, has to be on another host.
    ``cores`` are each worker's, with 1 GB each; an application takes all that are free unless ``spark.cores.max`` says
    how many it wants.
    """

    def __init__(self, directory: Path, workers: int = 2, cores: int = 1, hosts: Sequence[str] = (HOST,)) -> None:
        self.url = ""
        self._directory = directory
        self._workers = workers
        self._cores = cores
        self._hosts = hosts
        self._processes: list[ChildProcess] = []

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start_master()
            self._start_workers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all of it, whatever still runs."""
        while self._processes:
            process = self._processes.pop()
            end(process.pid)
            process.kill()

    def executors(self) -> list[psutil.Process]:
        """The JVMs of the executors that run, of all applications."""
        return [found for found in self._descendants() if _EXECUTOR in _command(found)]

    def python_daemons(self) -> list[psutil.Process]:
        """Each executor's process that makes those of its tasks."""
        found = self._python()
        return [process for process in found if _parent(process) not in {each.pid for each in found}]

    def python_workers(self) -> list[psutil.Process]:
        """The processes in which tasks run Python: the children of the daemons."""
        found = self._python()
        return [process for process in found if _parent(process) in {each.pid for each in found}]

    def task_errors(self) -> list[str]:
        """What executors and their tasks have written to standard error, one text per executor."""
        return [path.read_text(errors="replace") for path in self._directory.glob("work-*/app-*/*/stderr")]

    def _python(self) -> list[psutil.Process]:
        return [found for found in self._descendants() if "pyspark.daemon" in _command(found)]

    def _descendants(self) -> Iterator[psutil.Process]:
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                yield from psutil.Process(process.pid).children(recursive=True)

    def _start_master(self) -> None:
        master = self._start("master", f"{DEPLOY}.master.Master", "--host", HOST, "--port", "0", "--webui-port", "0")
        self.url = str(_awaited(master, _MASTER_URL.search)[1])

    def _start_workers(self) -> None:
        started = []
        for number in range(self._workers):
            work = str(self._directory / f"work-{number}")
            resources = ("--cores", str(self._cores), "--memory", f"{self._cores}g", "--work-dir", work)
            host = self._hosts[number % len(self._hosts)]
            address = ("--host", host, "--port", "0", "--webui-port", "0")
            started.append(self._start(f"worker-{number}", f"{DEPLOY}.worker.Worker", *resources, *address, self.url))
        for worker in started:
            _awaited(worker, lambda log: _REGISTERED in log)

    def _start(self, name: str, main: str, *arguments: str) -> ChildProcess:
        spec = find_spec("pyspark")
        assert spec is not None, "PySpark is not installed: run scripts/spark-setup"
        assert spec.origin is not None
        home = spark_home() or Path(spec.origin).parent
        environment = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{JVM_OPTIONS} {java_options()}".strip(),
            # By its default an application is given up whose executors died ten times.
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            # Blocks and copies of jars lie where the directory's owner removes them.
            "SPARK_LOCAL_DIRS": os.fspath(self._directory),
        }
        command = [str(home / "bin" / "spark-class"), main, *arguments]
        process = ChildProcess(command, self._directory / f"{name}.log", environment)
        self._processes.append(process)
        return process


def _awaited(process: ChildProcess, found_in: Any) -> Any:
    """What ``found_in`` finds in the log of a process, as soon as it does."""

    def found() -> Any:
        if process.exit_code is not None:
            raise RuntimeError(f"it exited with {process.exit_code}\n{process.log_tail()}")
        return found_in(process.log_path.read_text(errors="replace"))

    wait_until(found, f"{process.log_path.stem} to be ready", READY_WITHIN_S)
    return found()


def _command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return " ".join(process.cmdline())
    return ""


def _parent(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.ppid())
    return -1

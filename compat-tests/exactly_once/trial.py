"""One run: a job from topic to topic, kills at random moments while it is at work, and what is in the topic then.

Owns: whom a run kills and when, how the job is kept running (who supervises it starts it again), and the verdict.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

import psutil
from harness.spark_cluster import SparkCluster
from harness.waiting import wait_until

from exactly_once import topics
from exactly_once.brokers import make_brokers
from exactly_once.driver import Driver
from pybroker.pipeline.topics.epoch_transactions import SKIPPED

RECORDS = 42_000
BATCHES = 14
SOURCE_PARTITIONS, TARGET_PARTITIONS = 2, 2
# Behind the first sign that the job is at work again: somewhere in its next micro-batches.
MOMENT_S = (0.0, 0.8)
# Of so many runs one is of a job in mode update.
RUNS_PER_UPDATE = 3
AT_WORK_WITHIN_S = 240.0
RESTARTS_MAX = 20


class Victim(StrEnum):
    """Who is killed: a JVM that runs tasks, a Python process of a task, the driver, the broker or one of three."""

    EXECUTOR = "executor"
    TASK = "task"
    DRIVER = "driver"
    BROKER = "broker"


class Outcome(NamedTuple):
    """Of one run.  ``repeated`` and ``missing`` count records; ``failures`` are queries that ended with an error and
    were started again; ``skipped`` counts tasks that found their rows committed by an earlier attempt."""

    sink: str
    brokers: int
    mode: str
    seed: int
    kills: list[str]
    failures: list[str]
    records: int
    repeated: int
    missing: int
    skipped: int
    seconds: float


class Stage:
    """What runs share: a cluster of Spark, brokers with the records to be read, and the driver of the moment."""

    def __init__(self, directory: Path, records: int = RECORDS, brokers: int = 1) -> None:
        self.brokers = make_brokers(directory / "broker", brokers)
        self.cluster = SparkCluster(directory / "spark")
        self.expected: topics.Records
        self.source = "in"
        self.records = records
        self._directory = directory
        self._driver: Driver | None = None
        self._drivers = 0

    def __enter__(self) -> Self:
        try:
            self.brokers.start()
            self.cluster.__enter__()
            topics.create(self.bootstrap, self.source, SOURCE_PARTITIONS)
            self.expected = topics.fill(self.bootstrap, self.source, self.records)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._driver is not None:
            self._driver.stop()
        self.cluster.stop()
        self.brokers.kill_all()

    @property
    def bootstrap(self) -> str:
        """All brokers: clients find the others when one is away."""
        return ",".join(self.brokers.bootstraps)

    @property
    def driver(self) -> Driver:
        """A driver that is up."""
        if self._driver is None or not self._driver.is_running:
            self._drivers += 1
            self._driver = Driver(self.cluster.url, self._directory, self._drivers)
        self._driver.wait_until_up()
        return self._driver

    def order(self, sink: str, mode: str, target: str) -> dict[str, Any]:
        """The query of a run; the same however often it is started."""
        return {
            "bootstrap": self.bootstrap,
            "source": self.source,
            "target": target,
            "sink": sink,
            "checkpoint": str(self._directory / f"checkpoint-{target}"),
            "batch_records": self.records // BATCHES,
            "mode": mode,
        }

    def skipped(self) -> int:
        """How many tasks have said so far that their rows had been committed before."""
        return sum(text.count(SKIPPED) for text in self.cluster.task_errors())


class Run:
    """A query at work, and its kills."""

    def __init__(self, stage: Stage, sink: str, seed: int) -> None:
        self._stage = stage
        self._random = Random(seed)
        self._sink = sink
        self._seed = seed
        self._mode = "append" if seed % RUNS_PER_UPDATE else "update"
        self._skipped_before = stage.skipped()
        self._target = f"out-{uuid.uuid4().hex[:8]}"
        self._driver = stage.driver
        self._heard = 0
        # A new topic has three replicas only where all brokers are there again.
        stage.brokers.wait_until_whole()
        topics.create(stage.bootstrap, self._target, TARGET_PARTITIONS)
        self.failures: list[str] = []
        self.kills: list[str] = []

    def start(self) -> None:
        """Start the query, or start it again."""
        self._driver = self._stage.driver
        self._heard = len(self._driver.told())
        self._driver.order(self._stage.order(self._sink, self._mode, self._target))

    def until_at_work(self) -> bool:
        """Wait for the next micro-batch to be told; False where there is none any more."""
        self._await_lines(len(self._lines()) + 1)
        while self._is_over():
            if not self._is_started_again():
                return False
            self._await_lines(1)
        return True

    def until_over(self) -> None:
        """Wait for the end, starting the query again where it fails."""
        wait_until(self._is_over, "the end of the query", AT_WORK_WITHIN_S)
        while self._is_started_again():
            wait_until(self._is_over, "the end of the query", AT_WORK_WITHIN_S)

    def kill(self, victim: Victim) -> None:
        """Kill one of them, and start again what nobody else starts."""
        if victim is Victim.BROKER:
            number = self._random.randrange(len(self._stage.brokers.brokers))
            self._stage.brokers.kill(number)
            self._stage.brokers.start_one(number)
        elif victim is Victim.DRIVER:
            self._driver.kill()
            self.start()
        else:
            found = self._processes(victim)
            with suppress(psutil.NoSuchProcess):
                self._random.choice(found).kill()
        self.kills.append(str(victim))

    def moment(self, victim: Victim) -> None:
        """Let a random time pass, or, for the driver, some of an epoch's tasks commit: what marks are for."""
        if victim is not Victim.DRIVER:
            time.sleep(self._random.uniform(*MOMENT_S))
            return
        before = self._committed_end()
        wait_until(lambda: self._committed_end() > before or self._is_over(), "a commit", AT_WORK_WITHIN_S)

    def _committed_end(self) -> int:
        return topics.committed_end(self._stage.bootstrap, self._target, TARGET_PARTITIONS)

    def outcome(self, seconds: float) -> Outcome:
        """Compare what committed readers find with what there should be."""
        expected, found = self._stage.expected, topics.committed(self._stage.bootstrap, self._target)
        repeated, missing = topics.lacking(found, expected, self._mode)
        return Outcome(
            sink=self._sink,
            brokers=len(self._stage.brokers.brokers),
            mode=self._mode,
            seed=self._seed,
            kills=self.kills,
            failures=[error.strip().splitlines()[-1] for error in self.failures],
            records=expected.total(),
            repeated=repeated,
            missing=missing,
            skipped=self._stage.skipped() - self._skipped_before,
            seconds=seconds,
        )

    def _is_started_again(self) -> bool:
        """Start a query again that has failed; False for one that has done all."""
        error = self._lines()[-1]["error"]
        if error is None:
            return False
        self.failures.append(error)
        if len(self.failures) > RESTARTS_MAX:
            raise RuntimeError(f"the query fails again and again: {error}")
        self.start()
        return True

    def _processes(self, victim: Victim) -> list[psutil.Process]:
        cluster = self._stage.cluster
        find = cluster.executors if victim is Victim.EXECUTOR else cluster.python_workers
        while True:
            wait_until(lambda: find() or self._is_over(), f"{victim}s", AT_WORK_WITHIN_S)
            if found := find():
                return found
            if not self._is_started_again():
                raise RuntimeError(f"the query was over before any {victim} of it could be killed")

    def _lines(self) -> list[dict[str, Any]]:
        if not self._driver.is_running:
            raise RuntimeError(f"the driver ended by itself:\n{self._driver.log_tail()}")
        return self._driver.told()[self._heard :]

    def _await_lines(self, count: int) -> None:
        wait_until(lambda: len(self._lines()) >= count, "a micro-batch", AT_WORK_WITHIN_S)

    def _is_over(self) -> bool:
        lines = self._lines()
        return bool(lines) and "ended" in lines[-1]


def run(stage: Stage, sink: str, seed: int, victims: list[Victim] | None = None) -> Outcome:
    """One run; every kind of victim once, in random order, unless they are given."""
    trial = Run(stage, sink, seed)
    order = list(Victim) if victims is None else victims
    if victims is None:
        Random(seed).shuffle(order)
    began_s = time.monotonic()
    trial.start()
    for victim in order:
        if not trial.until_at_work():
            break
        trial.moment(victim)
        trial.kill(victim)
    trial.until_over()
    return trial.outcome(time.monotonic() - began_s)

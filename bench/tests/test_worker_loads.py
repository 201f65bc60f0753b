"""The part of workers in small, without Apache Kafka: one contestant at a time runs, and is whole afterwards."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from harness.waiting import wait_until

from bench import compiled
from bench.contestants import PYBROKER
from bench.context import QUICK, Context
from bench.loads import Extent, Outcome
from bench.measurements import Measurements
from bench.parts import cluster_workers
from bench.parts.cluster_workers import Started


def serving() -> set[int]:
    """The processes of brokers that are not stopped; a child that has just ended is none."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "--data-dir" in process.cmdline() and process.status() != psutil.STATUS_STOPPED:
                found.add(process.pid)
    return found


@pytest.mark.skipif(compiled.compiler() is None, reason="the load generators need a C compiler")
def test_workers_that_are_not_measured_stand_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def commits(started: Started, extent: Extent) -> Outcome:
        family = {started.broker.pid, *started.pids}
        wait_until(lambda: serving() == family, "all others stand still")
        measured.append(started.workers)
        return cluster_workers.commits(started, extent)

    monkeypatch.setattr(cluster_workers, "LOADS", {"8×1 commits": commits})
    monkeypatch.setattr(cluster_workers, "highest_rate", lambda *_: 0.0)
    monkeypatch.setattr(cluster_workers, "COUNTING_S", 0.1)
    volume = replace(QUICK, rounds=2, seconds=0.3, warmup_seconds=0.1)
    context = Context([PYBROKER], volume, tmp_path, Measurements(), part="cluster_workers")
    cluster_workers.run(context)
    assert measured == [1, 2, 2, 1]

    def samples(name: str) -> list[float]:
        metric = context.measurements.get("cluster_workers", name)
        assert metric is not None, name
        return metric.samples[PYBROKER]

    one, two = (samples(f"8×1 commits, {workers}") for workers in ("1 worker", "2 workers"))
    assert samples("8×1 commits rate of two by one") == [both / alone for alone, both in zip(one, two, strict=True)]
    assert len(samples("two busy processes by one")) == 1

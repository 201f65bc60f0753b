"""Seeds of the simulation: none violates an invariant, and each can be replayed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from harness.waiting import PATIENCE_S

from tests.simulation.simulation import Simulation
from tests.source_tree import ROOT

SEEDS = 100
SHARE = 50  # of them, which one test runs: several find their place beside what waits
ACTIVE_MS = 14_000  # of virtual time per run: what continuous integration has time for
QUICK_SEEDS = range(1, 6)


@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_a_short_run_violates_no_invariant(seed: int) -> None:
    outcome = Simulation(seed, active_ms=5_000).run()
    assert outcome.violation is None, f"scripts/sim --seed {seed} --active-ms 5000: {outcome.violation}"


def test_log_dir_that_failed_while_the_broker_started_is_back_in_the_calm_time() -> None:
    simulation = Simulation(5, active_ms=6_000, faults=frozenset(), steps_max=30_000)
    process = simulation.process

    def fail() -> None:
        process.disk.broken = str(process.log_dirs[1])
        simulation.faults.died("killed", power_failed=False)

    def mend() -> None:
        process.disk.broken = ""

    simulation.scheduler.after(3_000_000, None, fail)
    simulation.scheduler.after(4_500_000, None, mend)
    outcome = simulation.run()
    assert (outcome.violation, outcome.lives) == (None, 4)


def test_a_seed_gives_the_same_trace_whatever_the_hash_seed_is() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seed", "8", "--quiet", "--active-ms", "6000"]
    outputs = {
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
        for hash_seed in ("0", "1")
    }
    assert len(outputs) == 1, outputs
    assert Simulation(8, active_ms=6_000).run().trace_hash[:16] in outputs.pop()


def test_the_trace_tells_of_requests_faults_and_lives() -> None:
    lines: list[str] = []
    Simulation(8, active_ms=6_000, write_trace=lines.append).run()
    text = "\n".join(lines)
    for expected in ("-> ProduceRequest", "<- JoinGroupResponse", "FAULT", "BROKER", "CALM"):
        assert expected in text


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1, SEEDS + 1, SHARE))
def test_many_seeds_violate_no_invariant(first: int) -> None:
    # A process of its own: the pool of several leaves a tracker of resources behind in the one that made it.
    command = [
        sys.executable,
        "-m",
        "tests.simulation",
        "--seeds",
        f"{first}-{first + SHARE - 1}",
        "--jobs",
        "1",
        "--active-ms",
        str(ACTIVE_MS),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SHARE} seeds, " in done.stdout
    assert done.stdout.endswith("violated by: none\n")


def test_a_run_leaves_the_loggers_of_the_broker_as_they_were() -> None:
    logger = logging.getLogger("pybroker.storage.dirs.log_dir")
    simulation = Simulation(8)
    with simulation._installed():
        assert not logger.isEnabledFor(logging.WARNING)
    assert logger.isEnabledFor(logging.WARNING)

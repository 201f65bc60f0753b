"""Seeds of the simulated cluster: none violates an invariant, and each can be replayed."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest
from harness.waiting import PATIENCE_S

from pybroker.cluster.membership.cluster_member import ClusterMember
from tests.simulation.cluster_faults import FAULTS, RARE_FAULTS, drawn_kinds
from tests.simulation.cluster_simulation import ClusterSimulation
from tests.simulation.full_disks import GOES_ON
from tests.simulation.run import Outcome
from tests.source_tree import ROOT

QUICK_SEEDS = range(1, 3)
SEEDS = 100
SHARE = 25  # of them, which one test runs, two at a time: a file's tests are one after another


def paused(seed: int) -> Outcome:
    """A run in which brokers stand still, and news reach them late, with readers that know no leader epochs."""
    faults = frozenset({"long pause", "slow store"})
    return ClusterSimulation(seed, with_groups=False, with_old_readers=True, active_ms=40_000, faults=faults).run()


@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_a_short_run_of_a_cluster_violates_no_invariant(seed: int) -> None:
    outcome = ClusterSimulation(seed, active_ms=5_000).run()
    assert outcome.violation is None, f"scripts/sim --brokers 3 --seed {seed} --active-ms 5000: {outcome.violation}"


def test_partitions_without_followers_are_spread_over_brokers_that_die_each_for_itself() -> None:
    outcome = ClusterSimulation(4, replication_factor=1, active_ms=5_000).run()
    assert outcome.violation is None, str(outcome.violation)


def test_a_broker_with_an_empty_disk_gets_its_replicas_anew_and_nothing_committed_is_lost() -> None:
    faults = frozenset({"wiped disk", "kill", "clean restart", "pause"})
    outcome = ClusterSimulation(6, with_groups=False, active_ms=10_000, faults=faults).run()
    assert outcome.violation is None, str(outcome.violation)
    assert outcome.faults["wiped disk"] > 1


def test_a_broker_that_wakes_from_a_long_pause_tells_readers_without_epochs_nothing_wrong() -> None:
    outcome = paused(102)
    assert outcome.violation is None, str(outcome.violation)
    assert outcome.faults["long pause"] > 3


def full_disks(seed: int) -> tuple[Outcome, int]:
    """A run in which one disk after another is full for long; how often the rule of liveness had something to say."""
    faults = frozenset({"disk that stays full"})
    simulation = ClusterSimulation(seed, with_groups=False, active_ms=40_000, faults=faults)
    return simulation.run(), simulation.full_disks.looks


def test_partitions_go_on_while_a_disk_stays_full_and_its_broker_comes_back_by_itself() -> None:
    outcome, looks = full_disks(2)
    assert outcome.violation is None, str(outcome.violation)
    assert outcome.faults["disk that stays full"] > 1
    assert looks > 100


def test_a_broker_that_keeps_its_full_disk_to_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterMember, "note_full_directories", lambda self, directories: None)
    outcome, _ = full_disks(2)
    assert outcome.violation is not None
    assert outcome.violation.invariant == GOES_ON


def test_disks_that_stay_full_and_all_other_faults_together_violate_no_invariant() -> None:
    outcome = ClusterSimulation(11, active_ms=8_000, faults=frozenset(FAULTS | RARE_FAULTS)).run()
    assert outcome.violation is None, str(outcome.violation)


def test_a_third_of_the_seeds_have_three_to_six_kinds_of_faults_and_the_others_all() -> None:
    drawn = [drawn_kinds(Random(seed), frozenset(FAULTS)) for seed in range(1_000)]
    swarms = [set(kinds) for kinds in drawn if kinds != list(FAULTS)]
    assert 250 < len(swarms) < 350
    assert {len(kinds) for kinds in swarms} == {3, 4, 5, 6}
    assert set.union(*swarms) == FAULTS.keys() | RARE_FAULTS.keys()


def test_kinds_of_faults_that_are_asked_for_are_all_that_strike() -> None:
    asked = frozenset({"kill", "swing of a leadership"})
    assert all(set(drawn_kinds(Random(seed), asked)) == asked for seed in range(100))


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
def test_a_broker_that_does_not_doubt_itself_after_a_pause_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterMember, "guard_against_stalls", lambda self, gate: None)
    found = next((outcome for seed in range(352, 552) if (outcome := paused(seed)).violation is not None), None)
    assert found is not None
    assert found.violation is not None
    assert "error 1" in found.violation.detail, "OFFSET_OUT_OF_RANGE of what was read from the next leader"


def test_a_seed_of_a_cluster_gives_the_same_trace_whatever_the_hash_seed_is() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--brokers", "3", "--seed", "2"]
    outputs = {
        subprocess.run(
            [*command, "--quiet", "--active-ms", "5000"],
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


def test_the_trace_of_a_cluster_tells_of_brokers_faults_and_the_store() -> None:
    lines: list[str] = []
    ClusterSimulation(2, active_ms=8_000, write_trace=lines.append).run()
    text = "\n".join(lines)
    for expected in ("CLUSTER", "broker-2 ", "serves", "FAULT", "STORE", "-> ProduceRequest", "CALM"):
        assert expected in text


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("offset", range(0, SEEDS, SHARE))
def test_many_seeds_of_a_cluster_violate_no_invariant(offset: int) -> None:
    """Each commit draws its own; the output says how a seed is run again."""
    # A process of its own: the pool of several leaves a tracker of resources behind in the one that made it.
    first = first_seed_of_the_commit() + offset
    seeds = f"{first}-{first + SHARE - 1}"
    command = [sys.executable, "-m", "tests.simulation", "--brokers", "3", "--seeds", seeds, "--jobs", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1_750)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SHARE} seeds, " in done.stdout
    assert done.stdout.endswith("violated by: none\n")
    for told in ("faults:", "invariants checked:", "states reached:"):
        assert told in done.stdout


def first_seed_of_the_commit() -> int:
    """The same on every machine; 1 where the code lies in no repository."""
    git = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return 1 if found.returncode else int(found.stdout[:7], 16) * 1_000 + 1

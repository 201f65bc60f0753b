"""``scripts/sim``: run seeds of the simulation, one with its trace or many without.

Exits with 1, and names the seed, the event and the invariant, when one is violated.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from tests.simulation import cluster_faults
from tests.simulation.cluster_simulation import ClusterSimulation
from tests.simulation.cut_simulation import CutSimulation
from tests.simulation.faults import FAULTS
from tests.simulation.link_simulation import LinkSimulation
from tests.simulation.run import Outcome
from tests.simulation.simulation import Simulation


def say(line: str) -> None:
    """One line to the standard output, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one run and print its trace")
    parser.add_argument("--seeds", metavar="A-B", help="run the seeds from A to B")
    parser.add_argument("--brokers", type=int, default=1, help="how many; from two on they are one cluster")
    parser.add_argument("--cuts", action="store_true", help="of a cluster: partial and one-way cuts, and nothing else")
    parser.add_argument("--link", action="store_true", help="two clusters, the one of which mirrors the other")
    parser.add_argument("--replication-factor", type=int, help="of a cluster's topics; as many as brokers when unset")
    parser.add_argument("--active-ms", type=int, default=20_000, help="virtual time in which faults strike")
    parser.add_argument("--steps", type=int, help="give a run up after so many events")
    parser.add_argument("--faults", help="which faults strike, separated by commas; all when unset")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--quiet", action="store_true", help="no trace")
    return parser.parse_args(arguments)


class Wanted(NamedTuple):
    """What kind of run, whatever its seed is."""

    brokers: int
    replication_factor: int | None
    active_ms: int
    steps_max: int | None
    faults: frozenset[str]
    cuts: bool = False
    link: bool = False

    def run(self, seed: int, write_trace: Callable[[str], None] | None = None) -> Outcome:
        """One run."""
        cluster = partial(ClusterSimulation, brokers=self.brokers, replication_factor=self.replication_factor)
        kind = Simulation if self.brokers == 1 else cluster
        limits: dict[str, Any] = {} if self.steps_max is None else {"steps_max": self.steps_max}
        if self.cuts:
            cut = CutSimulation(seed, brokers=max(self.brokers, 3), active_ms=self.active_ms, write_trace=write_trace)
            return cut.run()
        if self.link:
            limits = {**limits, "active_ms": self.active_ms, "faults": self.faults, "write_trace": write_trace}
            return LinkSimulation(seed, brokers=self.brokers, **limits).run()
        return kind(seed, active_ms=self.active_ms, faults=self.faults, write_trace=write_trace, **limits).run()

    def again(self, seed: int) -> str:
        """The command that runs a seed of this kind once more."""
        options = {
            "--brokers": self.brokers,
            "--replication-factor": self.replication_factor,
            "--active-ms": self.active_ms,
            "--steps": self.steps_max,
        }
        given = [f"{name} {value}" for name, value in options.items() if value is not None]
        if self.faults != faults_of(None, self.brokers):
            given.append(f"--faults '{','.join(sorted(self.faults))}'")
        return " ".join(["scripts/sim", *given, *["--cuts"] * self.cuts, *["--link"] * self.link, f"--seed {seed}"])


def faults_of(names: str | None, brokers: int) -> frozenset[str]:
    """The faults that were asked for, of those that there are."""
    usual = FAULTS if brokers == 1 else cluster_faults.FAULTS
    if names is None:
        return frozenset(usual)
    known = usual if brokers == 1 else usual | cluster_faults.RARE_FAULTS
    faults = frozenset(name.strip() for name in names.split(",") if name.strip())
    unknown = faults - set(known)
    if unknown:
        sys.exit(f"unknown faults: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    return faults


def describe(outcome: Outcome) -> str:
    """One line."""
    faults = sum(outcome.faults.values())
    ran = (
        f"seed {outcome.seed}: {outcome.steps} events in {outcome.virtual_ms / 1000:.1f} s of virtual time, "
        f"{faults} faults, {outcome.lives} lives, {outcome.batches} batches, trace {outcome.trace_hash[:16]}"
    )
    return ran if outcome.violation is None else f"{ran}\n  VIOLATED at event {outcome.steps}: {outcome.violation}"


def main(arguments: list[str]) -> int:
    """Run what was asked for; the exit code."""
    options = parse_arguments(arguments)
    options.brokers = max(options.brokers, 2) if options.link else options.brokers
    faults = faults_of(options.faults, options.brokers)
    wanted = Wanted(
        options.brokers,
        options.replication_factor,
        options.active_ms,
        options.steps,
        faults,
        options.cuts,
        options.link,
    )
    if options.seeds is None:
        seed = options.seed if options.seed is not None else 1
        outcome = wanted.run(seed, None if options.quiet else say)
        say(describe(outcome))
        return int(outcome.violation is not None)
    first, _, last = options.seeds.partition("-")
    return run_many(range(int(first), int(last or first) + 1), wanted, options.jobs)


def table(title: str, counts: Mapping[str, int]) -> str:
    """How often each of something came, the rarest first: what never came is what the seeds do not test."""
    lines = [f"  {count:>11,}  {name}" for name, count in sorted(counts.items(), key=lambda entry: entry[1])]
    return "\n".join([f"{title}:", *lines])


def run_many(seeds: range, wanted: Wanted, jobs: int) -> int:
    """Run the seeds, several at a time; the exit code."""
    started = time.monotonic()
    failed: list[int] = []
    events = 0
    faults: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool:
        for outcome in pool.map(wanted.run, seeds):
            events += outcome.steps
            faults.update(outcome.faults)
            checked.update(outcome.checked)
            reached.update(outcome.reached)
            if outcome.violation is not None:
                failed.append(outcome.seed)
                say(f"{describe(outcome)}\n  again: {wanted.again(outcome.seed)}")
    for title, counts in (("faults", faults), ("invariants checked", checked), ("states reached", reached)):
        say(table(title, counts))
    say(f"{len(seeds)} seeds, {events} events, {time.monotonic() - started:.0f} s, violated by: {failed or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

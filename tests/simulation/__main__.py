"""``scripts/sim``: run seeds of the simulation, one with its trace or many without.

Exits with 1, and names the seed, the event and the invariant, when one is violated.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.faults import FAULTS
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
    parser.add_argument("--active-ms", type=int, default=20_000, help="virtual time in which faults strike")
    parser.add_argument("--steps", type=int, default=400_000, help="give a run up after so many events")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which faults strike, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--quiet", action="store_true", help="no trace")
    return parser.parse_args(arguments)


def run_seed(seed: int, active_ms: int, steps_max: int, faults: frozenset[str]) -> Outcome:
    """One run without a trace."""
    return Simulation(seed, active_ms=active_ms, steps_max=steps_max, faults=faults).run()


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
    faults = frozenset(name.strip() for name in options.faults.split(",") if name.strip())
    unknown = faults - set(FAULTS)
    if unknown:
        sys.exit(f"unknown faults: {', '.join(sorted(unknown))}; known are {', '.join(FAULTS)}")
    if options.seeds is None:
        seed = options.seed if options.seed is not None else 1
        trace = None if options.quiet else say
        simulation = Simulation(
            seed, active_ms=options.active_ms, faults=faults, write_trace=trace, steps_max=options.steps
        )
        outcome = simulation.run()
        say(describe(outcome))
        return int(outcome.violation is not None)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    run = partial(run_seed, active_ms=options.active_ms, steps_max=options.steps, faults=faults)
    return run_many(seeds, run, options.jobs)


def run_many(seeds: range, run: partial[Outcome], jobs: int) -> int:
    """Run the seeds, several at a time; the exit code."""
    started = time.monotonic()
    failed: list[int] = []
    events = 0
    with ProcessPoolExecutor(jobs) as pool:
        for outcome in pool.map(run, seeds):
            events += outcome.steps
            if outcome.violation is not None:
                failed.append(outcome.seed)
                say(describe(outcome))
    say(f"{len(seeds)} seeds, {events} events, {time.monotonic() - started:.0f} s, violated by: {failed or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``scripts/mutants``: run mutants, each in a pytest of its own, and say which of them the suite does not notice.

Owns: the command's options, which mutants are run, and the table and the file of results.  First the tests that the
chosen mutants name are run without any: they must pass.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import process_tree, results

from mutants.catalogue import MUTANTS, by_name
from mutants.mutant import CANARY, Mutant, check_applicable
from mutants.places import NotApplicable
from mutants.plugin_names import MUTANT, REPORT
from mutants.verdict import CAUGHT, UNFIT, Verdict, judge

ROOT = Path(__file__).resolve().parents[2]
PART = "mutants"
AT_ONCE_IN_CI = 10
_ORDER_SEED = 4_3_1
_TIMEOUT_S = 300.0
_UNMUTATED_TIMEOUT_S = 600.0
_ATTEMPTS = 2  # a stalled machine may spoil a run
# Without what the tests of the wire do not need; half of a run would be spent on importing it.
_PYTEST = (
    *(sys.executable, "-m", "pytest", "-q", "--no-header", "--confcutdir", "compat-tests/conformance"),
    *("-p", "no:randomly", "-p", "no:xdist", "-p", "no:hypothesispytest"),
)

# What is run now ends as if it had failed, and must not be begun anew.
_ending = threading.Event()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def chosen_in_ci(seed: int, mutants: Sequence[Mutant] = MUTANTS) -> list[Mutant]:
    """Ten of them; seeds that follow one another go through all, in an order that mixes the families."""
    mixed = random.Random(_ORDER_SEED).sample(mutants, len(mutants))
    start = seed * AT_ONCE_IN_CI
    return [mixed[(start + offset) % len(mixed)] for offset in range(min(AT_ONCE_IN_CI, len(mixed)))]


def tests_pass(mutants: Sequence[Mutant]) -> bool:
    """Whether the tests that these mutants name pass without any mutant."""
    node_ids = dict.fromkeys([CANARY, *(node_id for mutant in mutants for node_id in mutant.node_ids)])
    try:
        finished = process_tree.run(
            [*_PYTEST, *node_ids],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_UNMUTATED_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        say(f"the tests have not ended within {_UNMUTATED_TIMEOUT_S} s")
        return False
    if finished.returncode != 0:
        say(finished.stdout)
    return finished.returncode == 0


def run_mutant(mutant: Mutant) -> list[Verdict]:
    """The verdicts of each attempt, the last of which counts: what was not caught is given another one."""
    attempts = [_run_once(mutant)]
    while attempts[-1].outcome != CAUGHT and len(attempts) < _ATTEMPTS and not _ending.is_set():
        attempts.append(_run_once(mutant))
    return attempts


def _run_once(mutant: Mutant) -> Verdict:
    """Run the tests that the mutant names, and the canary, with the mutant in the broker."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        report = Path(directory) / "report.json"
        command = [*_PYTEST, "-p", "mutants.plugin", CANARY, *mutant.node_ids]
        environment = {**os.environ, MUTANT: mutant.name, REPORT: str(report)}
        try:
            process_tree.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return Verdict(mutant, UNFIT, reason="it hangs", seconds=time.monotonic() - started)
        found = json.loads(report.read_text()) if report.exists() else None
    return judge(mutant, found, time.monotonic() - started)


def show(attempts: Sequence[Verdict]) -> None:
    """A line for each attempt; of a mutant that nobody caught also where it is, and what it changes."""
    for verdict in attempts:
        tests = ", ".join(node_id.rpartition("/")[2] for node_id in verdict.caught_by)
        say(f"{verdict.outcome:9} {verdict.seconds:5.1f} s  {verdict.mutant.name:45}  {verdict.reason or tests}")
    if attempts[-1].outcome != CAUGHT:
        for edit in attempts[-1].mutant.edits:
            say(edit.shown())


def tell_changes(mutants: Sequence[Mutant]) -> None:
    """The change of each mutant; of none is any test run."""
    for mutant in mutants:
        say(f"{mutant.name}: {mutant.trap}")
        for edit in mutant.edits:
            say(edit.shown())


def write_results(runs: Iterable[Sequence[Verdict]]) -> None:
    """What the report reads: one entry for each mutant of this run, with what became of each attempt."""
    results.write(PART, [entry_of(attempts) for attempts in runs])


def entry_of(attempts: Sequence[Verdict]) -> dict[str, Any]:
    """A mutant: the last attempt counts."""
    verdict = attempts[-1]
    return {
        "name": verdict.mutant.name,
        "trap": verdict.mutant.trap,
        "outcome": verdict.outcome,
        "caught_by": list(verdict.caught_by),
        "seconds": round(sum(attempt.seconds for attempt in attempts), 2),
        "attempts": [{"outcome": attempt.outcome, "reason": attempt.reason} for attempt in attempts],
    }


def arguments_of(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description="Can the suite fail?  Break pybroker and see.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to run; default: all")
    parser.add_argument("--list", action="store_true", help="name every mutant with its trap, and run none")
    parser.add_argument("--show", action="store_true", help="show what the mutants change, and run none")
    parser.add_argument("--ci", action="store_true", help=f"run {AT_ONCE_IN_CI} of them, others each day")
    parser.add_argument("--seed", type=int, help="which ones --ci runs; default: the date")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="mutants at a time")
    return parser.parse_args(words)


def choose(arguments: argparse.Namespace) -> list[Mutant]:
    if arguments.names:
        return [by_name(name) for name in arguments.names]
    if not arguments.ci:
        return list(MUTANTS)
    seed = datetime.datetime.now(datetime.UTC).date().toordinal() if arguments.seed is None else arguments.seed
    say(f"--seed {seed}")
    return chosen_in_ci(seed)


def run_all(mutants: Sequence[Mutant], jobs: int) -> list[list[Verdict]]:
    """Run them, as many at a time, and tell of each; what is broken off leaves nothing running."""
    runs = []
    with ThreadPoolExecutor(jobs) as threads:
        try:
            for attempts in threads.map(run_mutant, mutants):
                show(attempts)
                runs.append(attempts)
        except BaseException:
            _ending.set()
            process_tree.end_children()
            raise
    return runs


def main(words: Sequence[str] | None = None) -> int:
    arguments = arguments_of(sys.argv[1:] if words is None else words)
    if arguments.list:
        for mutant in MUTANTS:
            say(f"{mutant.name:45}  {mutant.trap}")
        return 0
    try:
        mutants = choose(arguments)
        for mutant in mutants:
            check_applicable(mutant)
    except (KeyError, NotApplicable) as error:
        say(f"cannot run: {error}")
        return 1
    if arguments.show:
        tell_changes(mutants)
        return 0
    if not tests_pass(mutants):
        say("the tests fail without a mutant")
        return 1
    runs = run_all(mutants, max(arguments.jobs, 1))
    write_results(runs)
    caught = [attempts for attempts in runs if attempts[-1].outcome == CAUGHT]
    again = sum(len(attempts) > 1 for attempts in caught)
    say(f"{len(caught)} of {len(runs)} mutants caught" + (f", {again} of them at a second attempt" if again else ""))
    return 0 if len(caught) == len(runs) else 1

"""``scripts/failover``: kill brokers of a cluster under clients at work, and tell how long those wait.

Runs add up until ``--fresh``; ``--report`` writes them to ``compat-tests/failover/REPORT.md``.  Exits with 1 when a
record was lost or a broker that lives was given up, with 2 when there was nothing to judge.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from harness import results
from harness.machine import machine, now_text
from harness.termination import exit_on_sigterm

from failover import load
from failover.brokers import Brokers, apache_brokers, pybrokers
from failover.clients import LIBRARIES
from failover.kills import Kill, Run, at_work
from failover.report import PAGE, page, summary

PART = "failover"
NOTHING_TO_JUDGE = 2


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/failover", description=__doc__)
    parser.add_argument("--apache", action="store_true", help="Apache Kafka's brokers, for comparison")
    parser.add_argument("--metadata", choices=("sqlite", "zookeeper"), default="sqlite", help="the brokers' store")
    parser.add_argument("--client", choices=LIBRARIES, default="librdkafka", help="whose clients (%(default)s)")
    parser.add_argument("--kills", type=int, help="how many brokers are killed (10, or none with another trouble)")
    parser.add_argument("--busy", type=float, default=0, metavar="MINUTES", help="all cores busy by other processes")
    parser.add_argument("--stalls", type=int, default=0, metavar="N", help="brokers stopped for 300 ms each")
    parser.add_argument("--seed", type=int, default=None, help="of what is left to chance")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep logs and data there")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs of the same kind")
    parser.add_argument("--report", action="store_true", help="run nothing, write the page of all runs")
    return parser.parse_args()


def cluster(arguments: argparse.Namespace, directory: Path) -> AbstractContextManager[Brokers]:
    return apache_brokers(directory) if arguments.apache else pybrokers(directory, arguments.metadata)


def kill_several(run: Run, count: int) -> list[Kill]:
    kills = []
    for number in range(count):
        kills.append(kill := run.kill_one(number))
        whom = "the controller" if kill.was_controller else "a leader"
        say(
            f"kill {number + 1}, of {whom}: acknowledgements {kill.acknowledgements:.0f} ms, "
            f"reading {kill.reading:.0f} ms, given up {kill.fencing:.0f} ms, "
            f"metadata {kill.first_metadata:.0f} to {kill.metadata:.0f} ms, elsewhere {kill.elsewhere:.0f} ms"
            + (f", commits {kill.commits:.0f} ms" if kill.was_coordinator else "")
        )
    return kills


def trouble(arguments: argparse.Namespace, brokers: Brokers, directory: Path) -> dict[str, Any]:
    """What happens while nobody dies, as it is kept."""
    kept: dict[str, Any] = {"load": os.getloadavg()[0]}
    if arguments.busy:

        def be_busy() -> None:
            with load.busy_cores(directory):
                time.sleep(arguments.busy * 60)
            kept["load"] = os.getloadavg()[0]

        found = load.watched(brokers, be_busy)
        kept |= {"minutes": arguments.busy, "busy_failures": found.failures}
        for line in found.told:
            say(line)
        say(f"{arguments.busy:g} minutes with busy cores: {len(found.told)} lines, {found.moved} leaders moved")
    if arguments.stalls:
        found = load.watched(brokers, lambda: load.stall_in_turn(brokers, arguments.stalls, say))
        kept |= {"stalls": arguments.stalls, "stall_failures": found.failures}
        for line in found.told:
            say(line)
        say(f"{arguments.stalls} stalls: {len(found.told)} lines, {found.moved} leaders moved")
    return kept


def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """One run, as it is kept."""
    count = arguments.kills
    if count is None:
        count = 0 if arguments.busy or arguments.stalls else 10
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    with cluster(arguments, directory) as brokers, at_work(directory, brokers, arguments.client, seed) as run:
        kept = trouble(arguments, brokers, directory)
        kills = kill_several(run, count)
        accounted, given_up = run.finish()
    return {
        "broker": brokers.name,
        "metadata": "KRaft" if arguments.apache else arguments.metadata,
        "client": arguments.client,
        "at": now_text(),
        "machine": machine(),
        **kept,
        "kills": [kill._asdict() for kill in kills],
        **accounted._asdict(),
        "given_up": given_up,
    }


def keep(run: dict[str, Any], *, fresh: bool) -> list[dict[str, Any]]:
    """Add a run to the others of its kind; all there are then."""
    kind = ("broker", "metadata", "client")
    former = results.read(PART) or []
    if fresh:
        former = [each for each in former if any(each[name] != run[name] for name in kind)]
    results.write(PART, [*former, run])
    return [*former, run]


def failed(run: dict[str, Any]) -> bool:
    return bool(run["lost"] or run["given_up"] or run.get("busy_failures") or run.get("stall_failures"))


def main() -> int:
    arguments = parse_arguments()
    if arguments.report:
        runs = results.read(PART)
        if not runs:
            sys.stderr.write("scripts/failover: there is no run to tell of\n")
            return NOTHING_TO_JUDGE
        PAGE.write_text(page(runs))
        return 0
    with ExitStack() as stack:
        directory = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="failover-")))
        directory.mkdir(parents=True, exist_ok=True)
        run = measure(arguments, directory)
    say(f"{run['acknowledged']} records acknowledged, {run['lost']} lost, {run['repeated']} written twice")
    say(summary([run]))
    keep(run, fresh=arguments.fresh)
    return int(failed(run))


if __name__ == "__main__":
    exit_on_sigterm()
    try:
        sys.exit(main())
    except Exception:  # Python's own exit code for it says that something was lost
        traceback.print_exc()
        sys.exit(NOTHING_TO_JUDGE)

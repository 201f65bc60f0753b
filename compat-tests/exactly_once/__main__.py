"""``scripts/exactly-once``: run a job from topic to topic under kills, and compare what is there with what should be.

Runs of ``--sink pybroker`` must be exact: exit code 1 says that one was not.  Those of ``--sink kafka`` show what
Spark's own sink does under the same kills.  Runs are kept until ``--report`` adds them, as a series, to what
``compat-tests/exactly_once/REPORT.md`` tells; ``--fresh`` forgets those that were not told yet.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness import results
from harness.machine import machine, now_text
from harness.termination import exit_on_sigterm

from exactly_once.brokers import CLUSTER
from exactly_once.report import NAMES, PAGE, page, read_series, series_of, summary, write_series
from exactly_once.trial import RECORDS, Stage, run

PART = "exactly_once"
NOTHING_TO_JUDGE = 2


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/exactly-once", description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="of each sink (%(default)s)")
    parser.add_argument("--sink", choices=NAMES, action="append", help="which sink (both)")
    parser.add_argument(
        "--brokers", type=int, choices=(1, CLUSTER), default=1, help="one alone, or a cluster (%(default)s)"
    )
    parser.add_argument("--records", type=int, default=RECORDS, help="of a run (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the first run; the others count on")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep logs and data there")
    parser.add_argument("--fresh", action="store_true", help="forget runs that no page tells of")
    parser.add_argument("--report", action="store_true", help="run nothing, add the runs to the page")
    parser.add_argument("--note", default="", help="what the page says of the runs that are added")
    return parser.parse_args()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def keep(outcome: dict[str, Any]) -> None:
    """Add a run to the others: none is lost with what is cut off."""
    results.write(PART, [*(results.read(PART) or []), outcome])


def report(note: str) -> int:
    """Add the runs to the page, and forget them; the page is written anew where there are none."""
    series = read_series()
    if runs := results.read(PART):
        series += series_of(runs, now_text()[:10], machine(), note)
        write_series(series)
    elif not series:
        sys.stderr.write("scripts/exactly-once: there is no run to tell of\n")
        return NOTHING_TO_JUDGE
    PAGE.write_text(page(series))
    results.forget(PART)
    return 0


def main() -> int:
    arguments = parse_arguments()
    if arguments.fresh:
        results.forget(PART)
    if arguments.report:
        return report(arguments.note)
    is_exact = True
    first = int(time.time()) if arguments.seed is None else arguments.seed
    with ExitStack() as stack:
        directory = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactly-once-")))
        stage = stack.enter_context(Stage(directory, arguments.records, arguments.brokers))
        for seed in range(first, first + arguments.runs):
            for sink in arguments.sink or NAMES:
                outcome = run(stage, sink, seed)._asdict()
                say(summary(outcome))
                keep(outcome)
                is_exact &= sink != "pybroker" or not outcome["repeated"] + outcome["missing"]
    return 0 if is_exact else 1


if __name__ == "__main__":
    exit_on_sigterm()
    sys.exit(main())

"""What the runs have found, as a page.

Owns: the page's words and the sums of runs.  Measures nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

PAGE: Final = Path(__file__).resolve().parent / "REPORT.md"
NAMES: Final = {"pybroker": 'ours, `format("pybroker")`', "kafka": 'Spark\'s own, `format("kafka")`'}

_HEAD: Final = """# Exactly once

Written by `scripts/exactly-once --report` from its runs. A job on a standalone cluster of Spark (a master, two workers,
an executor on each; all of it and the broker on one machine) reads a topic by `format("pybroker")`, divides its rows
anew by their keys among four tasks and writes them to another topic in about fourteen micro-batches; in every third run
it writes the counts of the keys instead, in mode `update`. In each run an executor, the Python process of a task, the
driver and the broker are killed with -9, each once, in random order, at random moments while the job is at work; the
driver as soon as a task of a micro-batch has committed. The driver and the broker are started again at once, a query
that failed as well; executors and tasks are Spark's own business. In the end a reader of committed records compares the
topic with what there should be, as multisets; of counts, each may be there once, and the last of each key must be.
"Tasks skipped" are those that found their rows committed by an earlier attempt: each would have been written twice
without its mark.
"""


def summary(outcome: dict[str, Any]) -> str:
    """A run in a line."""
    return (
        f"{outcome['sink']:<8} {outcome['mode']} seed {outcome['seed']}: "
        f"{' '.join(outcome['kills']) or 'nobody'} killed, "
        f"{outcome['records']} records, {outcome['repeated']} repeated, {outcome['missing']} missing, "
        f"{outcome['skipped']} skipped, {outcome['seconds']:.1f} s"
        + "".join(f"\n  failed: {error}" for error in outcome["failures"])
    )


def page(runs: Sequence[dict[str, Any]], machine: str) -> str:
    """The page."""
    rows = [_row(sink, [run for run in runs if run["sink"] == sink]) for sink in NAMES]
    head = (
        "| sink | runs | kills | records | repeated | in so many runs | missing | tasks skipped | a run, s "
        "| queries started again |"
    )
    table = "\n".join([head, "|---|---|---|---|---|---|---|---|---|---|", *rows])
    return f"{_HEAD}\n{table}\n\n{_kills(runs)}\n\n{machine}\n"


def _row(sink: str, runs: Sequence[dict[str, Any]]) -> str:
    cells = [
        len(runs),
        sum(len(run["kills"]) for run in runs),
        sum(run["records"] for run in runs),
        sum(run["repeated"] for run in runs),
        sum(run["repeated"] > 0 for run in runs),
        sum(run["missing"] for run in runs),
        sum(run["skipped"] for run in runs),
        f"{median(run['seconds'] for run in runs):.0f}" if runs else "-",
        sum(len(run["failures"]) for run in runs),
    ]
    return f"| {NAMES[sink]} | " + " | ".join(f"{each:,}" if isinstance(each, int) else each for each in cells) + " |"


def _kills(runs: Sequence[dict[str, Any]]) -> str:
    counted = Counter(victim for run in runs for victim in run["kills"])
    return "Killed in all: " + ", ".join(f"{victim} {count}" for victim, count in sorted(counted.items())) + "."

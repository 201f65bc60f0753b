"""What the runs have found, as a page.

Owns: the page's words, and the sums of runs.  Runs that were made together are a series; series stay in `SERIES`, a
line of JSON each, which is committed with the page, so that runs of other days and machines add up.  Measures nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from exactly_once.brokers import CLUSTER

PAGE: Final = Path(__file__).resolve().parent / "REPORT.md"
SERIES: Final = PAGE.with_name("series.jsonl")
NAMES: Final = {"pybroker": 'ours, `format("pybroker")`', "kafka": 'Spark\'s own, `format("kafka")`'}
_KINDS: Final = [(sink, brokers) for sink in NAMES for brokers in (1, CLUSTER)]

_HEAD: Final = """# Exactly once

Written by `scripts/exactly-once --report`, which adds its runs to those that were told before (`series.jsonl`). A job
on a standalone cluster of Spark (a master, two workers, an executor on each; all of it and the brokers on one machine)
reads a topic by `format("pybroker")`, divides its rows anew by their keys among four tasks and writes them to another
topic in about fourteen micro-batches; in every third run it writes the counts of the keys instead, in mode `update`. In
each run an executor, the Python process of a task, the driver and a broker are killed with -9, each once, in random
order, at random moments while the job is at work; the driver as soon as a task of a micro-batch has committed. The
driver and the broker are started again at once, a query that failed as well; executors and tasks are Spark's own
business. The broker is alone, or one of three, chosen at random (`--brokers 3`): all topics, those of the coordinators
too, have three replicas there, two of which at least have what was acknowledged. In the end a reader of committed
records compares the topic with what there should be, as multisets; of counts, each may be there once, and the last of
each key must be. "Tasks skipped" are those that found their rows committed by an earlier attempt: each would have been
written twice without its mark.
"""


@dataclass(frozen=True, slots=True)
class Series:
    """Runs of one sink, on as many brokers, that were made together, summed up.

    ``repeating`` counts the runs that repeated records; ``median_s`` are the seconds of a run, and ``restarts`` the
    queries that ended with an error and were started again.  ``seeds`` are the runs' own; older series kept none.
    """

    day: str
    machine: str
    sink: str
    runs: int
    kills: dict[str, int]
    records: int
    repeated: int
    repeating: int
    missing: int
    skipped: int
    median_s: float
    restarts: int
    note: str = ""
    brokers: int = 1
    seeds: tuple[int, ...] = ()


def series_of(runs: Sequence[dict[str, Any]], day: str, machine: str, note: str = "") -> list[Series]:
    """Each sink's runs, summed up, those on three brokers apart."""
    return [
        _summed(sink, brokers, own, day, machine, note)
        for sink, brokers in _KINDS
        if (own := [run for run in runs if (run["sink"], run["brokers"]) == (sink, brokers)])
    ]


def _summed(sink: str, brokers: int, runs: Sequence[dict[str, Any]], day: str, machine: str, note: str) -> Series:
    def total(name: str) -> int:
        return sum(run[name] for run in runs)

    return Series(
        day=day,
        machine=machine,
        sink=sink,
        runs=len(runs),
        kills=dict(sorted(Counter(victim for run in runs for victim in run["kills"]).items())),
        records=total("records"),
        repeated=total("repeated"),
        repeating=sum(run["repeated"] > 0 for run in runs),
        missing=total("missing"),
        skipped=total("skipped"),
        median_s=round(median(run["seconds"] for run in runs), 1),
        restarts=sum(len(run["failures"]) for run in runs),
        note=note,
        brokers=brokers,
        seeds=tuple(sorted(run["seed"] for run in runs)),
    )


def read_series(path: Path = SERIES) -> list[Series]:
    """What was told before."""
    told = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Series(**{**each, "seeds": tuple(each.get("seeds", ()))}) for each in told]


def write_series(series: Iterable[Series], path: Path = SERIES) -> None:
    """Keep them for the next page."""
    path.write_text("".join(f"{json.dumps(asdict(each), ensure_ascii=False)}\n" for each in series))


def summary(outcome: dict[str, Any]) -> str:
    """A run in a line."""
    return (
        f"{outcome['sink']:<8} {_of_brokers(outcome['brokers'])} {outcome['mode']} seed {outcome['seed']}: "
        f"{' '.join(outcome['kills']) or 'nobody'} killed, "
        f"{outcome['records']} records, {outcome['repeated']} repeated, {outcome['missing']} missing, "
        f"{outcome['skipped']} skipped, {outcome['seconds']:.1f} s"
        + "".join(f"\n  failed: {error}" for error in outcome["failures"])
    )


def page(series: Sequence[Series]) -> str:
    """The page: a line per series, and their sums by sink and number of brokers."""
    days = [_row(each.day, [each]) for each in series]
    own = [[each for each in series if (each.sink, each.brokers) == kind] for kind in _KINDS]
    sums = [_row("**all**", some) for some in own if some]
    head = (
        "| day | sink | brokers | runs | kills | records | repeated | in so many runs | missing | tasks skipped "
        "| a run, s | queries started again |"
    )
    table = "\n".join([head, "|---" * head.count(" |") + "|", *days, *sums])
    notes = [
        f"{each.day}, {NAMES[each.sink]}, {_of_brokers(each.brokers)}: {said}"
        for each in series
        if (said := " ".join(filter(None, (_of_seeds(each.seeds), each.note))))
    ]
    machines = [f"Machine: {machine}" for machine in dict.fromkeys(each.machine for each in series)]
    return "\n\n".join([f"{_HEAD}\n{table}", _kills(series), *notes, *machines]) + "\n"


def _of_seeds(seeds: Sequence[int]) -> str:
    """``seeds 3-5, 9.``, of those that are sorted."""
    runs: list[tuple[int, int]] = []
    for seed in seeds:
        if runs and seed - runs[-1][1] in (0, 1):
            runs[-1] = runs[-1][0], seed
        else:
            runs.append((seed, seed))
    told = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"seeds {told}." if told else ""


def _of_brokers(count: int) -> str:
    return f"{count} broker{'s' * (count > 1)}"


def _row(day: str, series: Sequence[Series]) -> str:
    """Of series that are alike in their sink and their number of brokers."""
    seconds = sorted({each.median_s for each in series})
    cells: list[int | str] = [
        series[0].brokers,
        sum(each.runs for each in series),
        sum(sum(each.kills.values()) for each in series),
        sum(each.records for each in series),
        sum(each.repeated for each in series),
        sum(each.repeating for each in series),
        sum(each.missing for each in series),
        sum(each.skipped for each in series),
        f"{seconds[0]:.0f}" if len(seconds) == 1 else f"{seconds[0]:.0f}–{seconds[-1]:.0f}",
        sum(each.restarts for each in series),
    ]
    shown = [each if isinstance(each, str) else f"{each:,}" for each in cells]
    return f"| {' | '.join([day, NAMES[series[0].sink], *shown])} |"


def _kills(series: Sequence[Series]) -> str:
    counted: Counter[str] = Counter()
    for each in series:
        counted.update(each.kills)
    return "Killed in all: " + ", ".join(f"{victim} {count}" for victim, count in sorted(counted.items())) + "."

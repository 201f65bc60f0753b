"""What the runs have found, as a page.

Owns: the figures of several runs together, and the page's words.  Measures nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).resolve().parent / "REPORT.md"

# Name of the field, what it is in the table, in milliseconds.
MEASURES: Final = (
    ("acknowledgements", "no acknowledgement"),
    ("reading", "nothing read"),
    ("elsewhere", "no acknowledgement elsewhere"),
    ("fencing", "given up after"),
    ("metadata", "new leader in all metadata after"),
)


def _figures(values: Iterable[float]) -> str:
    seen = sorted(value for value in values if value >= 0)
    return f"{statistics.median(seen):.0f} / {seen[-1]:.0f}" if seen else "-"


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """Median and worst of all kills of these runs, a line per measure."""
    kills = [kill for run in runs for kill in run["kills"]]
    if not kills:
        return "nobody was killed"
    lines = [f"{len(kills)} kills, milliseconds, median / worst:"]
    lines += [f"  {words:<34} {_figures(kill[name] for kill in kills)}" for name, words in MEASURES]
    lines.append(f"  {'no commit, coordinator killed':<34} {_figures(_commits(kills))}")
    return "\n".join(lines)


def _commits(kills: Iterable[dict[str, Any]]) -> Iterable[float]:
    return (kill["commits"] for kill in kills if kill["was_coordinator"])


def _kinds(runs: Sequence[dict[str, Any]]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in runs:
        found.setdefault((run["broker"], run["metadata"], run["client"]), []).append(run)
    return dict(sorted(found.items(), reverse=True))


_HEAD: Final = """# Fail-over

Written by `scripts/failover --report` from its runs. Three brokers with their own default settings, on one machine; a
topic of three partitions, each on all brokers, `min.insync.replicas` 2; one producer and one consumer, the only member
of its group, in processes of their own with their libraries' default settings. The producer sends a record every 5 ms,
to each partition in turn (that of `librdkafka-idempotent`, which has `enable.idempotence`, every ms); the consumer
commits every 50 ms. A broker is killed with -9, every second time the active
controller, and started again.

"No acknowledgement" and "nothing read" are the longest gaps on the partition that the dead broker led, "elsewhere" on
the two others. "Given up" is when a broker's log says so, "new leader" when every living broker's Metadata names one,
asked every 5 ms. The rest, up to the acknowledgement, is the client's. "No commit" counts kills of the group's
coordinator. Milliseconds, median / worst.
"""
_COLUMNS: Final = (
    "brokers", "metadata", "client", "kills", *(words for _, words in MEASURES), "no commit, coordinator killed"
)  # fmt: skip
_STEADY: Final = """
## Nobody dies

No broker may be given up, and no leader or controller change, while every core is kept busy for nine tenths of the time
by another process at normal priority, or while brokers are stopped (SIGSTOP) for 300 ms, one after the other.

| metadata | client | minutes busy | load | given up or changed | stalls | given up or changed |
|---|---|---|---|---|---|---|
"""
_RECORDS: Final = """
## Records

| brokers | metadata | client | acknowledged | lost | given up by the producer | in the log twice |
|---|---|---|---|---|---|---|
"""
_TWICE: Final = """
librdkafka's producer is not idempotent by default: what it sends again after a broken connection may lie in the log
twice. An idempotent one's may where it renumbers what it has in flight, behind an error in the middle of a pipeline.
"""


def page(runs: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    kinds = _kinds(runs)
    machines = ", ".join(sorted({run["machine"] for run in runs}))
    times = sorted(run["at"] for run in runs)
    parts = [_HEAD, f"\n{times[0]} to {times[-1]}, {machines}.\n\n## Kills\n\n"]
    parts.append(_row(_COLUMNS) + _row(["---"] * len(_COLUMNS)))
    for kind, of_kind in kinds.items():
        kills = [kill for run in of_kind for kill in run["kills"]]
        if kills:
            figures = [_figures(kill[name] for kill in kills) for name, _ in MEASURES]
            parts.append(_row([*kind, str(len(kills)), *figures, _figures(_commits(kills))]))
    parts.append(_STEADY)
    parts += [_row(row) for kind, of_kind in kinds.items() if (row := _steady_row(kind, of_kind))]
    parts.append(_RECORDS)
    for kind, of_kind in kinds.items():
        counts = [sum(run[name] for run in of_kind) for name in ("acknowledged", "lost", "given_up", "repeated")]
        parts.append(_row([*kind, *(f"{count:,}" for count in counts)]))
    return "".join([*parts, _TWICE])


def _steady_row(kind: tuple[str, str, str], runs: Sequence[dict[str, Any]]) -> list[str]:
    """What happened while nobody died; nothing where that was not tried."""
    sums = [sum(run.get(name, 0) for run in runs) for name in ("minutes", "busy_failures", "stalls", "stall_failures")]
    minutes, busy_failures, stalls, stall_failures = sums
    if not minutes and not stalls:
        return []
    loads = [run["load"] for run in runs if run.get("minutes")]
    load = f"{min(loads):.0f} to {max(loads):.0f}" if loads else "-"
    return [kind[1], kind[2], f"{minutes:g}", load, f"{busy_failures}", f"{stalls}", f"{stall_failures}"]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"

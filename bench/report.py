"""What a run says at its end: medians, ratios and bars on the terminal, as JSON and as Markdown."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

from harness import results
from harness.apache_kafka import KAFKA_VERSION
from harness.machine import machine, now_text

from bench.bars import Verdict, headlines, judge
from bench.contestants import FLOOR, KAFKA, PYBROKER
from bench.measurements import Measurements, Metric, ratio_text
from bench.process_stats import load_average

DIRECTORY = Path(__file__).resolve().parent
MARKDOWN_PATH = DIRECTORY / "RESULTS.md"
MARKS = {True: "met", False: "**missed**", None: "–"}


@dataclass(slots=True)
class RunInfo:
    """What a reader of the figures must know of the run."""

    command: str
    load_before: float
    load_after: float = 0.0
    started: str = field(default_factory=now_text)
    finished: str = ""
    machine: str = field(default_factory=machine)
    python: str = field(default_factory=platform.python_version)
    uvloop: str = field(default_factory=lambda: version("uvloop"))
    failed: list[str] = field(default_factory=list)
    stolen: dict[str, float] = field(default_factory=dict)
    """The share of the processors' time that the host took, by part."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each part took."""
    again: dict[str, str] = field(default_factory=dict)
    """Why a part was measured again, and when."""

    def finish(self) -> None:
        """Note the end."""
        self.finished = now_text()
        self.load_after = load_average()

    def lines(self) -> list[str]:
        """The facts, one a line."""
        facts = [
            f"Command: `{self.command}`, {self.started} to {self.finished}.",
            f"Machine: {self.machine}; load average {self.load_before:.1f} before, {self.load_after:.1f} after.",
            f"pybroker on CPython {self.python} and uvloop {self.uvloop}; Apache Kafka {KAFKA_VERSION}, 1 GB heap, G1.",
        ]
        if any(self.stolen.values()):
            shares = ", ".join(f"{part} {share:.1%}" for part, share in self.stolen.items())
            facts.append(f"Processor time that the host took for others: {shares}.")
        if self.seconds:
            times = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in self.seconds.items())
            facts.append(f"Time: {times}; {sum(self.seconds.values()) / 60:.0f} min in all.")
        facts.extend(f"Measured again: {part}, {why}." for part, why in self.again.items())
        return [*facts, f"Failed parts: {', '.join(self.failed)}."] if self.failed else facts


def figure(value: float | None) -> str:
    """A figure with as many digits as mean something."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def figure_with_spread(metric: Metric, name: str) -> str:
    """A contestant's median, with its lowest and highest round where there are several."""
    spread = metric.spread(name)
    text = figure(metric.median(name))
    return text if spread is None or spread[0] == spread[1] else f"{text} ({figure(spread[0])}–{figure(spread[1])})"


def ratio_with_spread(ratios: list[float]) -> str:
    """The median ratio of the rounds, with the lowest and the highest."""
    if not ratios:
        return "–"
    text = ratio_text(median(ratios))
    return text if len(ratios) == 1 else f"{text} ({ratio_text(min(ratios))}–{ratio_text(max(ratios))})"


def figure_rows(measurements: Measurements) -> Iterator[tuple[str, ...]]:
    """Every metric: what each contestant reached, and pybroker's share of both others."""
    for metric in measurements:
        yield (
            metric.part,
            metric.name,
            metric.unit,
            *(figure_with_spread(metric, name) for name in (KAFKA, PYBROKER, FLOOR)),
            *(ratio_with_spread(metric.ratios(PYBROKER, other)) for other in (KAFKA, FLOOR)),
        )


FIGURE_COLUMNS = ("part", "metric", "unit", "Apache Kafka", "pybroker", "floor", "pybroker ÷ Kafka", "pybroker ÷ floor")
BAR_COLUMNS = ("load", "measured", "rounds", "ahead", "bar", "met")
HEADLINE_COLUMNS = ("load", "unit", "Apache Kafka", "pybroker", "pybroker ÷ Kafka", "ahead")
NAMES = {KAFKA: "**Kafka**", PYBROKER: "pybroker", None: ""}


def bar_rows(measurements: Measurements) -> list[tuple[str, ...]]:
    """Every load with its figure, who is ahead, its bar and whether that is met."""
    return [bar_row(verdict) for verdict in judge(measurements)]


def bar_row(verdict: Verdict) -> tuple[str, ...]:
    """One load, a text for each column."""
    met = MARKS[verdict.met] if verdict.wanted else ""
    return (verdict.bar.what, verdict.figure, verdict.spread, NAMES[verdict.ahead], verdict.wanted, met)


def headline_rows(measurements: Measurements) -> list[tuple[str, ...]]:
    """The short table for the README: about ten loads, and every other one that Kafka wins."""
    rows = []
    for verdict in headlines(measurements):
        metric = measurements.get(verdict.bar.part, verdict.bar.metric)
        assert metric is not None
        figures = (figure_with_spread(metric, name) for name in (KAFKA, PYBROKER))
        ratio = ratio_with_spread(metric.ratios(PYBROKER, KAFKA))
        rows.append((verdict.bar.what, metric.unit, *figures, ratio, NAMES[verdict.ahead]))
    return rows


def print_report(info: RunInfo, measurements: Measurements) -> None:
    """The tables on stdout, without the loads that were left out."""
    print("\n".join(info.lines()))
    bars = [bar_row(verdict) for verdict in judge(measurements) if verdict.value is not None]
    for columns, rows in ((FIGURE_COLUMNS, list(figure_rows(measurements))), (BAR_COLUMNS, bars)):
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        print()
        for row in (columns, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def markdown_table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A table in Markdown."""
    return [
        f"| {' | '.join(columns)} |",
        f"|{'|'.join('---' for _ in columns)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def write_markdown(info: RunInfo, measurements: Measurements) -> Path:
    """Write ``bench/RESULTS.md``."""
    lines = [
        "# Benchmark results",
        "",
        "Medians over the rounds of one run, with the lowest and the highest round in parentheses; the contestants",
        "take turns on one machine. Ratios are taken round by round, so that what both met at the same time drops",
        "out. The floor is a server of a few lines of C that writes what it gets and answers: no broker, but what",
        "the machine can do. Written by the command below.",
        "",
        *(f"- {line}" for line in info.lines()),
        "",
        "## At a glance",
        "",
        *markdown_table(HEADLINE_COLUMNS, headline_rows(measurements)),
        "",
        "## Loads and bars",
        "",
        "Every load that is measured, with its bar where there is one; *ahead* is the broker that wins it.",
        "",
        *markdown_table(BAR_COLUMNS, bar_rows(measurements)),
        "",
        "## Figures",
        "",
        *markdown_table(FIGURE_COLUMNS, list(figure_rows(measurements))),
        "",
    ]
    MARKDOWN_PATH.write_text("\n".join(lines))
    return MARKDOWN_PATH


def read_json(path: Path) -> tuple[RunInfo, Measurements]:
    """What ``write_json`` has written."""
    document = json.loads(path.read_text())
    return RunInfo(**document["run"]), Measurements.from_json(document["metrics"])


def write_json(info: RunInfo, measurements: Measurements) -> Path:
    """Write every sample so far to ``bench/results``, and for the report; returns the file that is kept.

    A run has one file, however often it is written.
    """
    directory = DIRECTORY / "results"
    directory.mkdir(exist_ok=True)
    path = directory / f"{''.join(filter(str.isdigit, info.started))}.json"
    document = {"run": asdict(info), "metrics": measurements.to_json()}
    path.write_text(json.dumps(document, indent=1) + "\n")
    results.write("bench", document)
    return path

"""What a run says at its end: medians, ratios and bars on the terminal, as JSON and as Markdown."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import results
from apache_kafka import KAFKA_VERSION

from bench.bars import Judgement, Verdict, judge
from bench.contestants import KAFKA, PYBROKER
from bench.measurements import Measurements, ratio_text
from bench.process_stats import load_average, machine

DIRECTORY = Path(__file__).resolve().parent
MARKDOWN_PATH = DIRECTORY / "RESULTS.md"
MARKS = {True: "met", False: "**missed**", None: "–"}


def now_text() -> str:
    """This moment in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


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
        facts.extend(f"Measured again: {part}, {why}." for part, why in self.again.items())
        return [*facts, f"Failed parts: {', '.join(self.failed)}."] if self.failed else facts


def figure(value: float | None) -> str:
    """A median with as many digits as mean something."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def figure_rows(measurements: Measurements) -> Iterator[tuple[str, ...]]:
    """Part, metric, unit, both medians and their ratio."""
    for metric in measurements:
        ratio = metric.ratio(PYBROKER, KAFKA)
        yield (
            metric.part,
            metric.name,
            metric.unit,
            figure(metric.median(KAFKA)),
            figure(metric.median(PYBROKER)),
            "–" if ratio is None else ratio_text(ratio),
        )


FIGURE_COLUMNS = ("part", "metric", "unit", "Apache Kafka", "pybroker", "pybroker ÷ Kafka")
BAR_COLUMNS = ("bar", "measured", "bar first", "met", "bar raised", "met")


def bar_rows(measurements: Measurements) -> list[tuple[str, ...]]:
    """Every bar with its figure and whether it is met, as it was set first and as it was raised."""
    return [bar_row(verdict) for verdict in judge(measurements)]


def bar_row(verdict: Verdict) -> tuple[str, ...]:
    """One bar, a text for each column."""
    return (verdict.bar.what, verdict.figure, *judgement_cells(verdict.first), *judgement_cells(verdict.raised))


def judgement_cells(judgement: Judgement | None) -> tuple[str, str]:
    """What was wanted and whether it is met; nothing where nothing was wanted."""
    return ("", "") if judgement is None else (judgement.wanted, MARKS[judgement.met])


def print_report(info: RunInfo, measurements: Measurements) -> None:
    """The tables on stdout, without the bars of what was left out."""
    print("\n".join(info.lines()))
    bars = [bar_row(verdict) for verdict in judge(measurements) if verdict.now.met is not None]
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
        "Medians over the rounds of one run, both brokers in alternation on one machine. Written by the command below.",
        "",
        *(f"- {line}" for line in info.lines()),
        "",
        "## Bars",
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

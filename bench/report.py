"""What a run says at its end: medians, ratios and bars on the terminal, as JSON and as Markdown."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import NamedTuple

from harness import results
from harness.apache_kafka import KAFKA_VERSION
from harness.machine import machine, now_text

from bench.bars import Bar, Verdict, headlines, judge
from bench.clusters import HEAP_MB
from bench.contestants import FLOOR, KAFKA, PYBROKER
from bench.measurements import Measurements, Metric, ratio_text
from bench.parts import CLUSTER_PARTS, LINK_PARTS, PIPELINE_PARTS, SECURITY_PARTS, SPARK_PARTS
from bench.process_stats import load_average

DIRECTORY = Path(__file__).resolve().parent
MARKDOWN_PATH = DIRECTORY / "RESULTS.md"
MARKS = {True: "met", False: "**missed**", None: "–"}


class Section(NamedTuple):
    """Parts whose figures stand below a heading of their own, behind those of brokers that are alone."""

    heading: str
    parts: frozenset[str]
    about: tuple[str, ...]
    heap: str
    """Kafka's."""


SECTIONS = (
    Section(
        "## Clusters",
        CLUSTER_PARTS,
        (
            "Three brokers of a kind on this one machine, with the load's generator beside them. Apache Kafka runs as",
            "three combined KRaft nodes, pybroker over a SQLite file; each cluster is alone on the machine while it is",
            "measured, and new in each round. Topics have three replicas, of which acks=all takes two. CPU and memory",
            "are those of all brokers together. Written by the command below.",
        ),
        f"heaps of {HEAP_MB} MB",
    ),
    Section(
        "## Security",
        SECURITY_PARTS,
        (
            "TLS 1.3 by the same certificate (EC, P-256) on both brokers, to a generator that uses OpenSSL; what a",
            "load takes of a core is said where it was nearly all. The authorizer's rows compare pybroker with itself:",
            "1,000 ACLs of which one grants, and no authorizer. Quotas are of 1 MiB/s, and a producer and a consumer",
            "take what they get, of pybroker alone. Written by the command below.",
        ),
        "1 GB heap",
    ),
    Section(
        "## Cluster links",
        LINK_PARTS,
        (
            "A topic of one pybroker, mirrored by another. Under Apache Kafka stand the figures of MirrorMaker 2,",
            "between the same two brokers, with a task for each partition and large batches. CPU and memory are",
            "those of the mirroring broker, and of MirrorMaker's process with it. Lag is from the moment that a",
            "record is sent to the source until the mirror has it. Written by the command below.",
        ),
        "MirrorMaker's heap of 2 GB",
    ),
    Section(
        "## Spark",
        SPARK_PARTS,
        (
            'Spark on one pybroker, with `format("pybroker")` and with its own Kafka connector in turn. Each query is',
            "timed in a Spark that has run the same query on a little before. Ratios are of rows per second, round by",
            "round. The tour runs once, as `scripts/demo --tour`. The demo's job over the flights runs on Apache",
            "Kafka, too. Written by the command below.",
        ),
        "1 GB heap",
    ),
    Section(
        "## Connectors and SQL",
        PIPELINE_PARTS,
        (
            "`pybroker sql` and a supervisor of connectors, beside one pybroker and a PostgreSQL on this machine. A",
            "question is timed from the shell, and so is Spark's script for the same. Rows go from files to a topic,",
            "and from there to a table. Their processor time is that of broker, supervisor and PostgreSQL, and the",
            "memory that of the supervisor and all its processes. Written by the command below.",
        ),
        "1 GB heap",
    ),
)


OWN_SECTIONS = frozenset[str]().union(*(section.parts for section in SECTIONS))


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

    def lines(self, heap: str = "1 GB heap") -> list[str]:
        """The facts, one a line; ``heap`` is Kafka's."""
        pybroker = f"pybroker on CPython {self.python} and uvloop {self.uvloop}"
        facts = [
            f"Command: `{self.command}`, {self.started} to {self.finished}.",
            f"Machine: {self.machine}; load average {self.load_before:.1f} before, {self.load_after:.1f} after.",
            f"{pybroker}; Apache Kafka {KAFKA_VERSION}, {heap}, G1.",
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


def figure_rows(measurements: Measurements, other: str = KAFKA) -> Iterator[tuple[str, ...]]:
    """Every metric: what each contestant reached, and pybroker's share of both others."""
    for metric in measurements:
        yield (
            metric.part,
            metric.name,
            metric.unit,
            *(figure_with_spread(metric, name) for name in (other, PYBROKER, FLOOR)),
            *(ratio_with_spread(metric.ratios(PYBROKER, compared)) for compared in (other, FLOOR)),
        )


FIGURE_COLUMNS = ("part", "metric", "unit", "Apache Kafka", "pybroker", "floor", "pybroker ÷ Kafka", "pybroker ÷ floor")
# Beside another pybroker in the place of Apache Kafka.
BEFORE_COLUMNS = tuple(column.replace("Apache Kafka", "before").replace("Kafka", "before") for column in FIGURE_COLUMNS)
BAR_COLUMNS = ("load", "measured", "rounds", "ahead", "bar", "met")
HEADLINE_COLUMNS = ("load", "unit", "Apache Kafka", "pybroker", "pybroker ÷ Kafka", "ahead")
NAMES = {KAFKA: "**Kafka**", PYBROKER: "pybroker", None: ""}


def bar_rows(measurements: Measurements, is_shown: Callable[[Bar], bool] = lambda _: True) -> list[tuple[str, ...]]:
    """The loads with their figures, who is ahead, their bars and whether they are met."""
    return [bar_row(verdict) for verdict in judge(measurements) if is_shown(verdict.bar)]


def bar_row(verdict: Verdict) -> tuple[str, ...]:
    """One load, a text for each column."""
    met = MARKS[verdict.met] if verdict.wanted else ""
    return (verdict.bar.what, verdict.figure, verdict.spread, NAMES[verdict.ahead], verdict.wanted, met)


def headline_rows(measurements: Measurements) -> list[tuple[str, ...]]:
    """The short table for the README; what Kafka wins is counted from the tables of all loads (``scripts/docs.py``)."""
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
    bars = [bar_row(verdict) for verdict in judge(measurements) if verdict.value is not None]
    _print_tables(info, (FIGURE_COLUMNS, list(figure_rows(measurements))), (BAR_COLUMNS, bars))


def print_changes(info: RunInfo, measurements: Measurements, before: str) -> None:
    """The figures on stdout, beside those of another pybroker, which was measured by the name ``before``."""
    _print_tables(info, (BEFORE_COLUMNS, list(figure_rows(measurements, before))))


def _print_tables(info: RunInfo, *tables: tuple[tuple[str, ...], list[tuple[str, ...]]]) -> None:
    print("\n".join(info.lines()))
    for columns, rows in tables:
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
    """Write ``bench/RESULTS.md``: brokers that are alone, then `SECTIONS`; what was not measured stays as it is."""
    rest = MARKDOWN_PATH.read_text() if MARKDOWN_PATH.exists() else ""
    measured = info.seconds.keys()
    texts: list[str] = []
    for section in reversed(SECTIONS):
        rest, _, text = rest.partition(f"\n{section.heading}\n")
        if measured & section.parts:
            text = "\n".join(_lines_of(section, info, measurements.of(section.parts)))
        if text:
            texts.append(f"\n{section.heading}\n{text}")
    if alone := measured - OWN_SECTIONS:
        rest = "\n".join(_lines_of_brokers(info, measurements.of(alone)))
    MARKDOWN_PATH.write_text("".join((rest, *reversed(texts))))
    return MARKDOWN_PATH


def _lines_of_brokers(info: RunInfo, measurements: Measurements) -> list[str]:
    return [
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
        *markdown_table(BAR_COLUMNS, bar_rows(measurements, lambda bar: bar.part not in OWN_SECTIONS)),
        "",
        "## Figures",
        "",
        *markdown_table(FIGURE_COLUMNS, list(figure_rows(measurements))),
        "",
    ]


def _lines_of(section: Section, info: RunInfo, measurements: Measurements) -> list[str]:
    return [
        "",
        *section.about,
        "",
        *(f"- {line}" for line in info.lines(section.heap)),
        "",
        *markdown_table(BAR_COLUMNS, bar_rows(measurements, lambda bar: bar.part in section.parts)),
        "",
        *markdown_table(FIGURE_COLUMNS, list(figure_rows(measurements))),
        "",
    ]


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

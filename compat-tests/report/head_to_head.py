"""The head-to-head: bars, plots and figures of pybroker beside Apache Kafka, from what ``scripts/bench`` wrote."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from bench.bars import judge
from bench.measurements import Measurements
from bench.report import BAR_COLUMNS, FIGURE_COLUMNS, MARKS, RunInfo, bar_rows, figure_rows
from report.blocks import Block, Cell, Figures, Heading, Kind, Paragraph, Row, Section, Table, Tile, verdict
from report.plots import figures

ANCHOR, TITLE = "head-to-head", "Head to head with Apache Kafka"
LEGEND = (
    "Squares are Apache Kafka, circles pybroker: medians, with a line from the lowest to the highest round. Dashed "
    "lines are what pybroker must reach. Scales are logarithmic where figures differ by ten or more."
)
VERDICTS = {MARKS[True]: Kind.GOOD, MARKS[False]: Kind.BAD, MARKS[None]: Kind.SKIPPED}


def section(found: dict[str, Any]) -> Section:
    """The section, from every sample of a run."""
    measurements = Measurements.from_json(found["metrics"])
    measured = [judged.met for judged in judge(measurements) if judged.met is not None]
    met = sum(measured)
    tile = Tile("bars met", f"{met} of {len(measured)}", verdict(len(measured), len(measured) - met))
    blocks: list[Block] = [Paragraph(line.replace("`", "")) for line in RunInfo(**found["run"]).lines()]
    blocks += [
        Heading("Loads and bars"),
        Table(BAR_COLUMNS, tuple(map(bar_cells, bar_rows(measurements)))),
        Heading("Plots"),
        Paragraph(LEGEND),
    ]
    parts = groupby(measurements, key=lambda metric: metric.part)
    blocks.append(Figures(tuple(figure for _, metrics in parts for figure in figures(metrics))))
    rows = tuple(
        tuple(Cell(text, Kind.NUMBER if at > 2 else Kind.PLAIN) for at, text in enumerate(row))
        for row in figure_rows(measurements)
    )
    blocks += [Heading("Figures"), Table(FIGURE_COLUMNS, rows)]
    return Section(ANCHOR, TITLE, tile, tuple(blocks))


def bar_cells(row: tuple[str, ...]) -> Row:
    """A bar's row; its figures stay on one line."""
    what, *rest = row
    return Cell(what), *(Cell(unbroken(text), VERDICTS.get(text, Kind.PLAIN)) for text in rest)


def unbroken(text: str) -> str:
    """A short text without Markdown's marks that is never wrapped."""
    return text.replace("**", "").replace(" ", "\u00a0")

"""The comparison as a picture for the README: how many times better than Apache Kafka each load is.

Owns: ``bench/comparison.svg``.  It has no background and only colours that stand out from white and from nearly black
alike, so that one file serves light and dark pages, whatever the reader's system says of itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from bench.bars import Kind, Verdict, drawn
from bench.contestants import KAFKA
from bench.measurements import Measurements

PATH = Path(__file__).resolve().parent / "comparison.svg"
TEXT, AHEAD, BEHIND = "#76787b", "#2b7de9", "#d0660c"
WIDTH, LABELS, RIGHT, TOP, ROW, BOTTOM = 760, 290, 64, 34, 26, 40
# Of a label: a letter of it, a little wider than most, and what lies behind it.
LETTER, GAP = 7, 12
FONT = 'font-family="-apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="13"'


def advantage(verdict: Verdict, ratio: float) -> float:
    """How many times better than Kafka a ratio is: more where more is better, less where less is."""
    return ratio if verdict.bar.kind is Kind.RATIO_AT_LEAST else 1 / ratio


def times(value: float) -> str:
    """A factor in two digits or three."""
    return f"{value:.0f}×" if value >= 10 else f"{value:.2g}×"


class Axis:
    """A logarithmic axis that has Kafka, which is 1, and everything shown on it."""

    def __init__(self, values: Sequence[float], left: float = LABELS) -> None:
        self.left = left
        self.low = math.floor(math.log2(min([0.5, *values])))
        self.high = math.ceil(math.log2(max([2.0, *values])))

    def at(self, value: float) -> float:
        """Where a value lies, in the picture's units."""
        share = (math.log2(value) - self.low) / (self.high - self.low)
        return round(self.left + share * (WIDTH - LABELS - RIGHT), 1)

    def ticks(self) -> Iterator[float]:
        return (2.0**power for power in range(self.low, self.high + 1))


def comparison(measurements: Measurements) -> str:
    """The picture as SVG."""
    verdicts = drawn(measurements)
    longest = max((len(verdict.bar.what) for verdict in verdicts), default=0)
    left = max(LABELS, LETTER * longest + GAP)
    axis = Axis([advantage(each, ratio) for each in verdicts for ratio in each.rounds], left)
    width = WIDTH - LABELS + left
    height = TOP + ROW * len(verdicts) + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {FONT} fill="{TEXT}">',
        "<title>pybroker beside Apache Kafka, how many times better</title>",
        f'<text x="{axis.at(1) + 8}" y="16" fill="{AHEAD}">pybroker better →</text>',
        f'<text x="{axis.at(1) - 8}" y="16" fill="{BEHIND}" text-anchor="end">← Kafka better</text>',
    ]
    bottom = TOP + ROW * len(verdicts)
    for tick in axis.ticks():
        thickness = 1.5 if tick == 1 else 0.5
        x = axis.at(tick)
        lines.append(f'<path d="M{x} {TOP - 8}V{bottom}" stroke="{TEXT}" stroke-width="{thickness}"/>')
        lines.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle" font-size="11">{tick:g}×</text>')
    for index, verdict in enumerate(verdicts):
        lines.extend(row(axis, TOP + ROW * index + ROW / 2, verdict))
    return "\n".join([*lines, "</svg>", ""])


def row(axis: Axis, y: float, verdict: Verdict) -> Iterator[str]:
    """A load: a bar from Kafka to the median, a thin line from the worst round to the best."""
    assert verdict.value is not None
    value = advantage(verdict, verdict.value)
    rounds = [advantage(verdict, ratio) for ratio in verdict.rounds]
    colour = BEHIND if verdict.ahead == KAFKA else AHEAD
    left, right = sorted((axis.at(1), axis.at(value)))
    low, high = axis.at(min(rounds)), axis.at(max(rounds))
    yield f'<text x="{axis.left - GAP}" y="{y + 4.5}" text-anchor="end">{escape(verdict.bar.what)}</text>'
    yield f'<rect x="{left}" y="{y - 7}" width="{right - left:.1f}" height="14" fill="{colour}"/>'
    yield f'<path d="M{low} {y}H{high}M{low} {y - 4}v8M{high} {y - 4}v8" stroke="{TEXT}" stroke-width="1.5"/>'
    shown = max(high, axis.at(1)) + 6
    yield f'<text x="{shown}" y="{y + 4.5}" fill="{colour}" font-weight="bold">{times(value)}</text>'


def write_picture(measurements: Measurements) -> Path:
    """Write ``bench/comparison.svg``."""
    PATH.write_text(comparison(measurements))
    return PATH

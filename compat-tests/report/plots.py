"""The head-to-head as plots: a row per metric, a dot at each broker's median, a line over its rounds, the bar to reach.

Owns: drawing with matplotlib, and turning what it drew into SVG that stands inside a page.  The brokers differ by shape
as well as by colour, and the colours are those of Okabe and Ito, which colour-blind people tell apart.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from bench.bars import BARS
from bench.contestants import KAFKA, PYBROKER
from bench.measurements import Metric
from report.blocks import Figure

# Colour on a white page, and the property by which a page that may be dark names it.
COLOURS = {
    "#c55a00": "--kafka",
    "#0072b2": "--pybroker",
    "#1b1f24": "--ink",
    "#6b7280": "--faint",
    "#d8dce2": "--rule",
}
WHITE = "#ffffff"
KAFKA_COLOUR, PYBROKER_COLOUR, INK, FAINT, RULE = COLOURS
STYLES = {KAFKA: ("Apache Kafka", KAFKA_COLOUR, "s", 0.12), PYBROKER: ("pybroker", PYBROKER_COLOUR, "o", -0.16)}
# Wide enough for a phone held upright without shrinking letters.
WIDTH_INCHES, ROW_INCHES, BELOW_INCHES, FRAME_INCHES = 3.7, 0.56, 0.48, 0.54
LOG_FROM_RATIO, LOG_MARGIN, TICKS_MAX = 10, 1.35, 6
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": RULE,
    "axes.labelcolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "text.color": INK,
}
SVG_NAMESPACE, LINK_NAMESPACE = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


def figures(metrics: Iterable[Metric]) -> Iterator[Figure]:
    """One plot for all metrics of a part that share a unit."""
    ordered = sorted(metrics, key=lambda metric: metric.unit)
    for unit, group in groupby(ordered, key=lambda metric: metric.unit):
        rows = list(group)
        part = rows[0].part
        name = file_name(f"{part} {unit}")
        svg = draw(rows, unit)
        yield Figure(
            name=name,
            title=f"{part}, {unit}",
            words="; ".join(in_words(metric) for metric in rows),
            svg=svg,
            page_svg=for_page(svg, name),
        )


def file_name(title: str) -> str:
    """A title as a file's name and an id; units stay apart."""
    spelled = title.lower().replace("µ", "micro").replace("×", "times")
    return re.sub(r"[^a-z0-9]+", "-", spelled).strip("-")


def in_words(metric: Metric) -> str:
    """The medians, for who cannot see the plot."""
    told = [f"{STYLES[broker][0]} {short(value)}" for broker in STYLES if (value := metric.median(broker)) is not None]
    return f"{metric.name}: {', '.join(told)} {metric.unit}"


def short(value: float) -> str:
    """A figure on an axis or in words: three digits, thousands as k."""
    for limit, suffix in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e6 if suffix == 'M' else 1e3):.3g} {suffix}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def draw(rows: Sequence[Metric], unit: str) -> str:
    """The plot as SVG."""
    with mpl.rc_context(SETTINGS):
        height = FRAME_INCHES + ROW_INCHES * len(rows)
        drawing = Drawing(figsize=(WIDTH_INCHES, height))
        axes = drawing.add_axes((0.03, BELOW_INCHES / height, 0.94, 1 - FRAME_INCHES / height))
        set_scale(axes, [value for metric in rows for value in values_of(metric)])
        for at, metric in enumerate(rows):
            draw_row(axes, -at, metric)
        axes.set_ylim(-len(rows) + 0.58, 0.62)
        axes.set_yticks([])
        axes.grid(axis="x", color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=0)
        draw_legend(axes, unit)
        written = io.StringIO()
        drawing.savefig(written, format="svg", facecolor=WHITE, metadata={"Date": None, "Creator": None})
    return written.getvalue()


def values_of(metric: Metric) -> list[float]:
    """Everything of a metric that has to lie within the axis."""
    return [value for samples in metric.samples.values() for value in samples] + [limit for _, limit in limits(metric)]


def set_scale(axes: Axes, values: Sequence[float]) -> None:
    """Linear from zero, or logarithmic where figures differ by a factor of ten."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= LOG_FROM_RATIO:
        axes.set_xscale("log")
        axes.set_xlim(low / LOG_MARGIN, high * LOG_MARGIN)
        axes.xaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(min(0.0, low * 1.1), high * 1.1 or 1.0)
        axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def log_ticks(low: float, high: float) -> list[float]:
    """As many round figures as have room on a logarithmic axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [(1, 2, 5), (1, 3), (1,)]
    ticks = [[step * 10.0**power for power in powers for step in choice] for choice in steps]
    inside = [[tick for tick in choice if low / LOG_MARGIN <= tick <= high * LOG_MARGIN] for choice in ticks]
    return next((choice for choice in inside if len(choice) <= TICKS_MAX), inside[-1])


def draw_row(axes: Axes, at: float, metric: Metric) -> None:
    """A metric: its name, what is wanted of it, both brokers, and where the bar lies."""
    line_of: Any = {"xycoords": ("axes fraction", "data"), "va": "baseline"}
    axes.annotate(metric.name, (0.0, at + 0.33), fontsize=9, color=INK, **line_of)
    placed = limits(metric)
    wanted = ", ".join(text for text, _ in placed)
    axes.annotate(wanted, (1.0, at + 0.33), fontsize=8, color=FAINT, ha="right", **line_of)
    for _, limit in placed:
        axes.plot([limit] * 2, [at - 0.3, at + 0.24], color=INK, linewidth=1.2, linestyle=(0, (2.5, 1.5)))
    for broker, (_, colour, shape, offset) in STYLES.items():
        if samples := metric.samples.get(broker):
            height = at + offset
            axes.plot([min(samples), max(samples)], [height] * 2, color=colour, linewidth=2, solid_capstyle="butt")
            axes.plot([median(samples)], [height], color=colour, marker=shape, markersize=6, linestyle="none")


def draw_legend(axes: Axes, unit: str) -> None:
    """Below the axis: the unit, and which broker is which."""
    below: Any = {"textcoords": "offset points", "va": "baseline", "annotation_clip": False}
    axes.annotate(unit, (0.0, 0.0), (0, -27), xycoords="axes fraction", color=FAINT, fontsize=8.5, **below)
    for (name, colour, shape, _), left in zip(STYLES.values(), (0.44, 0.78), strict=True):
        axes.plot([left], [0.0], color=colour, marker=shape, markersize=5, clip_on=False, transform=legend_line(axes))
        axes.annotate(name, (left, 0.0), (7, -27), xycoords="axes fraction", color=INK, fontsize=8.5, **below)


def legend_line(axes: Axes) -> Transform:
    """Shares of the axes' width, on the line of the legend."""
    return axes.transAxes + ScaledTranslation(0, -24 / 72, axes.figure.dpi_scale_trans)


def limits(metric: Metric) -> list[tuple[str, float]]:
    """The bars on this metric as (what is wanted, where it lies), as far as there are any and they can be placed."""
    placed = [(bar, bar.place(metric)) for bar in BARS if (bar.part, bar.metric) == (metric.part, metric.name)]
    return [(bar.wanted(metric.unit), place) for bar, place in placed if place is not None]


def for_page(svg: str, name: str) -> str:
    """The SVG element alone, with ids that no other plot has and colours that the page decides."""
    ElementTree.register_namespace("", SVG_NAMESPACE)
    ElementTree.register_namespace("xlink", LINK_NAMESPACE)
    root = ElementTree.fromstring(svg)
    for metadata in root.findall(f"{{{SVG_NAMESPACE}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        for attribute, value in element.attrib.items():
            element.set(attribute, _renamed(attribute, value, name))
    for size in ("width", "height"):
        root.attrib.pop(size)
    text = ElementTree.tostring(root, encoding="unicode")
    return replaced(text, {WHITE: "none", **{colour: f"var({variable})" for colour, variable in COLOURS.items()}})


def _renamed(attribute: str, value: str, name: str) -> str:
    if attribute == "id":
        return f"{name}-{value}"
    if attribute.endswith("href"):
        return f"#{name}-{value.removeprefix('#')}"
    return value.replace("url(#", f"url(#{name}-")


def replaced(text: str, replacements: Mapping[str, str]) -> str:
    """Every key of ``replacements`` replaced in one pass."""
    return re.sub("|".join(map(re.escape, replacements)), lambda match: replacements[match[0]], text)

"""The chart of the lake: the mean delay by hour of the clock and airport, and below it how many flights that is.

Owns places and words; colours and names are the tour's.  Both scales begin at zero or below it, and share the hours.
"""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from examples.lake.answers import Answer, Cell
from examples.tour.picture import AIRPORTS, LIGHT, MEAN_DELAY, SCHEDULED

# A mean of fewer flights says nothing of the hour.
DEPARTED_MIN = 5
BAR_WIDTH = 0.8


def draw(answer: Answer, days: tuple[str, str], path: Path) -> None:
    """Write the chart as PNG; ``days`` are the first and the last one."""
    plot(answer, days).savefig(path, dpi=110)


def plot(answer: Answer, days: tuple[str, str]) -> Figure:
    """The chart, from one answer alone."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    figure.suptitle(f"Departures from New York, {period(*days)}", fontsize=14, fontweight="bold")
    delays, flights = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    hours = range(min(cell.hour for cell in answer), max(cell.hour for cell in answer) + 1)
    origins = [origin for origin in AIRPORTS if any(cell.origin == origin for cell in answer)]
    _delays(delays, answer, origins, hours)
    _flights(flights, answer, origins, hours)
    flights.set_xticks(hours, [f"{hour}:00" if hour % 2 == 0 else "" for hour in hours])
    flights.set_xlim(hours[0] - 0.6, hours[-1] + 0.6)
    flights.set_xlabel(SCHEDULED)
    figure.align_ylabels()
    return figure


def period(first: str, last: str) -> str:
    """From which day to which, without what both share."""
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    until = f"{end:%-d %B %Y}"
    if begin == end:
        return until
    return f"{begin:%-d} to {until}" if begin.month == end.month else f"{begin:%-d %B} to {until}"


def _delays(axes: Any, answer: Answer, origins: Sequence[str], hours: range) -> None:
    for origin in origins:
        means = [_mean(answer, Cell(origin, hour)) for hour in hours]
        axes.plot(
            hours, means, color=LIGHT.airports[origin], linewidth=2, marker="o", markersize=4, label=AIRPORTS[origin]
        )
    axes.axhline(0, color=LIGHT.ink, linewidth=0.8, zorder=1)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0), max(high, 1))
    axes.set_title("Delay of the flights that departed", fontsize=11)
    axes.set_ylabel(MEAN_DELAY)
    _finish(axes)
    axes.legend(title="Airport", alignment="left", loc="upper left", bbox_to_anchor=(1.005, 1.0), frameon=False)


def _mean(answer: Answer, cell: Cell) -> float:
    found = answer.get(cell)
    if found is None or found.departed < DEPARTED_MIN or found.delay_minutes is None:
        return float("nan")
    return found.delay_minutes / found.departed


def _flights(axes: Any, answer: Answer, origins: Sequence[str], hours: range) -> None:
    below = [0] * len(hours)
    for origin in origins:
        cells = [answer.get(Cell(origin, hour)) for hour in hours]
        counts = [0 if each is None else each.flights for each in cells]
        axes.bar(hours, counts, BAR_WIDTH, bottom=below, color=LIGHT.airports[origin])
        below = [under + count for under, count in zip(below, counts, strict=True)]
    axes.set_title("Flights, with those that were cancelled", fontsize=11)
    axes.set_ylabel("Flights")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _finish(axes)


def _finish(axes: Any) -> None:
    axes.grid(axis="y", color=LIGHT.faint, linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)

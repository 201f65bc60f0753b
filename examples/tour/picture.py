"""The plot of the tour: when flights were late, when that was unusual, and in what weather.  Reads results alone.

Owns places, colours and the spelling of dates.  Labels stand in a band of their own above the data, inside the frame;
legends stand beside it.  The colours are Okabe and Ito's, which people who see fewer colours can tell apart; the
heatmaps' (cividis) get lighter with the value, so that they are clear in grey, too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
from matplotlib.dates import date2num
from matplotlib.figure import Figure

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "La Guardia"}
KINDS = ("fair", "wind", "rain", "fog or snow", "unknown")
TIME_ZONE = "America/New_York"
DATE = "%-d %b"  # each date of the plot, and of the tables beside it
MEAN_DELAY = "Mean delay (minutes)"
SCHEDULED = "Scheduled hour (New York)"

NAMED_DAYS = 4
DOT_AREA = 14  # of one unusual hour, in square points
WEEK_DAYS = 7
WEEKLY_TICKS_DAYS_MAX = 70
# A few flights in a cell of a heatmap say nothing of it.
DEPARTED_MIN_OF_MONTH, DEPARTED_MIN_OF_DAY = 30, 5
HEATMAP_QUANTILE = 0.98  # what is beyond has the last colour: one bad night would leave one colour for all others

# Of labels, as parts of the frame: a line's height, what lies between two, a letter's width.
LINE, GAP, LETTER = 0.075, 0.015, 0.0068


class Theme(NamedTuple):
    """Colours on a background: of letters, of lines that only help, and of the airports."""

    background: str
    ink: str
    faint: str
    airports: Mapping[str, str]


LIGHT = Theme("#ffffff", "#1f2328", "#c4ccd4", {"EWR": "#0072b2", "JFK": "#d55e00", "LGA": "#009e73"})
DARK = Theme("#0d1117", "#e6edf3", "#444c56", {"EWR": "#56b4e9", "JFK": "#e69f00", "LGA": "#2fbf94"})


def draw(hours: pd.DataFrame, by_weather: pd.DataFrame, path: Path, theme: Theme = LIGHT) -> None:
    """Write the plot as PNG.  ``hours`` and ``by_weather`` have the columns of the database's tables."""
    plot(hours, by_weather, theme).savefig(path, dpi=110)


def plot(hours: pd.DataFrame, by_weather: pd.DataFrame, theme: Theme = LIGHT) -> Figure:
    """The plot: of more than one month a heatmap of all, and of each plot one of the month with the longest delays."""
    local = hours.assign(local=hours["hour_start"].dt.tz_convert(TIME_ZONE).dt.tz_localize(None))
    has_months = local["local"].dt.month.nunique() > 1
    colours: Any = {
        "figure.facecolor": theme.background,
        "axes.facecolor": theme.background,
        "axes.edgecolor": theme.faint,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
    }
    with mpl.rc_context(colours):
        figure = Figure(figsize=(12, 13 if has_months else 9), layout="constrained")
        figure.suptitle(f"Departures from New York, {period(local['local'])}", fontsize=15, fontweight="bold")
        heights = (1.15, 1, 1) if has_months else (1.15, 1)
        # Each row has its own legends and scales beside it, whose widths are no other row's.
        rows: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
        _days(rows[0].subplots(), local, theme)
        left, right = rows[1].subplots(1, 2, width_ratios=(1.25, 1))
        _weather(right, by_weather, theme)
        if has_months:
            _by_month(rows[1], left, local)
        _one_month(rows[-1], rows[2].subplots() if has_months else left, local)
    return figure


def period(instants: pd.Series) -> str:
    """From which month to which, and of what year."""
    first, last = instants.min(), instants.max()
    months = f"{first:%B}" if first.month == last.month else f"{first:%B} to {last:%B}"
    return f"{months} {last:%Y}"


def _mean_delay(sums: pd.DataFrame, departed_min: int = 1) -> pd.Series:
    return sums["delay_sum_minutes"] / sums["departed"].where(sums["departed"] >= departed_min)


def _daily(hours: pd.DataFrame) -> pd.DataFrame:
    """By airport and day, without a gap: ``unusual`` hours, the mean ``delay``, and that of the ``week`` around it."""
    days = hours["local"].dt.normalize().rename("day")
    sums = hours.groupby(["origin", days])[["departed", "delay_sum_minutes", "unusual"]].sum()
    all_days = pd.date_range(days.min(), days.max(), name="day")
    airports = sums.index.get_level_values("origin").unique()
    sums = sums.reindex(pd.MultiIndex.from_product([airports, all_days]), fill_value=0)
    half = WEEK_DAYS // 2 + 1
    weeks = sums.groupby("origin").rolling(WEEK_DAYS, center=True, min_periods=half).sum().droplevel(0)
    return sums.assign(delay=_mean_delay(sums), week=_mean_delay(weeks))


def _days(axes: Any, hours: pd.DataFrame, theme: Theme) -> None:
    """Each day's mean delay, thin, the week's around it, and how many of the day's hours were unusual."""
    daily = _daily(hours)
    lines, dots = [], []
    for origin, of_airport in daily.groupby("origin"):
        days, colour = of_airport.index.get_level_values("day"), theme.airports[origin]
        axes.plot(days, of_airport["delay"], color=colour, linewidth=0.8, alpha=0.45)
        lines += axes.plot(days, of_airport["week"], color=colour, linewidth=2.2, label=AIRPORTS[origin])
        areas = of_airport["unusual"] * DOT_AREA
        axes.scatter(days, of_airport["delay"], s=areas, color=colour, alpha=0.55, linewidth=0, zorder=3)
    most = int(daily["unusual"].max())
    for count in sorted({1, (1 + most) // 2, most} if most else ()):
        dots.append(axes.scatter([], [], s=count * DOT_AREA, color=theme.ink, alpha=0.55, linewidth=0, label=count))
    _frame(axes, daily)
    _name_days(axes, daily, theme)
    axes.set_title("Delay of each day (thin) and of the seven days around it", fontsize=11)
    axes.set_ylabel(MEAN_DELAY)
    axes.grid(axis="y", color=theme.faint, linewidth=0.5)
    if dots:
        axes.add_artist(_legend(axes, dots, "Unusual hours\nof the day", 0.68))
    _legend(axes, lines, "Airport", 1.0)  # the last one, for which the layout keeps room


def _legend(axes: Any, handles: Sequence[Any], title: str, top: float) -> Any:
    """A legend beside the frame, of which ``top`` is a part from below."""
    return axes.legend(
        handles=handles,
        title=title,
        alignment="left",
        loc="upper left",
        bbox_to_anchor=(1.005, top),
        frameon=False,
        labelspacing=0.7,
    )


def _frame(axes: Any, daily: pd.DataFrame) -> None:
    """Margins of the days: a hundredth of what is shown on each side, half a day at least."""
    days = daily.index.get_level_values("day")
    span = days.max() - days.min()
    margin = max(span / 100, pd.Timedelta(hours=12))
    axes.set_xlim(days.min() - margin, days.max() + margin)
    is_short = span.days <= WEEKLY_TICKS_DAYS_MAX
    shown = [day for day in days.unique() if (day.weekday() == 0 if is_short else day.day == 1)]
    axes.set_xticks(shown, [f"{day:{DATE}}" for day in shown])


def _name_days(axes: Any, daily: pd.DataFrame, theme: Theme) -> None:
    """Name the days with the most unusual hours, each above its dots, in a band that the data leave free."""
    by_day = daily.groupby("day").agg(unusual=("unusual", "sum"), top=("delay", "max"))
    named = by_day[by_day["unusual"] > 0].nlargest(NAMED_DAYS, "unusual").sort_index()
    texts = [f"{day:{DATE}}: {count} unusual hour{'s' * (count != 1)}" for day, count in named["unusual"].items()]
    left, right = axes.get_xlim()
    places = placed([(date2num(day) - left) / (right - left) for day in named.index], texts)
    rows = 1 + max((row for _, row in places), default=-1)
    low, high = daily["delay"].min(), daily["delay"].max()
    bottom = low - (high - low) * 0.05
    axes.set_ylim(bottom, bottom + (high - bottom) / (1 - rows * LINE - 0.06))
    for (at, row), text, (day, top) in zip(places, texts, named["top"].items(), strict=True):
        axes.annotate(
            text,
            (day, top),
            xytext=(at + len(text) * LETTER / 2, 1 - GAP - row * LINE),
            textcoords="axes fraction",
            ha="center",
            va="top",
            fontsize=8,
            arrowprops={"arrowstyle": "-", "color": theme.faint, "linewidth": 0.8, "shrinkB": 4},
        )


def placed(places: Sequence[float], texts: Sequence[str]) -> list[tuple[float, int]]:
    """Where labels begin, and in which row from above, so that none leaves the frame or lies on another one.

    ``places``: what each label is of, from 0 to 1 of the frame's width, in their order; so are the answers.
    """
    ends: list[float] = []  # of each row
    found: list[tuple[float, int]] = []
    for place, text in zip(places, texts, strict=True):
        width = len(text) * LETTER
        at = min(max(place - width / 2, GAP), 1 - GAP - width)
        row = next((row for row, end in enumerate(ends) if end + GAP <= at), len(ends))
        # Beside the lines that go down from the labels above it.
        beside = max((former for former, (_, above) in zip(places, found, strict=False) if above < row), default=-1.0)
        at = min(max(at, beside + GAP), 1 - GAP - width)
        ends[row : row + 1] = [at + width]
        found.append((at, row))
    return found


def _by_month(figure: Any, axes: Any, hours: pd.DataFrame) -> None:
    """The mean delay by month and hour of the clock."""
    of_month = hours["local"].dt.to_period("M").dt.start_time.rename("month")
    table = _by_clock(hours, of_month, DEPARTED_MIN_OF_MONTH)
    _heatmap(figure, axes, table)
    axes.set_title("Delay by month and scheduled hour", fontsize=11)
    axes.set_xticks(range(len(table.columns)), [f"{month:%b}" for month in table.columns])


def _one_month(figure: Any, axes: Any, hours: pd.DataFrame) -> None:
    """The mean delay by day and hour of the clock, in the month with the longest delays."""
    of_month = hours["local"].dt.to_period("M")
    chosen = _mean_delay(hours.groupby(of_month)[["departed", "delay_sum_minutes"]].sum()).idxmax()
    in_month = hours[of_month == chosen]
    table = _by_clock(in_month, in_month["local"].dt.normalize().rename("day"), DEPARTED_MIN_OF_DAY)
    _heatmap(figure, axes, table)
    why = "" if of_month.nunique() == 1 else ", the month with the longest delays"
    axes.set_title(f"Delay by day and scheduled hour in {chosen.strftime('%B')}{why}", fontsize=11)
    shown = range(0, len(table.columns), WEEK_DAYS)
    axes.set_xticks(shown, [f"{table.columns[i]:{DATE}}" for i in shown])


def _by_clock(hours: pd.DataFrame, columns: pd.Series, departed_min: int) -> pd.DataFrame:
    """Mean delays: a row for each hour of the clock, a column for each of ``columns``."""
    clock = hours["local"].dt.hour.rename("clock")
    sums = hours.groupby([clock, columns])[["departed", "delay_sum_minutes"]].sum()
    means = _mean_delay(sums, departed_min).unstack(columns.name).dropna(how="all")
    return means.reindex(range(means.index.min(), means.index.max() + 1))


def _heatmap(figure: Any, axes: Any, table: pd.DataFrame) -> None:
    most = table.stack().quantile(HEATMAP_QUANTILE)
    image = axes.imshow(table, aspect="auto", cmap="cividis", vmin=0, vmax=most, interpolation="nearest")
    shown = [i for i, clock in enumerate(table.index) if clock % 3 == 0]
    axes.set_yticks(shown, [f"{table.index[i]:02}:00" for i in shown])
    axes.set_ylabel(SCHEDULED)
    figure.colorbar(image, ax=axes, label=MEAN_DELAY, extend="both", pad=0.02)


def _weather(axes: Any, by_weather: pd.DataFrame, theme: Theme) -> None:
    """The mean delay by kind of weather, and how many flights each kind had."""
    mean = by_weather.assign(delay=_mean_delay(by_weather))
    flights = by_weather.groupby("weather")["flights"].sum()
    kinds = [kind for kind in KINDS if flights.get(kind, 0)]
    table = mean.pivot_table(index="weather", columns="origin", values="delay").reindex(kinds)
    width = 0.8 / len(AIRPORTS)
    bars = []
    for i, (origin, name) in enumerate(AIRPORTS.items()):
        if origin in table:
            places = [at + (i - 1) * width for at in range(len(table))]
            bars.append(axes.bar(places, table[origin], width, color=theme.airports[origin], label=name))
    axes.set_xticks(range(len(kinds)), [f"{kind}\n{flights[kind]:,}" for kind in kinds], fontsize=8)
    axes.set_xlabel("Weather, and its flights")
    axes.set_title("Delay by the weather of the hour", fontsize=11)
    axes.set_ylabel(MEAN_DELAY)
    axes.grid(axis="y", color=theme.faint, linewidth=0.5)
    axes.set_axisbelow(True)
    _legend(axes, bars, "Airport", 1.0)

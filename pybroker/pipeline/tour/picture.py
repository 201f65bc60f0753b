"""The plot of the tour: when flights were late, when that was unusual, and in what weather.  Reads results alone."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "La Guardia"}
COLOURS = {"EWR": "#1b6ca8", "JFK": "#d1495b", "LGA": "#66a182"}
KINDS = ("fair", "wind", "rain", "fog or snow", "unknown")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
TIME_ZONE = "America/New_York"
NAMED_DAYS = 4
MARGIN_OF_LABELS = pd.Timedelta(days=45)


def draw(hours: pd.DataFrame, by_weather: pd.DataFrame, path: Path) -> None:
    """Write the plot as PNG.  ``hours`` and ``by_weather`` have the columns of the database's tables."""
    figure = Figure(figsize=(12, 9), layout="constrained")
    figure.suptitle("Departures from New York in 2013", fontsize=15, fontweight="bold")
    places = figure.add_gridspec(2, 2, height_ratios=(1.15, 1))
    _days(figure.add_subplot(places[0, :]), hours)
    _clock(figure, figure.add_subplot(places[1, 0]), hours)
    _weather(figure.add_subplot(places[1, 1]), by_weather)
    figure.savefig(path, dpi=110)


def _days(axes: Any, hours: pd.DataFrame) -> None:
    """The mean delay of each day, and how many of its hours were unusual."""
    local = hours.assign(day=hours["hour_start"].dt.tz_convert(TIME_ZONE).dt.tz_localize(None).dt.normalize())
    days = local.groupby(["origin", "day"], as_index=False)[["departed", "delay_sum_minutes", "unusual"]].sum()
    days["delay"] = days["delay_sum_minutes"] / days["departed"].where(days["departed"] > 0)
    for origin, name in AIRPORTS.items():
        of_airport = days[days["origin"] == origin]
        axes.plot(of_airport["day"], of_airport["delay"], color=COLOURS[origin], linewidth=0.9, label=name)
        marked = of_airport[of_airport["unusual"] > 0]
        axes.scatter(marked["day"], marked["delay"], s=marked["unusual"] * 16, color=COLOURS[origin], alpha=0.45)
    together = days.groupby("day").agg(unusual=("unusual", "sum"), top=("delay", "max"))
    for day, row in together.nlargest(NAMED_DAYS, "unusual").iterrows():
        is_at_the_end = day > days["day"].max() - MARGIN_OF_LABELS
        axes.annotate(
            f"{day:%-d %b}: {int(row['unusual'])} unusual hours",
            (day, row["top"]),
            xytext=(-8 if is_at_the_end else 8, 6),
            textcoords="offset points",
            ha="right" if is_at_the_end else "left",
            fontsize=8,
        )
    axes.set_title("Mean delay of each day; dots grow with the day's unusual hours", fontsize=11)
    axes.set_ylabel("minutes")
    axes.margins(x=0.01)
    axes.legend(frameon=False, loc="upper right", ncols=3)


def _clock(figure: Figure, axes: Any, hours: pd.DataFrame) -> None:
    """The mean delay by month and hour of the clock."""
    local = hours["hour_start"].dt.tz_convert(TIME_ZONE)
    sums = hours.groupby([local.dt.hour.rename("clock"), local.dt.month.rename("month")])[
        ["departed", "delay_sum_minutes"]
    ].sum()
    # A few flights at night say nothing of it.
    sums = sums[sums["departed"] >= 30]
    mean = (sums["delay_sum_minutes"] / sums["departed"]).unstack("month")
    extent = (mean.columns.min() - 0.5, mean.columns.max() + 0.5, mean.index.max() + 0.5, mean.index.min() - 0.5)
    image = axes.imshow(mean, aspect="auto", cmap="YlOrRd", extent=extent)
    axes.set_title("Mean delay by month and scheduled hour", fontsize=11)
    axes.set_xticks(list(mean.columns), [MONTHS[month - 1] for month in mean.columns])
    axes.set_yticks([clock for clock in mean.index if clock % 3 == 0])
    axes.set_ylabel("o'clock in New York")
    figure.colorbar(image, ax=axes, label="minutes")


def _weather(axes: Any, by_weather: pd.DataFrame) -> None:
    """The mean delay by kind of weather."""
    mean = by_weather.assign(delay=by_weather["delay_sum_minutes"] / by_weather["departed"].where(lambda n: n > 0))
    table = mean.pivot(index="weather", columns="origin", values="delay").reindex(KINDS)
    width = 0.8 / len(AIRPORTS)
    for i, (origin, name) in enumerate(AIRPORTS.items()):
        if origin in table:
            places = [at + (i - 1) * width for at in range(len(table))]
            axes.bar(places, table[origin], width, color=COLOURS[origin], label=name)
    flights = by_weather.groupby("weather")["flights"].sum().reindex(KINDS).fillna(0).astype(int)
    axes.set_xticks(range(len(table)), [f"{kind}\n{flights[kind]:,}" for kind in KINDS])
    axes.set_title("Mean delay by the weather of the hour (flights below)", fontsize=11)
    axes.set_ylabel("minutes")

"""The tour's answers in batch, by pandas from the distribution's files, and what differs from the streams' ones.

Independent of the jobs on purpose: it joins and groups by the files' calendar columns, knows no instants, no windows,
no topics and no JSON, and has pandas' own arithmetic of weighted means.
"""

import zipfile
from collections.abc import Sequence

import numpy as np
import pandas as pd

from examples.flights import dataset

WEIGHT = 0.1
TOLERANCE = 1e-6


def flights(months: int) -> pd.DataFrame:
    """The flights of so many months."""
    with zipfile.ZipFile(dataset.data_file("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        found = pd.read_csv(file)
    return found[found["month"] <= months].reset_index(drop=True)


def enriched(months: int) -> pd.DataFrame:
    """Flights with plane, destination and weather; sorted."""
    planes = pd.read_csv(dataset.data_file("planes.csv")).rename(columns={"year": "built"})
    airports = pd.read_csv(dataset.data_file("airports.csv")).rename(
        columns={"faa": "dest", "name": "destination_name"}
    )
    weather = pd.read_csv(dataset.data_file("weather.csv"))
    hour = ["origin", "year", "month", "day", "hour"]
    found = flights(months)
    found["scheduled"] = pd.to_datetime(found["time_hour"], utc=True) + pd.to_timedelta(found["minute"], "min")
    found = found.merge(planes[["tailnum", "manufacturer", "model", "built", "seats"]], "left", "tailnum")
    found = found.merge(airports[["dest", "destination_name"]], "left", "dest")
    found = found.merge(weather[[*hour, "temp", "wind_speed", "precip", "visib"]], "left", hour)
    names = {
        "tailnum": "plane",
        "dest": "destination",
        "dep_delay": "departure_delay_minutes",
        "arr_delay": "arrival_delay_minutes",
        "temp": "temperature_f",
        "wind_speed": "wind_mph",
        "precip": "precipitation_in",
        "visib": "visibility_miles",
    }
    return found.rename(columns=names)


def hours(months: int) -> pd.DataFrame:
    """Delays per airport and hour, with what was usual there at that time of day, and whether it was unusual."""
    found = flights(months)
    day = pd.to_datetime(found[["year", "month", "day"]])
    # Minutes between the hour's end and the plane's leaving.
    behind = found["minute"] + found["dep_delay"] - 60
    found = found.assign(date=day, came_late=behind >= 0)
    by_hour = found.groupby(["origin", "hour", "date"], as_index=False).agg(
        hour_start=("time_hour", "first"),
        flights=("flight", "size"),
        departed=("dep_delay", "count"),
        delay_sum_minutes=("dep_delay", "sum"),
        came_late=("came_late", "sum"),
    )
    by_hour["hour_start"] = pd.to_datetime(by_hour["hour_start"], utc=True)
    by_hour["usual_minutes"], by_hour["deviations"] = np.nan, np.nan
    judged = by_hour[by_hour["departed"] >= 5].sort_values("date")
    for _, same_clock in judged.groupby(["origin", "hour"]):
        delay = same_clock["delay_sum_minutes"] / same_clock["departed"]
        weighted = delay.ewm(alpha=WEIGHT, adjust=False)
        usual = weighted.mean().shift()
        deviation = np.sqrt(weighted.var(bias=True).shift()).clip(lower=5.0)
        by_hour.loc[same_clock.index, "usual_minutes"] = usual
        days_known = pd.Series(range(len(same_clock)), index=same_clock.index)
        by_hour.loc[same_clock.index, "deviations"] = ((delay - usual) / deviation).where(days_known >= 14)
    by_hour["unusual"] = by_hour["deviations"] >= 4
    return by_hour.drop(columns=["hour", "date"])


def by_weather(months: int) -> pd.DataFrame:
    """Delays per airport and kind of weather."""
    found = enriched(months)
    kinds = [
        (found["visibility_miles"].isna(), "unknown"),
        (found["visibility_miles"] < 3, "fog or snow"),
        (found["precipitation_in"] > 0, "rain"),
        (found["wind_mph"] >= 20, "wind"),
    ]
    found["weather"] = np.select([mask for mask, _ in kinds], [kind for _, kind in kinds], "fair")
    return found.groupby(["origin", "weather"], as_index=False).agg(
        flights=("flight", "size"),
        departed=("departure_delay_minutes", "count"),
        delay_sum_minutes=("departure_delay_minutes", "sum"),
    )


def difference(streamed: pd.DataFrame, batch: pd.DataFrame, columns: Sequence[str]) -> str | None:
    """In what the stream's rows are not the batch's, by these columns in any order; None where they are the same."""
    if len(streamed) != len(batch):
        return f"{len(streamed):,} rows streamed, {len(batch):,} in batch"
    ours, theirs = (_sorted(frame, columns) for frame in (streamed, batch))
    for name in columns:
        differs = ~_equal(ours[name], theirs[name])
        if differs.any():
            at = int(np.flatnonzero(differs)[0])
            count = int(differs.sum())
            return f"{name} differs in {count:,} rows; first {ours[name][at]!r} streamed, {theirs[name][at]!r} in batch"
    return None


def _sorted(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    return frame[list(columns)].sort_values(list(columns), na_position="last", ignore_index=True)


def _equal(ours: pd.Series, theirs: pd.Series) -> np.ndarray:
    both_missing = (ours.isna() & theirs.isna()).to_numpy()
    if pd.api.types.is_float_dtype(theirs):
        near = np.isclose(ours.astype(float).to_numpy(), theirs.to_numpy(), rtol=TOLERANCE, atol=TOLERANCE)
        return np.asarray(near | both_missing)
    return np.asarray((ours == theirs).fillna(False).to_numpy(dtype=bool) | both_missing)

"""The tour as its command, on a month; the state of what is usual. Starts a broker, PostgreSQL and a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import process_tree

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(600)]

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_the_tour_of_a_month_finds_what_the_batch_finds_though_its_database_stops(tmp_path: Path) -> None:
    import pandas as pd

    output = tmp_path / "output"
    command = [sys.executable, "-m", "examples.tour", "--months", "1", "--no-first-chapter"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = process_tree.run([*command, "--output", str(output)], 500, text=True, **pipes)
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 records could not be read" in said
    assert "27,004 enriched flights in Parquet" in said
    assert "The database answers again." in said
    assert "hours in PostgreSQL are the batch's, once each" in said
    assert (output / "delays.png").read_bytes().startswith(PNG)
    assert len(pd.read_parquet(output / "flights")) == 27_004
    assert done.stderr == ""


def test_the_ends_of_both_streams_let_go_of_the_last_flights_whose_weather_nobody_observed(
    drive: Any,
) -> None:
    from examples.tour import jobs, topics
    from pybroker.pipeline.records import Record

    observed = {"observed": "2013-12-30T23:00:00Z", "origin": "EWR", "temperature_f": 30.0}
    flight = {"scheduled": "2013-12-31T10:15:00Z", "origin": "EWR", "carrier": "UA", "flight": 1, "destination": "ORD"}
    departures = [Record("N1", flight), Record("N2", {**flight, "origin": "JFK"}), topics.end_marker("scheduled")]
    driver = drive(jobs.enrich)
    driver.pipe_all(
        {
            topics.PLANES: [],
            topics.AIRPORTS: [],
            topics.WEATHER: [Record("EWR", observed), topics.end_of_weather()],
            topics.DEPARTURES: departures,
        }
    )
    written = [json.loads(record.value) for record in driver.read(topics.ENRICHED)]
    assert sorted(each["origin"] for each in written) == ["EWR", "JFK"]


def test_what_is_usual_is_what_pandas_weighted_means_say() -> None:
    import pandas as pd

    from examples.tour.unusual import DAYS_LEARNT_MIN, WEIGHT, Usual

    delays = [float((7 * day) % 23) for day in range(40)]
    weighted = pd.Series(delays).ewm(alpha=WEIGHT, adjust=False)
    usual = Usual()
    for day, delay in enumerate(delays):
        assert (usual.deviations(delay) is None) == (day < DAYS_LEARNT_MIN)
        usual = usual.learnt(delay)
        assert usual.mean == pytest.approx(weighted.mean()[day])
        assert usual.variance == pytest.approx(weighted.var(bias=True)[day])


def test_an_hour_is_unusual_by_deviations_and_never_by_minutes_alone() -> None:
    from examples.tour.unusual import Usual

    steady = Usual(days=30, mean=2.0, variance=0.01)
    assert steady.deviations(12.0) == pytest.approx(2.0), "five minutes are the least deviation"
    assert Usual(days=30, mean=2.0, variance=100.0).deviations(42.0) == pytest.approx(4.0)

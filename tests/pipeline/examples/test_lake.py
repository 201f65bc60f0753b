"""The lake as its command, on two days; its answers, its chart and its declarations.

The command starts a broker, PostgreSQL and a JVM.  It and the chart need what `scripts/spark-setup` installs; without
that they fail, and do not skip.
"""

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import process_tree

from examples.flights.entry import EXPECTED
from examples.lake import declared
from examples.lake.answers import AnswersDiffer, Cell, Delays, Lake, answer_of_lines, check, total
from pybroker.connectors.declared.declaration_files import declarations
from pybroker.connectors.declared.validation import findings
from tests.docs.pages import examples
from tests.source_tree import ROOT

if TYPE_CHECKING:
    from examples.lake.answers import Answer

PAGE = ROOT / "docs" / "pipeline" / "lake.md"
PNG = b"\x89PNG\r\n\x1a\n"
SPARK = pytest.mark.jvm(needs="spark")


@SPARK
@pytest.mark.timeout(600)
def test_four_places_answer_the_same_and_the_lake_has_each_flight_once(tmp_path: Path) -> None:
    import duckdb

    from examples.lake import flights

    output = tmp_path / "output"
    command = [sys.executable, "-m", "examples.lake", "--days", "2", "--output", str(output)]
    done = process_tree.run(command, 500, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "All four are the same in each of " in done.stdout
    assert (output / "delays.png").read_bytes().startswith(PNG)
    asked = f"SELECT id FROM read_parquet('{output}/flights/*/*.parquet') ORDER BY id"
    with duckdb.connect() as connection:
        ids = connection.execute(asked).fetchall()
    assert ids == [(number,) for number in range(1, len(flights.rows(2)) + 1)]


@pytest.fixture
def answer() -> "Answer":
    """Two airports at two hours; no flight of one cell departed."""
    cells = {Cell("EWR", 6): Delays(10, 9, 27), Cell("EWR", 7): Delays(4, 4, -8), Cell("JFK", 6): Delays(1, 0, None)}
    return {**cells, Cell("JFK", 7): Delays(6, 5, 30)}


def test_a_row_that_differs_ends_the_demo_with_its_place(answer: "Answer") -> None:
    check({"PostgreSQL": answer, "the lake": dict(answer)})
    wrong = {**answer, Cell("EWR", 7): Delays(4, 4, -7)}
    with pytest.raises(AnswersDiffer) as told:
        check({"PostgreSQL": answer, "the topic": answer, "the lake": wrong})
    assert isinstance(told.value, EXPECTED), "the command ends with 1, and this is what it says"
    assert str(told.value).splitlines() == [
        "the answers differ in 1 rows:",
        "EWR at 07:00: the lake has 4 flights, 4 departed, -7 minutes, PostgreSQL 4 flights, 4 departed, -8 minutes",
    ]


def test_a_row_that_is_missing_or_too_many_differs(answer: "Answer") -> None:
    less = {cell: delays for cell, delays in answer.items() if cell != Cell("JFK", 6)}
    for answers in ({"a": answer, "b": less}, {"a": less, "b": answer}):
        with pytest.raises(AnswersDiffer, match="JFK at 06:00: b has"):
            check(answers)


def test_answers_by_lines_of_json_are_those_of_the_lake(tmp_path: Path, answer: "Answer") -> None:
    import duckdb

    (tmp_path / "day=2013-01-01").mkdir()
    staged = tmp_path / "_pybroker" / "flights-to-lake" / "staged"
    staged.mkdir(parents=True)
    lake = Lake(tmp_path)
    assert lake.rows() == 0
    delays = "CASE WHEN origin = 'JFK' AND hour = 6 THEN NULL ELSE n END"
    source = "(VALUES ('EWR', 6), ('EWR', 6), ('JFK', 6)) AS t (origin, hour), range(1, 4) AS r (n)"
    rows = (
        f"SELECT origin, hour, {delays} AS departure_delay, TIMESTAMPTZ '2013-01-01 10:00Z' AS scheduled FROM {source}"
    )
    duckdb.sql(f"COPY ({rows}) TO '{tmp_path}/day=2013-01-01/1.parquet' (FORMAT parquet)")
    duckdb.sql(f"COPY ({rows}) TO '{staged}/2' (FORMAT parquet)")
    lines = [
        '{"origin": "EWR", "hour": 6, "flights": 6, "departed": 6, "delay_minutes": 12}',
        '{"origin": "JFK", "hour": 6, "flights": 3, "departed": 0, "delay_minutes": null}',
    ]
    assert (lake.rows(), lake.days()) == (9, ("2013-01-01", "2013-01-01"))
    assert lake.answer() == answer_of_lines(lines)
    assert total(lake.answer()) == Delays(9, 6, 12)


def test_declarations_can_be_meant_and_have_no_password(tmp_path: Path) -> None:
    worker, connectors = declared.write_files(tmp_path, "jdbc:postgresql://h/d", "ann", "hunter2", tmp_path / "lake")
    found = declarations(connectors.read_text(), str(connectors))
    assert [each.name for each in found] == [declared.SOURCE, declared.SINK]
    assert [finding for each in found for finding in findings(each)] == []
    assert "hunter2" not in worker.read_text() + connectors.read_text()
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0


def test_the_page_shows_what_the_demo_declares() -> None:
    (shown,), (sql,) = examples("yaml", PAGE), examples("sql", PAGE)
    places = {"url": "jdbc:postgresql://127.0.0.1:5432/air", "user": "air", "secret": "/etc/air.properties"}
    assert shown.code == declared.CONNECTORS.format(**places, lake="/data/lake/flights")
    assert sql.code == f"{declared.STREAM};\n\n{declared.STANDING};\n"


@SPARK
@pytest.mark.parametrize("low", [-5, 2], ids=["early in the morning", "never early"])
def test_the_chart_has_zero_on_both_scales_and_its_legend_beside_the_frame(low: int) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from examples.lake.chart import plot

    numbers = random.Random(low)
    answer = {
        Cell(origin, hour): Delays(40, 38, 38 * (low + (hour - 5) * numbers.randint(1, 3)))
        for origin in ("EWR", "JFK", "LGA")
        for hour in range(5, 24)
    }
    figure = plot(answer, ("2013-01-01", "2013-01-03"))
    FigureCanvasAgg(figure).draw()
    drawn: list[Any] = figure.axes
    delays, flights = drawn
    assert figure.get_suptitle() == "Departures from New York, 1 to 3 January 2013"
    assert delays.get_ylim()[0] <= 0 < delays.get_ylim()[1]
    assert flights.get_ylim()[0] == 0
    assert delays.get_xlim() == flights.get_xlim()
    values = [y for line in delays.lines for y in line.get_ydata()]
    assert delays.get_ylim()[0] <= min(values)
    assert max(values) <= delays.get_ylim()[1]
    box = delays.get_legend().get_window_extent()
    assert delays.bbox.x1 <= box.x0
    assert box.x1 <= figure.bbox.x1


@SPARK
@pytest.mark.parametrize(
    ("first", "last", "told"),
    [
        ("2013-01-01", "2013-01-01", "1 January 2013"),
        ("2013-01-01", "2013-01-31", "1 to 31 January 2013"),
        ("2013-01-01", "2013-02-03", "1 January to 3 February 2013"),
    ],
)
def test_a_period_says_once_what_both_days_share(first: str, last: str, told: str) -> None:
    from examples.lake.chart import period

    assert period(first, last) == told

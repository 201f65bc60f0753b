"""The tour's report: one file, which shows what the terminal shows."""

from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from examples.flights.delays import Cell, Delays
from examples.flights.table import delay_table
from examples.tour.report import Chapter, Picture, write_report

# The longest of those in the data.
LONG_NAMES = {
    "AA": "American Airlines Inc.",
    "EV": "ExpressJet Airlines Inc.",
    "F9": "Frontier Airlines Inc.",
    "FL": "AirTran Airways Corporation",
    "WN": "Southwest Airlines Co.",
}


class Page(HTMLParser):
    """What a page refers to, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "srcset", "href")]

    def handle_data(self, data: str) -> None:
        self.words += data.split()


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    """Two files in place of pictures."""
    light, dark = tmp_path / "light.png", tmp_path / "dark.png"
    light.write_bytes(b"light")
    dark.write_bytes(b"dark")
    return Picture(light, dark, "delays")


def test_a_report_needs_no_other_file_and_shows_chapters_and_tables(tmp_path: Path, picture: Picture) -> None:
    names = {"UA": "United <Air> Lines Inc."}
    cell = Cell(date(2013, 1, 1), "UA", "EWR")
    chapter = Chapter("1. Delays", ["3 records & more."], [delay_table({cell: Delays(flights=3, cancelled=3)}, names)])
    write_report(tmp_path / "report.html", "Departures", [chapter], picture)
    page = Page((tmp_path / "report.html").read_text())
    assert len(page.references) == 2
    assert all(each.startswith("data:image/png;base64,") for each in page.references)
    told = " ".join(page.words)
    assert "1. Delays 3 records & more." in told
    assert "United <Air> Lines EWR 3 100.0%" in told, "a name is text, whatever it has in it"
    assert "All 3 100.0%" in told, "the last row is there, too"


def test_a_table_of_80_columns_cuts_no_airline_s_name_and_shows_no_negative_zero() -> None:
    cells = {
        Cell(date(2013, 1, 1), carrier, origin): Delays(
            flights=12_345,
            cancelled=1_000,
            arrived=11_345,
            late=4_000,
            departure_delay_sum_minutes=-1,
            departure_delay_max_minutes=1_301,
            arrival_delay_sum_minutes=-1,
        )
        for carrier in LONG_NAMES
        for origin in ("EWR", "JFK", "LGA")
    }
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(delay_table(cells, LONG_NAMES))
    told = capture.get()
    assert "…" not in told
    assert "-0.0" not in told
    for name in LONG_NAMES.values():
        assert " ".join(name.split()[:2]) in told

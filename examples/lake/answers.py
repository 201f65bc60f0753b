"""One question to four places: how many flights an airport had at an hour of the clock, and their delays.

Owns what an answer is, and what differs between two.  How a place is asked is its caller's, but for the lake, which
DuckDB reads.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from examples.flights.failures import RunFailed
from examples.lake.declared import QUESTION

COLUMNS = ("origin", "hour", "flights", "departed", "delay_minutes")
DIFFERENCES_SHOWN = 10


class AnswersDiffer(RunFailed):
    """What is said at the end of a run that went wrong."""


class Cell(NamedTuple):
    """An airport, and a scheduled hour of the clock in New York."""

    origin: str
    hour: int


class Delays(NamedTuple):
    """``flights`` with the cancelled ones, those that ``departed``, and their delays' sum, which none may have."""

    flights: int
    departed: int
    delay_minutes: int | None


Answer = Mapping[Cell, Delays]


def answer_of(rows: Iterable[Mapping[str, Any]]) -> Answer:
    """An answer by its rows; raises KeyError for a column that is missing."""
    found: dict[Cell, Delays] = {}
    for row in rows:
        origin, hour, flights, departed, minutes = (row[name] for name in COLUMNS)
        found[Cell(origin, int(hour))] = Delays(int(flights), int(departed), None if minutes is None else int(minutes))
    return found


def answer_of_lines(lines: Iterable[str]) -> Answer:
    """An answer by lines of JSON."""
    return answer_of(map(json.loads, lines))


class Lake:
    """A folder of Parquet files, as DuckDB finds them: it knows nothing of who wrote them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def files(self) -> list[Path]:
        """What readers see."""
        return sorted(self._directory.glob("day=*/*.parquet"))

    def rows(self) -> int:
        """How many rows there are now."""
        return int(self._ask("SELECT count(*) FROM {flights}")[0][0]) if self.files() else 0

    def answer(self) -> Answer:
        """The question's."""
        return answer_of(dict(zip(COLUMNS, row, strict=True)) for row in self._ask(QUESTION))

    def days(self) -> tuple[str, str]:
        """The first and the last day in New York, such as 2013-01-01."""
        day = "strftime(timezone('America/New_York', scheduled), '%Y-%m-%d')"
        first, last = self._ask(f"SELECT min({day}), max({day}) FROM {{flights}}")[0]
        return str(first), str(last)

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        pattern = str(self._directory / "*" / "*.parquet").replace("'", "''")
        with duckdb.connect() as connection:
            return connection.execute(question.format(flights=f"read_parquet('{pattern}')")).fetchall()


def check(answers: Mapping[str, Answer]) -> None:
    """Raises `AnswersDiffer` where they are not all the same."""
    if found := list(differences(answers)):
        shown = "\n".join(found[:DIFFERENCES_SHOWN])
        raise AnswersDiffer(f"the answers differ in {len(found)} rows:\n{shown}")


def differences(answers: Mapping[str, Answer]) -> Iterator[str]:
    """What each answer has otherwise than the first one, a line a cell."""
    (first, expected), *others = answers.items()
    for name, answer in others:
        for cell in sorted(expected.keys() | answer.keys()):
            if answer.get(cell) != expected.get(cell):
                where = f"{cell.origin} at {cell.hour:02}:00"
                yield f"{where}: {name} has {_told(answer.get(cell))}, {first} {_told(expected.get(cell))}"


def _told(delays: Delays | None) -> str:
    if delays is None:
        return "nothing"
    return f"{delays.flights} flights, {delays.departed} departed, {delays.delay_minutes or 0} minutes"


def total(answer: Answer) -> Delays:
    """All cells together."""
    cells = answer.values()
    minutes = [each.delay_minutes for each in cells if each.delay_minutes is not None]
    return Delays(
        sum(each.flights for each in cells),
        sum(each.departed for each in cells),
        sum(minutes) if minutes else None,
    )

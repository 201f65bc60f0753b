"""A bounded question has the same rows by DuckDB and by Spark: ``pybroker sql`` beside the views of standing queries.

Starts a JVM.  DuckDB is asked by a session of ``pybroker sql``.  Spark is asked the same text, translated and over
views as a standing query has them; it reads a topic's records once for all questions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from examples.flights import dataset
from pybroker.cli.connection.admin_client import admin_client
from pybroker.cli.connection.client_settings import ClientOptions
from pybroker.cli.requests.topic_reader import TopicReader
from pybroker.pipeline.records import Record
from pybroker.sql.parsing.queries import table_references
from pybroker.sql.parsing.statements import Query, statements
from pybroker.sql.questions.engine import Engine
from pybroker.sql.questions.row_output import OutputForm, json_line
from pybroker.sql.session import Session
from pybroker.sql.standing.spark_plans import read_as_views, spark_sql
from pybroker.testing import Broker
from tests.pipeline.flight_questions import QUESTIONS
from tests.sql.test_row_output import Sheet

pytestmark = pytest.mark.jvm(needs="spark")

DAYS: Final = 2
_NAMES: Final = ("carrier", "tailnum", "origin", "dest", "time_hour", "name", "faa", "dst", "tzone", "manufacturer")
TEXTS: Final = frozenset({*_NAMES, "model", "engine"})
# Without its speed, which is unknown of nearly all: samples say nothing of its type.
PLANE_FIELDS: Final = ("tailnum", "year", "manufacturer", "model", "engines", "seats", "engine")
RELATIVE: Final = 1e-9


def cell(name: str, text: str) -> int | float | str | None:
    """What a cell of the dataset's files says."""
    if text == dataset.NOT_AVAILABLE:
        return None
    if name in TEXTS:
        return text
    return float(text) if "." in text else int(text)


def record(row: dict[str, str], key: str, at: datetime) -> Record:
    value = json.dumps({name: cell(name, text) for name, text in row.items()})
    return Record(key.encode(), value.encode(), int(at.timestamp() * 1_000))


def flights() -> Iterator[Record]:
    for row in dataset.rows(1):
        if int(row["day"]) <= DAYS:
            at = datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
            yield record(row, row["tailnum"], at)


def fill(bootstrap: str) -> None:
    """Each file of the dataset as a topic."""
    from examples import feed

    at = datetime.fromisoformat("2013-01-01T00:00:00Z")
    planes = ({name: row[name] for name in PLANE_FIELDS} for row in dataset.table("planes"))
    airlines = ({"carrier": code, "name": name} for code, name in dataset.airline_names().items())
    topics = {
        "flights": flights(),
        "planes": (record(row, row["tailnum"], at) for row in planes),
        "airlines": (record(row, row["carrier"], at) for row in airlines),
        "airports": (record(row, row["faa"], at) for row in dataset.table("airports")),
    }
    feed.create_topics(bootstrap, topics, ())
    for topic, records in topics.items():
        feed.produce(bootstrap, topic, records)


class Both:
    """Asks a question in both ways; rows are objects of JSON."""

    def __init__(self, spark: Any, bootstrap: str, session: Session, sheet: Sheet) -> None:
        from pybroker.pipeline import BrokerTopics

        self._spark = spark
        self._topics = BrokerTopics(spark, bootstrap)
        self._records: dict[str, Any] = {}
        self._session = session
        self._sheet = sheet

    def by_duckdb(self, text: str) -> list[dict[str, Any]]:
        self._sheet.written.seek(0)
        self._sheet.written.truncate()
        self._session.run(text)
        return [json.loads(line) for line in self._sheet.written.getvalue().splitlines()]

    def by_spark(self, text: str) -> list[dict[str, Any]]:
        from pybroker.sql.standing.source_rows import view_of

        (query,) = statements(text)
        assert isinstance(query, Query)
        tree = query.tree.copy()
        references = table_references(tree)
        relations = [self._session.relation(each.name, text, each.start) for each in references]
        for source in read_as_views("question", tree, references, relations):
            view_of(self._records_of(source.topic), source).createOrReplaceTempView(source.view)
        found = self._spark.sql(spark_sql(tree)).toArrow().to_pylist()
        return [json.loads(json_line(list(row), [without_zone(each) for each in row.values()])) for row in found]

    def _records_of(self, topic: str) -> Any:
        if topic not in self._records:
            self._records[topic] = self._topics.batch(topic).persist()
        return self._records[topic]

    def close(self) -> None:
        for records in self._records.values():
            records.unpersist()


def without_zone(value: Any) -> Any:
    """Spark's timestamps as DuckDB's, which have none; both are UTC."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@contextmanager
def sql_session(bootstrap: str, sheet: Sheet) -> Iterator[Session]:
    """As ``pybroker sql`` makes one."""
    options = ClientOptions(bootstrap)
    remarks: list[str] = []

    @contextmanager
    def connect() -> Iterator[TopicReader]:
        with admin_client(options) as own:
            yield TopicReader(own)

    engine = Engine("256MB")
    try:
        with admin_client(options) as client:
            yield Session(
                TopicReader(client),
                connect,
                engine,
                sheet,
                remarks.append,
                output=OutputForm.JSON,
                stops_at_misfit=True,
            )
    finally:
        engine.close()
    assert remarks == []


@pytest.fixture(scope="module")
def both(spark: Any, pybroker: Broker) -> Iterator[Both]:
    fill(pybroker.bootstrap)
    sheet = Sheet()
    with sql_session(pybroker.bootstrap, sheet) as session:
        found = Both(spark, pybroker.bootstrap, session, sheet)
        yield found
        found.close()


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def place(row: dict[str, Any]) -> tuple[list[str], list[float]]:
    """Where a row stands among the others: by fractions last, whose last digits differ."""
    exact = [repr(int(each)) if is_number(each) and each == int(each) else repr(each) for each in row.values()]
    fractions = [each for each in row.values() if is_number(each) and each != int(each)]
    return [each for each, value in zip(exact, row.values(), strict=True) if value not in fractions], fractions


def are_same(one: Any, other: Any) -> bool:
    if is_number(one) and is_number(other):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=1e-12)
    return type(one) is type(other) and one == other


def differences(
    ours: list[dict[str, Any]], theirs: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Rows at the same place that are not the same; both lists are as long."""
    pairs = zip(sorted(ours, key=place), sorted(theirs, key=place), strict=True)
    return [(one, other) for one, other in pairs if not all(map(are_same, one.values(), other.values()))]


@pytest.mark.parametrize("name", QUESTIONS)
def test_duckdb_and_spark_give_the_same_rows(both: Both, name: str) -> None:
    text = QUESTIONS[name]
    ours, theirs = both.by_duckdb(text), both.by_spark(text)
    assert [list(row) for row in ours[:1]] == [list(row) for row in theirs[:1]], text
    assert len(ours) == len(theirs), text
    assert differences(ours, theirs)[:3] == [], text

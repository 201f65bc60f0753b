"""JdbcSource's statements on a PostgreSQL, which psql sends: which rows are new, in what parts, and with what keys.

Needs PySpark and no JVM.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from examples.tour.postgres import Postgres, PostgresFailed, own_postgres
from pybroker.connectors.declared.plugin_kinds import kind_named
from pybroker.connectors.declared.validation import errors_of
from pybroker.connectors.state.state_records import canonical

pytest.importorskip("pyspark")


class PsqlDatabase:
    """In place of the pipeline's `Database`, whose driver needs a JVM; sessions are in a ``zone``, as the JVM's are."""

    def __init__(self, postgres: Postgres, zone: str) -> None:
        self._postgres, self._zone = postgres, zone

    def wait_until_it_answers(self, spark: Any) -> None:
        """It does."""

    def rows(self, spark: Any, query: str, columns: int) -> list[tuple[str | None, ...]]:
        names = [f"c{at}" for at in range(columns)]
        whole = f"SELECT json_build_array({', '.join(f'{name}::text' for name in names)}) FROM ({query}) AS q"
        found = self._postgres.sql(f"SET TIME ZONE '{self._zone}'; {whole}({', '.join(names)})")
        return [tuple(json.loads(line)) for line in found]


class Source:
    """A connector over restarts: its offsets are kept, and each ``read`` is until there is nothing new."""

    def __init__(self, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
        self._postgres, self._monkeypatch = postgres, monkeypatch
        self.offsets: dict[str, dict[str, Any]] = {}
        self.parts: list[int] = []

    def sql(self, text: str) -> list[str]:
        return self._postgres.sql(text)

    def poller(self, zone: str = "UTC", **config: str) -> Any:
        from pybroker.connectors.kinds import jdbc_source
        from pybroker.connectors.kinds.connector_runs import Work

        kind = kind_named("JdbcSource")
        assert kind is not None
        whole = {"name": "s", "connector.class": "JdbcSource", "topic": "t", "connection.url": self._postgres.jdbc_url}
        whole |= {key.replace("_", "."): text for key, text in config.items()}
        assert errors_of(whole) == {}
        self._monkeypatch.setattr(jdbc_source, "database_of", lambda _: PsqlDatabase(self._postgres, zone))
        place: Any = None
        work = Work("s", kind, whole, None, {}, "", "", lambda _: "", place, threading.Event())
        return jdbc_source._JdbcPoller(work, self.offsets)

    def read(self, zone: str = "UTC", **config: str) -> list[Any]:
        """The values of new records, behind a restart."""
        return [json.loads(value) for _, value in self.records(zone, **config)]

    def records(self, zone: str = "UTC", **config: str) -> list[tuple[bytes | None, bytes]]:
        one, found = self.poller(zone, **config), []
        self.parts = []
        while (polled := one.poll()).records:
            assert polled.has_more
            self.parts.append(len(polled.records))
            found += polled.records
            ((partition, offset),) = polled.offsets
            self.offsets[canonical(partition)] = json.loads(json.dumps(offset))
        return found


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with own_postgres() as running:
        yield running


@pytest.fixture
def source(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    yield Source(postgres, monkeypatch)
    postgres.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


TIMED = {"table": "t", "mode": "timestamp", "timestamp_column_name": "at"}
BOTH = {**TIMED, "mode": "timestamp+incrementing", "incrementing_column_name": "id"}


def ids(values: list[Any]) -> list[int]:
    return [each["id"] for each in values]


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_a_time_of_the_future_hides_no_row_that_comes_later(source: Source, kind: str) -> None:
    source.sql(f"CREATE TABLE t (id int, at {kind})")
    source.sql(
        "INSERT INTO t VALUES (1, now() - interval '3 days'), (2, '9999-12-31'), (3, 'infinity'), "
        "(4, now() + interval '2 days')"
    )
    assert ids(source.read(**TIMED)) == [1]
    source.sql("INSERT INTO t VALUES (5, now() - interval '2 days')")
    assert ids(source.read(**TIMED)) == [5]
    source.sql("UPDATE t SET at = now() - interval '1 day' WHERE id = 2")
    assert ids(source.read(**TIMED)) == [2]


def test_a_row_without_a_time_is_not_read_until_it_has_one(source: Source) -> None:
    source.sql("CREATE TABLE t (id int, at timestamptz)")
    source.sql("INSERT INTO t VALUES (1, now() - interval '1 day'), (2, NULL)")
    assert ids(source.read(**TIMED)) == [1]
    source.sql("UPDATE t SET at = now() - interval '1 hour' WHERE id = 2")
    assert ids(source.read(**TIMED)) == [2]


def test_a_row_of_the_last_time_that_comes_later_is_found_by_a_number_beside_it(source: Source) -> None:
    source.sql("CREATE TABLE t (id int, at date)")
    source.sql("INSERT INTO t VALUES (1, '2026-01-01'), (2, '2026-01-02')")
    assert ids(source.read(**TIMED)) == [1, 2]
    assert source.offsets == {'{"table":"t"}': {"timestamp": "2026-01-02"}}
    source.sql("INSERT INTO t VALUES (3, '2026-01-02')")
    assert source.read(**TIMED) == []
    # Rows of the last time were all read then.
    assert source.read(**BOTH) == []
    source.sql("INSERT INTO t VALUES (4, '2026-01-03')")
    assert ids(source.read(**BOTH)) == [4]
    assert source.offsets == {'{"table":"t"}': {"timestamp": "2026-01-03", "incrementing": "4"}}
    source.sql("INSERT INTO t VALUES (5, '2026-01-03'), (0, '2026-01-04'), (NULL, '2026-01-04')")
    assert ids(source.read(**BOTH)) == [5, 0]


def test_a_number_alone_is_no_offset_of_times(source: Source) -> None:
    source.sql("CREATE TABLE t (id int, at date)")
    source.sql("INSERT INTO t VALUES (1, '2026-01-01'), (2, '2026-01-02')")
    by_id = {"table": "t", "incrementing_column_name": "id"}
    assert ids(source.read(**by_id)) == [1, 2]
    assert ids(source.read(**BOTH)) == [1, 2]


def test_a_delay_leaves_rows_of_one_time_together(source: Source) -> None:
    source.sql("CREATE TABLE t (id int, at date)")
    day = {**TIMED, "timestamp_delay_interval_ms": "86400000"}
    source.sql("INSERT INTO t VALUES (1, (now() AT TIME ZONE 'UTC')::date - 2), (2, (now() AT TIME ZONE 'UTC')::date)")
    assert ids(source.read(**day)) == [1]
    source.sql("INSERT INTO t VALUES (3, (now() AT TIME ZONE 'UTC')::date)")
    assert source.read(**day) == []
    assert ids(source.read(**TIMED)) == [2, 3]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.parametrize("kind", ["timestamptz", "timestamp"])
def test_a_delay_is_by_the_databases_clock_whatever_zone_the_session_has(source: Source, kind: str, zone: str) -> None:
    now = "now()" if kind == "timestamptz" else "now() AT TIME ZONE 'Europe/Berlin'"
    source.sql(f"CREATE TABLE t (id int, at {kind})")
    source.sql(f"INSERT INTO t SELECT n, {now} - n * interval '20 minutes' FROM generate_series(1, 6) n")
    hour = {**TIMED, "timestamp_delay_interval_ms": "3000000", "db_timezone": "Europe/Berlin"}
    assert ids(source.read(zone, **hour)) == [6, 5, 4, 3]
    assert ids(source.read(zone, **{**hour, "timestamp_delay_interval_ms": "1800000"})) == [2]


def test_times_without_a_zone_are_those_of_utc_by_default(source: Source) -> None:
    source.sql("CREATE TABLE t (id int, at timestamp)")
    source.sql("INSERT INTO t VALUES (1, now() AT TIME ZONE 'UTC'), (2, now() AT TIME ZONE 'Asia/Tokyo')")
    assert ids(source.read("Asia/Tokyo", **TIMED)) == [1]


def test_a_column_that_is_no_time_is_refused_as_one(source: Source) -> None:
    from pybroker.connectors.kinds.jdbc_source import QueryRefused

    source.sql("CREATE DOMAIN moment AS timestamptz; CREATE TABLE t (id int, at bigint, of moment)")
    with pytest.raises(QueryRefused, match=r"timestamp\.column\.name: at is bigint, and no date or timestamp"):
        source.read(**TIMED)
    source.sql("INSERT INTO t VALUES (1, 1, now() - interval '1 minute')")
    assert ids(source.read(**{**TIMED, "timestamp_column_name": "of"})) == [1]
    with pytest.raises(PostgresFailed, match="no_such"):
        source.read(**{**TIMED, "timestamp_column_name": "no_such"})


def test_many_rows_of_one_time_end_the_run_or_are_read_in_parts(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybroker.connectors.kinds import jdbc_source

    monkeypatch.setattr(jdbc_source, "_ROWS_MAX", 5)
    source.sql("CREATE TABLE t (id int PRIMARY KEY, at timestamptz)")
    source.sql("INSERT INTO t SELECT n, '2026-01-01' FROM generate_series(1, 3) n")
    source.sql("INSERT INTO t SELECT n, '2026-01-02' FROM generate_series(4, 10) n")
    few = {"batch_max_rows": "2"}
    one = source.poller(**TIMED, **few)
    first = one.poll()
    assert [json.loads(value)["id"] for _, value in first.records] == [1, 2, 3]
    with pytest.raises(jdbc_source.QueryRefused, match="7 rows have one value of at, and 5 are taken at once"):
        one.poll()
    source.offsets = {canonical(partition): offset for partition, offset in first.offsets}
    assert ids(source.read(**BOTH, **few)) == list(range(4, 11))
    assert source.parts == [2, 2, 2, 1]
    source.sql("UPDATE t SET at = '2026-01-03'")
    assert ids(source.read(**BOTH, **few)) == list(range(1, 11))


def test_rows_are_read_in_parts_of_so_many_bytes(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    from pybroker.connectors.kinds import jdbc_source

    monkeypatch.setattr(jdbc_source, "_BYTES_MAX", 350)
    source.sql("CREATE TABLE told (id int, name text)")
    source.sql("INSERT INTO told SELECT n / 2, repeat('x', 80) FROM generate_series(0, 9) n")
    by_id = {"table": "told", "incrementing_column_name": "id"}
    assert ids(source.read(**by_id)) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert source.parts == [2, 2, 2, 2, 2]
    source.sql("INSERT INTO told VALUES (5, repeat('x', 400))")
    with pytest.raises(jdbc_source.QueryRefused, match="1 rows have one value of id"):
        source.read(**by_id)


def test_a_query_with_a_column_more_goes_on_where_it_was(source: Source) -> None:
    source.sql("CREATE TABLE t (id serial, shop int)")
    source.sql("INSERT INTO t (shop) VALUES (1), (2)")
    by_id = {"incrementing_column_name": "id"}
    assert ids(source.read(query="SELECT id FROM t", **by_id)) == [1, 2]
    source.sql("INSERT INTO t (shop) VALUES (3)")
    assert source.read(query="SELECT id, shop FROM t", **by_id) == [{"id": 3, "shop": 3}]
    assert source.offsets == {'{"query":"query"}': {"incrementing": "3"}}


@pytest.mark.parametrize(
    ("kind", "values", "keys"),
    [
        ("numeric", ["12345678901234567.11", "12345678901234567.89"], ["12345678901234567.11", "12345678901234567.89"]),
        ("numeric(10,2)", ["1.1", "2"], ["1.10", "2.00"]),
        ("boolean", ["false", "true"], ["false", "true"]),
        ("text", ["'a'", "'é'"], ["a", "é"]),
        ("jsonb", ["'{\"a\": 1.50}'"], ['{"a": 1.50}']),
    ],
)
def test_keys_are_the_texts_of_columns(source: Source, kind: str, values: list[str], keys: list[str]) -> None:
    source.sql(f"CREATE TABLE t (id serial, k {kind})")
    for value in values:
        source.sql(f"INSERT INTO t (k) VALUES ({value})")
    found = source.records(table="t", incrementing_column_name="id", key_fields="k")
    normal: Callable[[str], Any] = json.loads if kind == "jsonb" else str
    assert [normal((key or b"").decode()) for key, _ in found] == [normal(key) for key in keys]

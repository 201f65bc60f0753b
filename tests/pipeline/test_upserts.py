"""The sink into PostgreSQL: nothing twice, and outages waited for. Starts a JVM, Spark's, and PostgreSQL.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from collections.abc import Callable
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest

from examples.tour.postgres import Postgres

pytestmark = pytest.mark.jvm(needs="spark")

COLUMNS = {"word": "text", "counted": "bigint", "at": "timestamptz"}
SCHEMA = "word string, counted bigint, at timestamp"


class Target:
    """A table of one test."""

    def __init__(self, spark: Any, postgres: Postgres) -> None:
        from pybroker.pipeline.upserts import Table

        self.spark = spark
        self.postgres = postgres
        self.table = Table(f"t_{uuid4().hex}", COLUMNS, ("word",))
        self.told: list[str] = []

    def writer(self, told: Callable[[str], None] | None = None, **options: Any) -> Callable[[Any, int], None]:
        from pybroker.pipeline.upserts import upsert_into

        url, properties = self.postgres.jdbc_url, {**self.postgres.jdbc_properties, **options.pop("properties", {})}
        return upsert_into(self.table, url, properties, on_outage=told or self.told.append, **options)

    def frame(self, **counts: int | None) -> Any:
        rows = self.spark.createDataFrame(list(counts.items()), "word string, counted bigint")
        return rows.selectExpr("word", "counted", "timestamp'2013-01-01T10:15:00Z' AS at")

    def of_query(self, query: str | None) -> None:
        """What is written from now on is a query's, or written by hand."""
        from pybroker.pipeline.topics.writers import QUERY_PROPERTY

        self.spark.sparkContext.setLocalProperty(QUERY_PROPERTY, query)

    def execute(self, statement: str) -> None:
        given = self.spark._jvm.java.util.Properties()
        for name, value in self.postgres.jdbc_properties.items():
            given.setProperty(name, value)
        connection = self.spark._jvm.org.postgresql.Driver().connect(self.postgres.jdbc_url, given)
        try:
            connection.createStatement().execute(statement)
        finally:
            connection.close()

    def rows(self) -> dict[str, tuple[int | None, int]]:
        reader = self.spark.read.jdbc(self.postgres.jdbc_url, self.table.name, properties=self.postgres.jdbc_properties)
        return {row.word: (row.counted, row.epoch) for row in reader.collect()}


@pytest.fixture
def target(spark: Any, postgres: Postgres) -> Target:
    return Target(spark, postgres)


def test_an_epoch_replaces_what_older_ones_wrote_and_leaves_the_rest(target: Target) -> None:
    write = target.writer()
    write(target.frame(a=1, b=2), 0)
    write(target.frame(b=5, c=None), 1)
    assert target.rows() == {"a": (1, 0), "b": (5, 1), "c": (None, 1)}


def test_an_epoch_written_again_changes_nothing(target: Target) -> None:
    write = target.writer()
    for _ in range(2):
        write(target.frame(a=1, b=2), 0)
    assert target.rows() == {"a": (1, 0), "b": (2, 0)}


def test_an_older_epoch_undoes_nothing(target: Target) -> None:
    write = target.writer()
    write(target.frame(a=7), 4)
    write(target.frame(a=1, b=1), 3)
    assert target.rows() == {"a": (7, 4), "b": (1, 3)}


def test_a_query_on_a_new_checkpoint_replaces_what_the_one_before_wrote(target: Target) -> None:
    """The new one begins at epoch 0 again.  The table is older than the column that tells queries apart."""
    write = target.writer()
    write(target.frame(a=3, b=4), 9)
    target.execute(f'ALTER TABLE {target.table.name} DROP COLUMN "query_id"')
    try:
        for query, epoch, count in (("first", 7, 5), ("second", 0, 6), ("second", 1, 7), ("second", 0, 8)):
            target.of_query(query)
            write(target.frame(a=count), epoch)
    finally:
        target.of_query(None)
    assert target.rows() == {"a": (7, 1), "b": (4, 9)}


def test_a_column_that_the_sink_has_for_itself_is_refused_in_one_line() -> None:
    from pybroker.pipeline.upserts import Table, upsert_into

    table = Table("searches", {"query_id": "text"}, ("query_id",))
    with pytest.raises(ValueError, match="has a column query_id, which the sink has for itself"):
        upsert_into(table, "", {})


def test_two_jobs_that_write_into_one_table_at_once_do_not_meet(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second writes while the first has copied its rows and not merged them."""
    from pybroker.pipeline import upserts

    first, second = target.writer(), target.writer()

    def merge_later(table: Any, staging: str, epoch: int, query: str | None, **of: bool) -> str:
        monkeypatch.undo()
        target.of_query("second")
        second(target.frame(b=2), 7)
        return table.merge(staging, epoch, query, **of)  # type: ignore[no-any-return]

    monkeypatch.setattr(upserts.Table, "merge", merge_later)
    target.of_query("first")
    try:
        first(target.frame(a=1), 3)
    finally:
        target.of_query(None)
    assert target.rows() == {"a": (1, 3), "b": (2, 7)}


def test_instants_are_kept_whatever_the_session_s_time_zone_is(target: Target) -> None:
    target.writer()(target.frame(a=1), 0)
    query = f"(SELECT extract(epoch FROM at)::bigint AS s FROM {target.table.name}) AS q"
    read = target.spark.read.jdbc(target.postgres.jdbc_url, query, properties=target.postgres.jdbc_properties)
    assert read.first().s == 1_357_035_300


def test_a_query_waits_for_a_database_that_is_gone_and_writes_nothing_twice(target: Target, tmp_path: Any) -> None:
    """The database goes between two epochs of a running query, and comes back when the sink has noticed."""
    noticed = Event()

    def told(line: str) -> None:
        target.told.append(line)
        noticed.set()

    source = tmp_path / "source"
    source.mkdir()
    for number in range(4):
        (source / f"{number}.json").write_text(f'{{"word": "w{number}", "counted": {number}}}\n')
    stream = target.spark.readStream.schema("word string, counted bigint").option("maxFilesPerTrigger", 1)
    rows = stream.json(str(source)).selectExpr("word", "counted", "current_timestamp() AS at")
    write = target.writer(told)

    def write_and_lose_the_database(batch: Any, epoch: int) -> None:
        if epoch == 2:
            target.postgres.stop()
        write(batch, epoch)

    def bring_it_back() -> None:
        assert noticed.wait(60)
        target.postgres.start()

    returning = Thread(target=bring_it_back)
    returning.start()
    writer = rows.writeStream.foreachBatch(write_and_lose_the_database)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    returning.join()

    found = target.rows()
    assert {word: counted for word, (counted, _) in found.items()} == {f"w{number}": number for number in range(4)}
    assert sorted(epoch for _, epoch in found.values()) == [0, 1, 2, 3]
    assert [line.partition(";")[0] for line in target.told] == [
        "The database does not answer",
        "The database answers again.",
    ]


def test_patience_has_an_end_that_is_said(target: Target) -> None:
    from pybroker.pipeline.postgres_database import DatabaseGone

    write = target.writer(patience_s=0.1)
    target.postgres.stop()
    try:
        with pytest.raises(DatabaseGone, match=r"did not answer for 0 s: Connection to 127\.0\.0\.1:\d+ refused"):
            write(target.frame(a=1), 0)
    finally:
        target.postgres.start()


def test_a_wrong_password_is_not_waited_for(target: Target) -> None:
    write = target.writer(properties={"password": "wrong"})
    with pytest.raises(Exception, match="password authentication failed"):
        write(target.frame(a=1), 0)
    assert target.told == []


def test_of_two_rows_of_one_key_in_an_epoch_the_last_counts(target: Target) -> None:
    rows = [("a", 1), ("b", 7), ("a", 2), ("b", None), ("a", 3)]
    for tasks in (1, 3):
        frame = target.spark.createDataFrame(rows, "word string, counted bigint")
        # A task has several rows of a key, or rows that follow each other: their order is kept.
        frame = target.spark.createDataFrame(frame.rdd.coalesce(tasks), frame.schema)
        target.writer()(frame.selectExpr("word", "counted", "timestamp'2013-01-01T10:15:00Z' AS at"), tasks)
        assert target.rows() == {"a": (3, tasks), "b": (None, tasks)}


def test_the_last_row_of_a_key_may_be_told_by_a_column_that_is_not_the_tables(target: Target) -> None:
    rows = [("a", 1, 30), ("a", 2, 10), ("a", 3, None), ("b", None, 8), ("b", 5, 9)]
    frame = target.spark.createDataFrame(rows, "word string, counted bigint, offset bigint").repartition(3)
    target.writer(latest_by="offset")(frame.selectExpr("*", "timestamp'2013-01-01T10:15:00Z' AS at"), 0)
    assert target.rows() == {"a": (1, 0), "b": (5, 0)}


def test_a_tombstone_deletes_its_keys_row_unless_a_row_comes_behind_it(target: Target) -> None:
    def rows(*words: tuple[str, int | None]) -> Any:
        frame = target.spark.createDataFrame([*words], "word string, counted bigint").coalesce(1)
        return frame.selectExpr("word", "counted", "if(counted is null, null, timestamp'2013-01-01T10:15:00Z') AS at")

    write = target.writer()
    write(rows(("a", 1), ("b", 2), ("c", 3)), 0)
    for _ in range(2):  # as after a crash
        write(rows(("a", None), ("b", 5), ("b", None), ("c", None), ("c", 6), ("never there", None)), 1)
        assert target.rows() == {"c": (6, 1)}
    write(rows(("a", 7)), 2)
    assert target.rows() == {"a": (7, 2), "c": (6, 1)}


def test_an_older_epoch_of_a_query_does_not_bring_back_what_was_deleted(target: Target) -> None:
    write = target.writer()
    gone = target.frame(a=None).selectExpr("word", "counted", "timestamp(null) AS at")
    target.of_query("q1")
    try:
        write(target.frame(a=1, b=1), 0)
        write(gone, 1)
        write(target.frame(a=1, b=1), 0)  # by a driver that was thought dead
        assert target.rows() == {"b": (1, 0)}
        target.of_query("q2")
        write(target.frame(a=2), 0)
    finally:
        target.of_query(None)
    assert target.rows() == {"a": (2, 0), "b": (1, 0)}


def test_a_name_with_a_schema_is_a_table_of_that_schema_and_one_without_is_found_by_the_search_path(
    target: Target,
) -> None:
    mart, name = f"mart_{uuid4().hex}", target.table.name
    target.execute(f'CREATE SCHEMA "{mart}"')
    target.writer()(target.frame(a=1), 0)
    public, target.table = target.table, target.table._replace(name=f"{mart}.{name}")
    target.of_query("q1")
    try:
        for epoch in range(2):
            target.writer()(target.frame(b=2), epoch)
    finally:
        target.of_query(None)
    assert target.rows() == {"b": (2, 1)}
    target.table = public
    assert target.rows() == {"a": (1, 0)}
    target.writer(properties={"currentSchema": mart})(target.frame(c=3), 0)
    assert target.rows() == {"a": (1, 0)}
    target.table = public._replace(name=f"{mart}.{name}")
    assert target.rows() == {"b": (2, 1), "c": (3, 0)}


def test_columns_of_postgres_own_types_are_filled(target: Target) -> None:
    from pybroker.pipeline.upserts import Table

    kinds = {"word": "text", "counted": "bigint", "who": "uuid NOT NULL", "said": "jsonb DEFAULT '{}'"}
    target.table = Table(target.table.name, kinds, ("word",))
    rows = target.frame(a=1).selectExpr("word", "counted", "uuid() AS who", """'{"b": 1}' AS said""")
    target.writer()(rows, 0)
    query = f"(SELECT said ->> 'b' AS b, pg_typeof(who)::text AS kind FROM {target.table.name}) AS q"
    read = target.spark.read.jdbc(target.postgres.jdbc_url, query, properties=target.postgres.jdbc_properties)
    assert tuple(read.first()) == ("1", "uuid")


def test_a_url_that_is_no_postgres_is_told_in_one_line(target: Target) -> None:
    from pybroker.pipeline.upserts import upsert_into

    with pytest.raises(
        ValueError, match=r"^no URL of PostgreSQL, which begins with jdbc:postgresql: jdbc:mysql://db/x$"
    ):
        upsert_into(target.table, "jdbc:mysql://db/x?password=secret", {})(target.frame(a=1), 0)


def test_a_session_without_the_driver_is_told_in_one_line(target: Target) -> None:
    from pybroker.pipeline.postgres_database import Database

    class Session:
        """As one whose JVM has no such class: py4j takes its name for a package."""

        @property
        def _jvm(self) -> Any:
            jvm = target.spark._jvm
            postgresql = type("Package", (), {"Driver": jvm.org.postgresql.NoSuchDriver})
            return type("Jvm", (), {"java": jvm.java, "org": type("Package", (), {"postgresql": postgresql})})

    told = r"^the session has no org\.postgresql\.Driver: it wants the package org\.postgresql:postgresql$"
    session: Any = Session()
    with pytest.raises(RuntimeError, match=told), Database("", {}, 0, print).connection(session):
        pass

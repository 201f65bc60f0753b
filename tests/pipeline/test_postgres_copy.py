"""What COPY brings into PostgreSQL is what Spark has. Starts a JVM, Spark's, and PostgreSQL."""

from typing import Any

import pytest

from examples.tour.postgres import Postgres

pytestmark = pytest.mark.jvm(needs="spark")

NAME = "copied"
# Each column's values by Spark's SQL, and by PostgreSQL's.
VALUES = {
    "text": (r"'a\tb\\c\nd\re\\.\n\\.\n'", r"E'a\tb\\c\nd\re\\.\n\\.\n'"),
    "null text": ("cast(null AS string)", "NULL::text"),
    "empty": ("''", "''"),
    "looks null": (r"'\\N'", r"E'\\N'"),
    'has "quotes`': ("'\"Zürich\" 🚲'", "'\"Zürich\" 🚲'"),
    "small": ("-32768S", "(-32768)::smallint"),
    "tiny": ("-128Y", "(-128)::smallint"),
    "integer": ("2147483647", "2147483647"),
    "big": ("-9223372036854775808L", "(-9223372036854775808)::bigint"),
    "real": ("1.1F", "1.1::real"),
    "double": ("1.0E-300D", "1.0E-300::double precision"),
    "nan": ("double('NaN')", "'NaN'::double precision"),
    "infinity": ("float('-Infinity')", "'-Infinity'::real"),
    "decimal": ("-0.000000000000000001BD", "-0.000000000000000001"),
    "true": ("true", "true"),
    "bytes": (r"X'00FF5C0A'", r"'\x00FF5C0A'::bytea"),
    "date": ("date'2024-02-29'", "date '2024-02-29'"),
    "date BC": ("date'-0043-03-15'", "date '0044-03-15 BC'"),
    "late date": ("date'+12024-02-29'", "date '12024-02-29'"),
    "instant": ("timestamp'2013-10-27T00:30:00.123456Z'", "timestamptz '2013-10-27 00:30:00.123456+00'"),
    "instant BC": ("timestamp'-0043-03-15T10:00:00Z'", "timestamptz '0044-03-15 10:00:00+00 BC'"),
    "late instant": ("timestamp'+294246-01-01T00:00:00Z'", "timestamptz '294246-01-01 00:00:00+00'"),
    "clock": ("timestamp_ntz'2013-10-27T02:30:00.5'", "timestamp '2013-10-27 02:30:00.5'"),
    "clock BC": ("timestamp_ntz'-0043-03-15T10:00:00'", "timestamp '0044-03-15 10:00:00 BC'"),
}


def test_each_type_and_text_is_the_same_in_both(spark: Any, postgres: Postgres) -> None:
    from pybroker.pipeline.postgres_copy import copy_into
    from pybroker.pipeline.postgres_database import Database
    from pybroker.pipeline.postgres_text import literal, quoted

    quoted_in_spark = {name: f"`{name.replace('`', '``')}`" for name in VALUES}
    rows = spark.range(1).selectExpr(*(f"{value} AS {quoted_in_spark[name]}" for name, (value, _) in VALUES.items()))
    database = Database(postgres.jdbc_url, postgres.jdbc_properties, 0, print)
    same = [
        f"SELECT {literal(name)} FROM {NAME} WHERE {quoted(name)} IS DISTINCT FROM {value}"
        for name, (_, value) in VALUES.items()
    ]
    zone = spark.conf.get("spark.sql.session.timeZone")
    for each in ("UTC", "Europe/Vienna"):
        spark.conf.set("spark.sql.session.timeZone", each)
        try:
            with database.transaction(spark) as transaction:
                copy_into(transaction, NAME, rows)
                assert transaction.rows(" UNION ALL ".join(same), 1) == []
                assert transaction.rows(f"SELECT count(*) FROM {NAME}", 1) == [("1",)]
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone)


def test_rows_of_many_pieces_come_once_each_and_the_table_goes_with_its_transaction(
    spark: Any, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybroker.pipeline import postgres_copy
    from pybroker.pipeline.postgres_database import Database

    monkeypatch.setattr(postgres_copy, "PIECE_BYTES", 1_000)
    database = Database(postgres.jdbc_url, postgres.jdbc_properties, 0, print)
    for rows, found in ((spark.range(0, 3_000, 1, 4), "3000|4498500"), (spark.range(0), "0|")):
        with database.transaction(spark) as transaction:
            postgres_copy.copy_into(transaction, NAME, rows.persist())
            assert transaction.rows(f"SELECT concat(count(DISTINCT id), '|', sum(id)) FROM {NAME}", 1) == [(found,)]
        assert database.rows(spark, f"SELECT to_regclass('{NAME}')", 1) == [(None,)]


def test_what_postgresql_has_not_is_known_before_it_refuses_it(spark: Any, postgres: Postgres) -> None:
    from pybroker.pipeline.postgres_copy import copy_into, lacks
    from pybroker.pipeline.postgres_database import Database

    database = Database(postgres.jdbc_url, postgres.jdbc_properties, 0, print)
    for value in (
        "concat('a', char(0))",
        "date'-4713-11-23'",
        "date'+5874898-01-01'",
        "timestamp'-4713-11-23T00:00:00Z'",
        "timestamp_ntz'-4713-11-23T00:00:00'",
    ):
        rows = spark.range(1).selectExpr(f"{value} AS v")
        lacking = lacks("v", rows.schema["v"].dataType)
        assert lacking is not None
        assert rows.where(lacking[0]).count() == 1, value
        with pytest.raises(Exception, match=r"invalid byte sequence|out of range"), database.transaction(spark) as one:
            copy_into(one, NAME, rows)
    for value in ("'a'", "date'-4713-11-24'", "date'+5874897-12-31'", "timestamp'-4713-11-24T00:00:00Z'"):
        rows = spark.range(1).selectExpr(f"{value} AS v")
        lacking = lacks("v", rows.schema["v"].dataType)
        assert lacking is not None
        assert rows.where(lacking[0]).count() == 0, value
        with database.transaction(spark) as transaction:
            copy_into(transaction, NAME, rows)

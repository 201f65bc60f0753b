"""Statements of the sink into PostgreSQL where it refuses rows: they are run as text by psql, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.tour.postgres import Postgres, PostgresFailed, own_postgres

pytest.importorskip("pyspark")

PLACES = (
    "staged_topic text, staged_partition integer, staged_offset bigint, staged_fault text, staged_is_deleted boolean"
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    from pybroker.connectors.kinds.jdbc_sink import marks_table, refused_table, table_made

    with own_postgres() as server:
        for table in (marks_table(), refused_table()):
            server.sql(table_made(table))
        yield server


def take(
    postgres: Postgres, table: str, rows: str, *, epoch: int = 0, keys: tuple[str, ...] = (), is_tolerant: bool = True
) -> list[str]:
    """What is refused behind a micro-batch of rows, which have an id, a name and what is wrong with them."""
    from pybroker.connectors.kinds.jdbc_sink import columns_query, condition_of, marked, takeover
    from pybroker.connectors.kinds.refused_rows import by_row_where_it_fails, refused_query
    from pybroker.pipeline.postgres_text import literal

    of_query = ("c", table, "q")
    types = dict(row.split("|") for row in postgres.sql(columns_query(table))) or {"id": "integer", "name": "text"}
    taking = by_row_where_it_fails(
        '"staging"',
        lambda condition: takeover("staging", table, types, keys, condition),
        ", ".join(map(literal, of_query)),
        is_tolerant=is_tolerant,
    )
    forgotten = [f"DELETE FROM pybroker_connect_refused WHERE {condition_of(*of_query)}"] if is_tolerant else []
    statements = [
        "DROP TABLE IF EXISTS staging",
        f"CREATE TABLE staging (id bigint, name text, {PLACES})",
        "INSERT INTO staging SELECT id, name, 't', 1, row_number() OVER (), fault, name IS NULL "
        f"FROM (VALUES {rows}) AS given (id, name, fault)",
        *marked([*forgotten, taking], *of_query, epoch),
    ]
    postgres.sql(";\n".join(statements))
    return postgres.sql(refused_query(condition_of(*of_query)) + ' ORDER BY "offset"')


def found(postgres: Postgres, table: str) -> list[str]:
    return postgres.sql(f"SELECT id, name FROM {table} ORDER BY id")


def test_lists_become_arrays_of_the_table(postgres: Postgres) -> None:
    from pybroker.connectors.kinds.jdbc_sink import takeover

    postgres.sql("CREATE TABLE arrays (id integer, tags text[], counts integer[])")
    postgres.sql(f"CREATE TABLE staged_arrays (id bigint, tags text, counts text, {PLACES})")
    rows = """(1, '["b","a",null,"it''s {x}"]', '[3,1]'), (2, '[]', NULL), (3, NULL, '[]')"""
    postgres.sql(
        "INSERT INTO staged_arrays SELECT id, tags, counts, 't', 1, id, NULL, false "
        f"FROM (VALUES {rows}) AS given (id, tags, counts)"
    )
    types = {"id": "integer", "tags": "text[]", "counts": "integer[]"}
    postgres.sql(";\n".join(takeover("staged_arrays", "arrays", types, [], lists={"tags": False, "counts": False})))
    assert postgres.sql("SELECT * FROM arrays ORDER BY id") == ["""1|{b,a,NULL,"it's {x}"}|{3,1}""", "2|{}|", "3||{}"]


def test_lists_of_bytes_are_no_base64_in_an_array_of_bytes(postgres: Postgres) -> None:
    from pybroker.connectors.kinds.jdbc_sink import takeover

    postgres.sql("CREATE TABLE files (id integer, parts bytea[], texts bytea[], shown text[])")
    postgres.sql(f"CREATE TABLE staged_files (id bigint, parts text, texts text, shown text, {PLACES})")
    listed = """'["AP8=",null]'"""
    postgres.sql(f"""INSERT INTO staged_files VALUES (1, {listed}, '["AP8="]', {listed}, 't', 1, 1, NULL, false)""")
    types = {"id": "integer", "parts": "bytea[]", "texts": "bytea[]", "shown": "text[]"}
    lists = {"parts": True, "texts": False, "shown": True}
    postgres.sql(";\n".join(takeover("staged_files", "files", types, [], lists=lists)))
    read = "SELECT encode(parts[1], 'hex'), parts[2] IS NULL, encode(texts[1], 'escape'), shown FROM files"
    assert postgres.sql(read) == ["00ff|t|AP8=|{AP8=,NULL}"]


def test_rows_that_are_refused_are_noted_with_the_reason_and_the_others_are_taken(postgres: Postgres) -> None:
    checked = "id integer PRIMARY KEY CHECK (id <> 4), name varchar(5) UNIQUE DEFERRABLE INITIALLY DEFERRED"
    postgres.sql(f"CREATE TABLE many ({checked})")
    rows = (
        "(1::bigint, 'a', NULL), (3000000000, 'b', NULL), (2, 'longer than it may', NULL), (1, 'again', NULL), "
        "(4, 'd', NULL), (5, 'e', 'what Spark says'), (6, 'a', NULL), (7, 'g', NULL)"
    )
    refused = take(postgres, "many", rows)
    assert [each.split("|")[:3] for each in refused] == [["t", "1", str(offset)] for offset in range(2, 8)]
    assert [each.split("|")[3] for each in refused] == [
        "integer out of range",
        "value too long for type character varying(5)",
        'duplicate key value violates unique constraint "many_pkey"',
        'new row for relation "many" violates check constraint "many_id_check"',
        "what Spark says",
        'duplicate key value violates unique constraint "many_name_key"',
    ]
    assert found(postgres, "many") == ["1|a", "7|g"]


def test_a_micro_batch_that_comes_again_finds_what_was_refused_and_the_next_one_does_not(postgres: Postgres) -> None:
    postgres.sql("CREATE TABLE again (id integer, name varchar(5))")
    rows = "(1, 'a', NULL), (2, 'longer than it may', NULL)"
    first = take(postgres, "again", rows)
    assert take(postgres, "again", rows) == first != []
    assert found(postgres, "again") == ["1|a"]
    assert take(postgres, "again", "(3, 'c', NULL)", epoch=1) == []


def test_by_key_a_row_that_is_refused_leaves_the_one_before(postgres: Postgres) -> None:
    postgres.sql("CREATE TABLE keyed (id integer PRIMARY KEY, name varchar(5))")
    rows = "(1, 'a', NULL), (1, 'longer than it may', NULL), (2, 'b', NULL), (2, NULL, NULL), (3, 'c', NULL)"
    (refused,) = take(postgres, "keyed", rows, keys=("id",))
    assert refused.startswith("t|1|2|value too long")
    assert found(postgres, "keyed") == ["1|a", "3|c"]


def test_where_none_is_tolerated_the_first_one_is_named_and_nothing_is_taken(postgres: Postgres) -> None:
    postgres.sql("CREATE TABLE strict (id integer NOT NULL, name varchar(5))")
    rows = "(1, 'a', NULL), (NULL, 'b', NULL), (3, 'longer than it may', NULL)"
    with pytest.raises(PostgresFailed, match="the record of t-1 at offset 2: target: null value in column"):
        take(postgres, "strict", rows, is_tolerant=False)
    assert found(postgres, "strict") == []


def test_a_row_that_a_trigger_refuses_is_noted_with_its_words(postgres: Postgres) -> None:
    postgres.sql(
        "CREATE TABLE watched (id integer, name varchar(5)); CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql "
        "AS $$ BEGIN IF NEW.id = 2 THEN RAISE EXCEPTION 'not two'; END IF; RETURN NEW; END $$; "
        "CREATE TRIGGER no BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION no()"
    )
    assert take(postgres, "watched", "(1, 'a', NULL), (2, 'b', NULL)") == ["t|1|2|not two"]
    assert found(postgres, "watched") == ["1|a"]


def test_a_table_that_is_not_there_is_no_rows_fault(postgres: Postgres) -> None:
    with pytest.raises(PostgresFailed, match='relation "nowhere" does not exist'):
        take(postgres, "nowhere", "(1, 'a', NULL)")


def test_a_type_of_a_column_has_no_bound_that_would_cut_a_text(postgres: Postgres) -> None:
    from pybroker.connectors.kinds.jdbc_sink import columns_query

    postgres.sql("CREATE DOMAIN short AS varchar(5)")
    postgres.sql("CREATE TABLE bounded (a varchar(5), b char(5), c short, d bit(3), e numeric(4, 2), f timestamptz(3))")
    assert postgres.sql(columns_query("bounded")) == [
        *("a|character varying", "b|bpchar", "c|character varying"),
        *('d|"bit"', "e|numeric", "f|timestamp with time zone"),
    ]

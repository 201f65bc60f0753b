"""Standing queries over tables, in the test driver: rows that change, go and come again. Starts a JVM."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from pybroker.sql.parsing.queries import TableReference
from pybroker.sql.parsing.statements import CreateAs, statements
from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.standing.spark_plans import spark_plan
from pybroker.sql.standing.standing_plans import WrittenValue

pytestmark = pytest.mark.jvm(needs="spark")

ACCOUNTS = (Column("city", "VARCHAR", "city"), Column("amount", "BIGINT", "amount"), Column("rate", "DOUBLE", "rate"))
CITIES = (Column("name", "VARCHAR", "name", is_key=True), Column("country", "VARCHAR", "country"))
NUMBERED = (Column("number", "BIGINT", "number", is_key=True), Column("country", "VARCHAR", "country"))
TAGGED = (Column("tags", "VARCHAR[]", "tags"), Column("n", "BIGINT", "n"))
BOTH = "SELECT a.amount, b.amount AS other FROM accounts a"


def relation_of(reference: TableReference) -> Relation:
    columns = {"cities": CITIES, "numbered": NUMBERED, "tagged": TAGGED}.get(reference.name, ACCOUNTS)
    return Relation(reference.name, reference.name, Format.JSON, columns, kind="TABLE")


def job_of(text: str, value: WrittenValue | None = None) -> Any:
    from pybroker.sql.standing.standing_jobs import standing_job

    (found,) = statements(text)
    assert isinstance(found, CreateAs)
    plan = spark_plan(found.name, found.kind, found.select, relation_of)
    return standing_job(replace(plan, value=value or plan.value), found.name)


def row(key: str | None, **fields: Any) -> Any:
    """A record of a table; without fields a deletion."""
    from pybroker.pipeline.testing import Record

    return Record(key, json.dumps(fields) if fields else None)


def table(driver: Any, topic: str = "t") -> dict[str, Any]:
    """All that was written, as a table: each key's last row."""
    found = {key: None if value is None else json.loads(value) for key, value in driver.read_pairs(topic, bytes.decode)}
    return {key: value for key, value in found.items() if value is not None}


def written(driver: Any, topic: str = "t") -> list[tuple[str, Any]]:
    pairs = driver.read_pairs(topic, bytes.decode)
    return sorted((key, None if value is None else json.loads(value)) for key, value in pairs)


def test_row_is_deleted_when_its_condition_holds_no_longer(drive: Any) -> None:
    driver = drive(job_of("CREATE TABLE t AS SELECT city, 100 / amount AS part FROM accounts WHERE amount <> 0"))
    driver.pipe("accounts", row("ada", city="Bonn", amount=5), row("bob", city="Ulm", amount=0), row(None, amount=1))
    assert written(driver) == [("ada", {"city": "Bonn", "part": 20.0}), ("bob", None)]
    driver.pipe("accounts", row("ada", amount=0), row("bob", amount=4))
    assert written(driver) == [("ada", None), ("bob", {"city": None, "part": 25.0})]
    driver.restart()
    driver.pipe("accounts", row("bob"))
    assert written(driver) == [("bob", None)]


def test_row_of_avro_that_goes_is_a_record_without_a_value(drive: Any) -> None:
    """Though the schema has a field that may not be null."""
    schema = {"type": "record", "name": "T", "fields": [{"name": "amount", "type": "long"}]}
    value = WrittenValue(Format.AVRO, {"schema": json.dumps(schema)})
    driver = drive(job_of("CREATE TABLE t AS SELECT amount FROM accounts WHERE amount > 1", value))
    driver.pipe("accounts", row("ada", amount=5), row("bob", amount=0), row("eve"))
    assert dict(driver.read_pairs("t", bytes)) == {"ada": b"\x0a", "bob": None, "eve": None}


def test_record_whose_key_is_not_of_its_column_s_type_is_left_out(drive: Any) -> None:
    driver = drive(job_of("CREATE TABLE t AS SELECT number + 1 AS next, country FROM numbered"))
    driver.pipe("numbered", row("7", country="DE"), row("seven", country="FR"))
    assert written(driver) == [("7", {"next": 8, "country": "DE"})]


def test_quotient_by_zero_is_null_and_ends_no_query(drive: Any) -> None:
    driver = drive(job_of("CREATE TABLE t AS SELECT 10 / amount AS q, amount / (amount - 5) AS r FROM accounts"))
    driver.pipe("accounts", row("a", amount=0), row("b", amount=5))
    assert table(driver) == {"a": {"q": None, "r": 0.0}, "b": {"q": 2.0, "r": None}}


def test_item_of_a_list_is_null_where_there_is_none(drive: Any) -> None:
    items = ", ".join(f"tags[{place}] AS i{number}" for number, place in enumerate(("1", "-1", "0", "9", "n::INT")))
    driver = drive(job_of(f"CREATE TABLE t AS SELECT {items} FROM tagged"))
    driver.pipe("tagged", row("a", tags=["x", "y"], n=2), row("b", tags=[], n=0))
    assert table(driver) == {
        "a": {"i0": "x", "i1": "y", "i2": None, "i3": None, "i4": "y"},
        "b": dict.fromkeys(("i0", "i1", "i2", "i3", "i4")),
    }


def test_table_that_has_no_row_has_no_key_either(drive: Any) -> None:
    text = "SELECT a.amount, c.amount AS third FROM accounts a LEFT JOIN others b ON a._key = b._key "
    driver = drive(job_of(f"CREATE TABLE t AS {text} LEFT JOIN more c ON b._key = c._key"))
    driver.pipe("accounts", row("ada", amount=1), row("bob", amount=2))
    driver.pipe("more", row("ada", amount=10), row("bob", amount=20))
    driver.pipe("others", row("bob", amount=0))
    assert table(driver) == {"ada": {"amount": 1, "third": None}, "bob": {"amount": 2, "third": 20}}


@pytest.mark.parametrize(
    ("join", "rows"),
    [
        ("JOIN", {"ada": (1, 10)}),
        ("LEFT JOIN", {"ada": (1, 10), "bob": (2, None)}),
        ("RIGHT JOIN", {"ada": (1, 10), "eve": (None, 30)}),
        ("FULL JOIN", {"ada": (1, 10), "bob": (2, None), "eve": (None, 30)}),
    ],
)
def test_tables_are_joined_by_their_keys_as_both_change(drive: Any, join: str, rows: dict[str, Any]) -> None:
    driver = drive(job_of(f"CREATE TABLE t AS {BOTH} {join} others b ON a._key = b._key"))
    driver.pipe("accounts", row("ada", amount=0), row("bob", amount=2), row("eve", amount=3))
    driver.pipe("others", row("ada", amount=10), row("bob", amount=20), row("eve", amount=30))
    driver.pipe_all({"accounts": [row("ada", amount=1), row("eve")], "others": [row("bob")]})
    found = {key: (each["amount"], each["other"]) for key, each in table(driver).items()}
    assert found == rows


def test_joins_follow_each_other_and_a_condition_sees_all_sides(drive: Any) -> None:
    driver = drive(
        job_of(
            f"CREATE TABLE t AS {BOTH} JOIN others b ON a._key = b._key LEFT JOIN cities c ON a.city = c.name "
            "WHERE coalesce(c.country, '') <> 'FR'"
        )
    )
    driver.pipe("cities", row("Bonn", country="DE"), row("Lyon", country="FR"))
    driver.pipe("accounts", row("ada", city="Bonn", amount=1), row("bob", city="Lyon", amount=2), row("eve", amount=3))
    driver.pipe("others", *(row(key, amount=10) for key in ("ada", "bob", "eve")))
    assert table(driver) == {"ada": {"amount": 1, "other": 10}, "eve": {"amount": 3, "other": 10}}
    driver.pipe_all({"cities": [row("Bonn", country="FR")], "accounts": [row("bob", city="Bern", amount=2)]})
    assert written(driver) == [("ada", None), ("bob", {"amount": 2, "other": 10})]


def test_row_that_names_another_key_moves_to_its_row(drive: Any) -> None:
    driver = drive(
        job_of("CREATE TABLE t AS SELECT a.amount, c.country FROM accounts a JOIN cities c ON a.city = c.name")
    )
    driver.pipe("cities", row("Bonn", country="DE"), row("Lyon", country="FR"))
    driver.pipe("accounts", row("ada", city="Bonn", amount=1), row("bob", city="Oslo", amount=2))
    assert table(driver) == {"ada": {"amount": 1, "country": "DE"}}
    driver.pipe("accounts", row("ada", city="Lyon", amount=1))
    assert table(driver) == {"ada": {"amount": 1, "country": "FR"}}
    driver.pipe("cities", row("Lyon"), row("Oslo", country="NO"))
    assert written(driver) == [("ada", None), ("bob", {"amount": 2, "country": "NO"})]


def test_key_of_another_type_is_refused(drive: Any) -> None:
    with pytest.raises(ValueError, match=r"ON a.amount = … compares bigint with a key, which is STRING: CAST it"):
        drive(job_of("CREATE TABLE t AS SELECT a.rate FROM accounts a JOIN cities c ON a.amount = c.name"))


GROUPED = (
    "CREATE TABLE t AS SELECT city, count(*) AS n, count(rate) AS rates, sum(amount) AS total, sum(rate) AS sum_rate, "
    "avg(amount) AS mean, min(amount) AS least, max(amount) AS most, count(DISTINCT amount) AS different, "
    "array_sort(collect_list(amount)) AS amounts FROM accounts WHERE amount >= 0 GROUP BY city HAVING n < 6"
)


def grouped(accounts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What GROUPED says of the accounts that there are."""
    cities: dict[str, list[dict[str, Any]]] = {}
    for each in accounts.values():
        if each["city"] is not None and each["amount"] >= 0:
            cities.setdefault(each["city"], []).append(each)
    found = {}
    for city, members in cities.items():
        amounts = sorted(each["amount"] for each in members)
        rates = [each["rate"] for each in members if each["rate"] is not None]
        if len(members) < 6:
            found[city] = {
                **{"city": city, "n": len(members), "rates": len(rates), "total": sum(amounts)},
                **{"sum_rate": sum(rates) if rates else None, "mean": sum(amounts) / len(members)},
                **{"least": amounts[0], "most": amounts[-1], "different": len(set(amounts)), "amounts": amounts},
            }
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_groups_are_those_of_the_rows_that_there_are(drive: Any, seed: int) -> None:
    """However rows change, move and go, in one micro-batch or in several, and over a restart."""
    chance = random.Random(seed)
    driver = drive(job_of(GROUPED))
    accounts: dict[str, dict[str, Any]] = {}
    seen: dict[str, Any] = {}
    for batch in range(5):
        records = []
        for _ in range(chance.randrange(1, 40)):
            name = f"a{chance.randrange(12)}"
            if chance.random() < 0.2:
                accounts.pop(name, None)
                records.append(row(name))
                continue
            fields = {
                "city": chance.choice(["Bonn", "Lyon", None]),
                "amount": chance.randrange(-2, 9),
                "rate": chance.choice([None, 0.5, 0.25, -1.75]),
            }
            accounts[name] = fields
            records.append(row(name, **fields))
        if batch == 2:
            driver.restart()
        driver.pipe("accounts", *records)
        for key, value in written(driver):
            seen[key] = value
        assert {key: value for key, value in seen.items() if value is not None} == grouped(accounts)


def test_group_of_several_columns_has_a_key_of_all(drive: Any) -> None:
    driver = drive(job_of("CREATE TABLE t AS SELECT city, amount, count(*) AS n FROM accounts GROUP BY city, amount"))
    driver.pipe("accounts", row("ada", city="Bonn", amount=1), row("bob", amount=1))
    keys = {json.dumps(json.loads(key)) for key in table(driver)}
    assert keys == {'{"city": "Bonn", "amount": 1}', '{"city": null, "amount": 1}'}
    driver.pipe("accounts", row("bob"))
    assert written(driver) == [('{"city":null,"amount":1}', None)]


def test_group_over_a_join_follows_both_tables(drive: Any) -> None:
    driver = drive(
        job_of(
            "CREATE TABLE t AS SELECT c.country, sum(a.amount) AS total FROM accounts a "
            "JOIN cities c ON a.city = c._key GROUP BY c.country"
        )
    )
    driver.pipe("cities", row("Bonn", country="DE"), row("Ulm", country="DE"), row("Lyon", country="FR"))
    accounts = [row("ada", city="Bonn", amount=1), row("bob", city="Ulm", amount=2), row("eve", city="Lyon", amount=4)]
    driver.pipe("accounts", *accounts)
    assert table(driver) == {"DE": {"country": "DE", "total": 3}, "FR": {"country": "FR", "total": 4}}
    driver.pipe("cities", row("Ulm", country="FR"), row("Lyon"))
    assert table(driver) == {"DE": {"country": "DE", "total": 1}, "FR": {"country": "FR", "total": 2}}


def test_sum_of_what_is_no_number_names_it(drive: Any) -> None:
    with pytest.raises(ValueError, match="a sum of amount > 1 is none of numbers, but of boolean"):
        drive(job_of("CREATE TABLE t AS SELECT city, avg(amount > 1) AS x FROM accounts GROUP BY city"))


def test_sum_beyond_its_type_ends_the_query(drive: Any) -> None:
    driver = drive(job_of("CREATE TABLE t AS SELECT city, sum(amount) AS total FROM accounts GROUP BY city"))
    most = 2**63 - 1
    with pytest.raises(Exception, match="the sum of amount is beyond bigint"):
        driver.pipe("accounts", row("ada", city="Bonn", amount=most), row("bob", city="Bonn", amount=1))

"""Groups of a table's rows: sums that what is taken out leaves exact, and what cannot be summed. Starts a JVM."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")


def total(found: Any, kind: Any) -> Any:
    """Of an `ExactSum`, after it was kept."""
    from pybroker.pipeline.streams.regrouping import ExactSum

    return json.loads(ExactSum(json.loads(json.dumps(found.kept()))).total("a", kind))


def test_what_is_taken_out_leaves_what_was_there_before() -> None:
    from pyspark.sql.types import DoubleType

    from pybroker.pipeline.streams.regrouping import ExactSum

    chance = random.Random(7)
    numbers = [repr(chance.uniform(-1, 1) * 10.0 ** chance.randrange(-300, 300)) for _ in range(200)]
    found = ExactSum()
    found.put("0.1", 1)
    for number in numbers:
        found.put(number, 1)
    for number in sorted(numbers):
        found.put(number, -1)
    assert (found.count, total(found, DoubleType())) == (1, 0.1)
    found.put("0.1", -1)
    assert total(found, DoubleType()) is None


def test_numbers_that_are_not_finite_can_be_taken_out_too() -> None:
    from pyspark.sql.types import DoubleType

    from pybroker.pipeline.streams.regrouping import ExactSum

    found = ExactSum()
    for text in ("1.5", "Infinity", "NaN"):
        found.put(text, 1)
    assert math.isnan(total(found, DoubleType()))
    found.put("NaN", -1)
    assert total(found, DoubleType()) == math.inf
    found.put("Infinity", -1)
    assert total(found, DoubleType()) == 1.5


@pytest.mark.parametrize(
    ("texts", "kind", "result"),
    [
        (("9223372036854775806", "1"), "bigint", 2**63 - 1),
        (("9223372036854775807", "1"), "bigint", None),
        (("0.10", "0.20", "-0.05"), "decimal(12,2)", "0.25"),
        (("-0.01",), "decimal(12,2)", "-0.01"),
        (("9" * 38, "1"), "decimal(38,0)", None),
        (("1E308", "1E308"), "double", math.inf),
    ],
)
def test_sum_has_its_type_or_says_that_it_is_beyond(texts: tuple[str, ...], kind: str, result: Any) -> None:
    from pyspark.sql.types import DecimalType, DoubleType, LongType

    from pybroker.pipeline.streams.regrouping import ExactSum

    kinds = {"bigint": LongType(), "double": DoubleType()}
    kinds |= {"decimal(12,2)": DecimalType(12, 2), "decimal(38,0)": DecimalType(38, 0)}
    found = ExactSum()
    for text in texts:
        found.put(text, 1)
    if result is None:
        with pytest.raises(OverflowError, match=f"the sum of a is beyond {kind[:6]}"):
            total(found, kinds[kind])
    else:
        assert total(found, kinds[kind]) == result


def people(topics: Any) -> Any:
    """A table of JSON objects."""
    value = "from_json(cast(value as string), 'city string, born date, paid decimal(9,2)') value"
    return topics.stream("people").selectExpr("cast(key as string) key", value, "timestamp", "partition", "offset")


def person(name: str, city: str | None = None, born: str = "2000-01-01", paid: str = "0.10") -> Any:
    from pybroker.pipeline.testing import Record

    value = None if city is None else json.dumps({"city": city, "born": born, "paid": float(paid)})
    return Record(name, value)


def test_group_has_its_count_sums_and_lists_until_its_last_row_goes(drive: Any) -> None:
    from pybroker.pipeline import regroup

    def job(topics: Any) -> Any:
        found = regroup(people(topics), "value.city", sums={"paid": "value.paid"}, lists={"born": "value.born"})
        return {"cities": found.selectExpr("key", "to_json(value) value")}

    driver = drive(job)
    driver.pipe("people", person("ann", "Oslo"), person("bob", "Oslo", "1990-02-03", "0.20"), person("eve"))
    ((key, value),) = driver.read_pairs("cities", bytes.decode)
    found = json.loads(value, parse_float=Decimal)
    assert (key, found["rows"], found["paid"]) == ("Oslo", 2, {"count": 2, "sum": Decimal("0.30")})
    assert sorted(found["born"]) == ["1990-02-03", "2000-01-01"]
    driver.pipe("people", person("ann", "Oslo"))
    assert driver.read_pairs("cities", bytes.decode) == []
    driver.pipe("people", person("ann", "Rome"), person("bob"))
    pairs = dict(driver.read_pairs("cities", bytes.decode))
    assert pairs["Oslo"] is None
    assert json.loads(pairs["Rome"])["rows"] == 1


def test_both_zeros_are_one_group(drive: Any) -> None:
    from pybroker.pipeline import regroup
    from pybroker.pipeline.testing import Record

    def job(topics: Any) -> Any:
        number = "cast(cast(value as string) as double)"
        found = topics.stream("n").selectExpr("cast(key as string) key", f"{number} value", "timestamp", "offset")
        groups = regroup(found, "struct(value as number)")
        return {"t": groups.selectExpr("cast(key.number as string) key", "cast(value.rows as string) value")}

    driver = drive(job)
    driver.pipe("n", Record("a", "0.0"), Record("b", "-0.0"))
    assert driver.read_pairs("t", bytes.decode) == [("0.0", "2")]
    driver.pipe("n", Record("a", "-0.0"))
    driver.pipe("n", Record("a", "1.5"), Record("b", None))
    assert sorted(driver.read_pairs("t", bytes.decode)) == [("0.0", None), ("1.5", "1")]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sums": {"born": "value.born"}}, "a sum of born is none of numbers, but of date"),
        ({"sums": {"a": "value.paid"}, "lists": {"A": "value.born"}}, "are the same"),
        ({"sums": {"Rows": "value.paid"}}, "are the same"),
    ],
)
def test_what_cannot_be_meant_is_refused(drive: Any, given: Any, why: str) -> None:
    from pybroker.pipeline import regroup

    with pytest.raises(ValueError, match=why):
        drive(lambda topics: {"cities": regroup(people(topics), "value.city", **given)})

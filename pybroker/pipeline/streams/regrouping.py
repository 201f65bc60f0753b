"""Groups the rows of a table that changes: how many rows each group has, sums of them, and lists of their values.

Two states in a row.  The first is the table's own (`tables.changes`), which knows what a row was before.  The second is
keyed by the group: a former row is taken out of its group, and the new one is put into its own.

Invariants: sums are kept as fractions, so that what is taken out leaves nothing behind, also of floating-point numbers.
A group has one row per micro-batch at most, and none where its result is as before (KIP-557).

Counterpart: KTable.groupBy, and KGroupedTable's count, reduce and aggregate.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FractionalType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pybroker.pipeline.streams.columns import as_text, check_table, from_text
from pybroker.pipeline.streams.tables import changes

# What Spark's own sums add to a decimal's digits.
_MORE_DIGITS = 10
_DIGITS_MAX = 38
_ROWS = "rows"
# What `as_text` puts around a value.
_BEFORE, _BEHIND = len('{"value":'), len("}")
_NO_NUMBERS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def regroup(
    table: DataFrame,
    by: Column | str,
    *,
    sums: Mapping[str, Column | str] | None = None,
    lists: Mapping[str, Column | str] | None = None,
    told: Mapping[str, str] | None = None,
) -> DataFrame:
    """The table of ``key`` (what ``by`` is), ``value`` (null for a group that has no row any more) and ``timestamp``.

    ``by`` and the expressions of ``sums`` and ``lists`` are made of the table's columns, such as ``value.city``.  A row
    where ``by`` is null is in no group.  The value has ``rows``, how many rows the group has.  For each name of
    ``sums`` it has a struct of ``count`` and ``sum`` of what is not null; without any the sum is null.  For each name
    of ``lists`` it has the values that are not null.  A list is kept whole, for each group.  ``told`` is what errors
    call them, where that is another name.

    Raises ValueError for a sum of what is no number, and for a name that two of them have.  A sum that is beyond its
    type ends the query.
    """
    check_table(table, "the table")
    numbers, values = _columns(sums), _columns(lists)
    group = _without_negative_zeros(_column(by), table.select(_column(by).alias("by")).schema["by"].dataType)
    names = [_ROWS, *numbers, *values]
    if len({name.lower() for name in names}) < len(names):
        raise ValueError(f"names of {', '.join(names)} are the same")
    kinds = table.select(group.alias("by"), *(each.alias(name) for name, each in {**numbers, **values}.items())).schema
    called = {name: (told or {}).get(name, name) for name in names}
    totals = {name: _sum_type(called[name], kinds[name].dataType) for name in numbers}
    entry = F.struct(
        group.alias("by"),
        _texts([each.cast("string") for each in numbers.values()]).alias("numbers"),
        _texts([as_text(each, kinds[name].dataType, called[name]) for name, each in values.items()]).alias("texts"),
    )
    kept = [name for name in ("partition", "offset") if name in table.columns]
    entries = table.select(
        "key", F.when(F.col("value").isNotNull() & group.isNotNull(), entry).alias("value"), "timestamp", *kept
    )
    by_name = "" if isinstance(kinds["by"].dataType, StructType) else "by"
    parted = _moves(entries).select(
        as_text(F.col("entry.by"), kinds["by"].dataType, by_name).alias("key"),
        "sign",
        F.unix_micros("timestamp").alias("at"),
        F.to_json("entry.numbers").alias("numbers"),
        F.to_json("entry.texts").alias("texts"),
    )
    found = parted.groupBy("key").transformWithState(_Groups(totals, list(values), called), _RESULT, "append", "none")
    result = _result_type(totals, {name: kinds[name].dataType for name in values})
    return found.select(
        from_text(F.col("key"), kinds["by"].dataType).alias("key"),
        from_text(F.col("text"), result).alias("value"),
        F.timestamp_micros("at").alias("timestamp"),
    )


def _moves(entries: DataFrame) -> DataFrame:
    """What leaves a group (``sign`` is -1) and what enters one: ``entry``, ``sign``, ``timestamp``."""
    sides = [F.struct(F.col(side).alias("entry"), F.lit(sign).alias("sign")) for side, sign in _SIGNS.items()]
    found = changes(entries).where("not (before <=> after)")
    return found.select(F.inline(F.array(*sides)), "timestamp").where("entry is not null")


def _result_type(totals: Mapping[str, DataType], lists: Mapping[str, DataType]) -> StructType:
    sums = {
        name: StructType([StructField("count", LongType()), StructField("sum", kind)]) for name, kind in totals.items()
    }
    kinds = {_ROWS: LongType(), **sums, **{name: ArrayType(kind) for name, kind in lists.items()}}
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


_SIGNS = {"before": -1, "after": 1}
_RESULT = StructType(
    [StructField("key", StringType()), StructField("text", StringType()), StructField("at", LongType())]
)


def _column(expression: Column | str) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression


def _columns(expressions: Mapping[str, Column | str] | None) -> dict[str, Column]:
    return {name: _column(each) for name, each in (expressions or {}).items()}


def _without_negative_zeros(value: Column, kind: DataType) -> Column:
    """Both zeros are one group, and have two texts."""
    if isinstance(kind, FractionalType) and not isinstance(kind, DecimalType):
        return F.when(value == 0, F.lit(0).cast(kind)).otherwise(value)
    if isinstance(kind, StructType):
        fields = (
            _without_negative_zeros(value.getField(each.name), each.dataType).alias(each.name) for each in kind.fields
        )
        return F.when(value.isNotNull(), F.struct(*fields))
    return value


def _texts(columns: Sequence[Column]) -> Column:
    return F.array(*columns).cast("array<string>")


def _sum_type(name: str, kind: DataType) -> DataType:
    """The type of a sum, as Spark's own have it."""
    if isinstance(kind, IntegralType):
        return LongType()
    if isinstance(kind, DecimalType):
        return DecimalType(min(_DIGITS_MAX, kind.precision + _MORE_DIGITS), kind.scale)
    if isinstance(kind, FractionalType):
        return DoubleType()
    raise ValueError(f"a sum of {name} is none of numbers, but of {kind.simpleString()}")


class ExactSum:
    """A sum from which what was put in can be taken out, and how many numbers it is of."""

    def __init__(self, kept: Sequence[Any] = (0, "0", {})) -> None:
        """``kept`` is what `kept` has given."""
        self.count = int(kept[0])
        self._exact = Fraction(kept[1])
        # How many there are of what is no finite number.
        self._others: dict[str, int] = dict(kept[2])

    def put(self, text: str, sign: int) -> None:
        """Put a number in, or take it out where ``sign`` is -1."""
        self.count += sign
        if text in _NO_NUMBERS:
            self._others[text] = self._others.get(text, 0) + sign
        else:
            self._exact += sign * Fraction(text)

    def kept(self) -> list[Any]:
        """All of it, as JSON has it."""
        return [self.count, str(self._exact), {text: count for text, count in self._others.items() if count}]

    def total(self, name: str, kind: DataType) -> str:
        """The sum as JSON's text; raises OverflowError for one beyond the type."""
        if not self.count:
            return "null"
        if isinstance(kind, DoubleType):
            return json.dumps(self._as_float())
        scale = kind.scale if isinstance(kind, DecimalType) else 0
        digits = int(self._exact * 10**scale)
        most = 10**kind.precision if isinstance(kind, DecimalType) else 2**63
        if not -most <= digits < most:
            raise OverflowError(f"the sum of {name} is beyond {kind.simpleString()}")
        return str(digits) if not scale else f'"{Decimal((int(digits < 0), _digits(digits), -scale)):f}"'

    def _as_float(self) -> float:
        others = [_NO_NUMBERS[text] for text, count in self._others.items() if count]
        if others:
            return sum(others)
        try:
            return float(self._exact)
        except OverflowError:
            return inf if self._exact > 0 else -inf


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


class _Groups(StatefulProcessor):
    """Of a group: how many rows it has, its sums and its lists."""

    def __init__(self, totals: Mapping[str, DataType], lists: Sequence[str], called: Mapping[str, str]) -> None:
        """``called`` is what errors call each of them."""
        self._totals = totals
        self._lists = lists
        self._called = called

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("group", "kept string")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        known = self._state.get()
        count, kept_sums, lists = json.loads(known[0]) if known else (0, [], [[] for _ in self._lists])
        sums = [ExactSum(each) for each in kept_sums] or [ExactSum() for _ in self._totals]
        before = self._result(count, sums, lists) if count else None
        at = 0
        # Spark gives the rows in any order, and a row may come and go in one micro-batch.
        for row in sorted(rows, key=lambda each: -each.sign):
            count += row.sign
            at = max(at, row.at)
            for found, number in zip(sums, json.loads(row.numbers), strict=True):
                if number is not None:
                    found.put(number, row.sign)
            for values, text in zip(lists, json.loads(row.texts), strict=True):
                if text is not None:
                    (values.append if row.sign > 0 else values.remove)(text[_BEFORE:-_BEHIND])
        after = self._result(count, sums, lists) if count else None
        if after != before:
            yield Row(key=key[0], text=after, at=at)
        if count:
            self._state.update((json.dumps([count, [each.kept() for each in sums], lists]),))
        elif known:
            self._state.clear()

    def close(self) -> None:
        """Nothing is open."""

    def _result(self, count: int, sums: list[ExactSum], lists: list[list[str]]) -> str:
        """What `from_text` reads; the values of lists are JSON already."""
        fields = [f'"{_ROWS}":{count}']
        for (name, kind), found in zip(self._totals.items(), sums, strict=True):
            total = found.total(self._called[name], kind)
            fields.append(f'{json.dumps(name)}:{{"count":{found.count},"sum":{total}}}')
        fields += [f"{json.dumps(name)}:[{','.join(each)}]" for name, each in zip(self._lists, lists, strict=True)]
        return f'{{"value":{{{",".join(fields)}}}}}'

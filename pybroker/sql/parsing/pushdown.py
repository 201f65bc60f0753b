"""What of a query's WHERE may stay unfetched: partitions, offsets and times of a topic's records.

Owns the reading of conditions.  What is pushed down is still asked of each row, so that a condition which is not
understood costs time and changes no answer.  Pure, but for the values of expressions, which DuckDB computes
(``Evaluate``).

Only what AND joins at the top of a SELECT's WHERE counts: there a row that fails it cannot be in the answer, whichever
way the topic is joined.  A join by what stands next, and a sample, are the exception: of them other rows come out where
some are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from sqlglot import exp

from pybroker.sql.parsing.queries import tables_of

# The value of an expression without columns: an int, or a datetime; None where it has none of both.
Evaluate: TypeAlias = Callable[[exp.Expr, str], int | datetime | None]

_MIRRORED: Final = {exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE, exp.EQ: exp.EQ}
_PUSHED: Final = ("_partition", "_offset", "_timestamp")
_KINDS: Final = {"_partition": "BIGINT", "_offset": "BIGINT", "_timestamp": "TIMESTAMP"}
# Joins whose rows depend on which other rows there are.
_BY_ROWS: Final = ("ASOF", "POSITIONAL")
_MOVING: Final = ("now", "current_timestamp", "current_date", "today", "get_current_timestamp", "random")


@dataclass(frozen=True, slots=True)
class Restriction:
    """Which records can be in the answer.  Ends are behind the last one; times are ms since 1970.  None: any."""

    partitions: frozenset[int] | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    first_ms: int | None = None
    end_ms: int | None = None

    def told(self) -> list[str]:
        """In words, as EXPLAIN shows it."""
        found = []
        if self.partitions is not None:
            found.append(f"_partition in {sorted(self.partitions)}")
        for name, first, end in (
            ("_offset", self.first_offset, self.end_offset),
            ("_timestamp", _shown(self.first_ms), _shown(self.end_ms)),
        ):
            if first is not None:
                found.append(f"{name} >= {first}")
            if end is not None:
                found.append(f"{name} < {end}")
        return found


def _shown(at_ms: int | None) -> str | None:
    return None if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:23]


def restriction(tree: exp.Expr, table: exp.Table, alias: str, evaluate: Evaluate) -> Restriction:
    """What the WHERE of the SELECT that names a topic says of its records."""
    select = table.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    if select is None or where is None or not any(each is table for each in tables_of(select)):
        return Restriction()
    if any(each.method in _BY_ROWS for each in select.args.get("joins") or ()) or table.find(exp.TableSample):
        return Restriction()
    is_alone = sum(1 for _ in tables_of(select)) == 1 and not select.args.get("joins")
    found = Restriction()
    for condition in _conjuncts(where.this):
        for column, operator, value in _comparisons(condition):
            name = column.name.lower()
            is_own = column.table.lower() == alias.lower() if column.table else is_alone
            if is_own and name in _PUSHED:
                found = _narrowed(found, name, operator, value, evaluate)
    return found


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    else:
        yield condition


def _comparisons(condition: exp.Expr) -> Iterator[tuple[exp.Column, type[exp.Expr], list[exp.Expr]]]:
    """A column, how it is compared, and with what: expressions that have no column in them."""
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        yield from _compared(condition.this, exp.GTE, [condition.args["low"]])
        yield from _compared(condition.this, exp.LTE, [condition.args["high"]])
    elif isinstance(condition, exp.In) and condition.expressions and not condition.args.get("query"):
        yield from _compared(condition.this, exp.In, condition.expressions)
    elif type(condition) in _MIRRORED and isinstance(condition, exp.Binary):
        yield from _compared(condition.left, type(condition), [condition.right])
        yield from _compared(condition.right, _MIRRORED[type(condition)], [condition.left])


def _compared(
    column: exp.Expr, operator: type[exp.Expr], values: list[exp.Expr]
) -> Iterator[tuple[exp.Column, type[exp.Expr], list[exp.Expr]]]:
    if isinstance(column, exp.Column) and not any(each.find(exp.Column, exp.Query) for each in values):
        yield column, operator, values


def _narrowed(
    found: Restriction, name: str, operator: type[exp.Expr], values: list[exp.Expr], evaluate: Evaluate
) -> Restriction:
    known = [evaluate(each, _KINDS[name]) for each in values]
    if any(each is None for each in known):
        return found
    if name == "_timestamp":
        return _narrowed_in_time(found, operator, values, [each for each in known if isinstance(each, datetime)])
    numbers = [each for each in known if isinstance(each, int)]
    low, high = _range(operator, numbers)
    if name == "_offset":
        first, end = _within((found.first_offset, found.end_offset), (low, high))
        return replace(found, first_offset=first, end_offset=end)
    if operator in (exp.EQ, exp.In):
        chosen = frozenset(numbers)
        return replace(found, partitions=chosen if found.partitions is None else found.partitions & chosen)
    return found


def _narrowed_in_time(
    found: Restriction, operator: type[exp.Expr], values: list[exp.Expr], known: list[datetime]
) -> Restriction:
    if not known:
        return found
    # Rounded outwards: a record's time has milliseconds, a literal may have microseconds.
    micros = [(each.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1) for each in known]
    low, high = _range(operator, micros)
    # Before 1970 there are few records, and a negative number asks a broker for other things than a time.
    low, high = (None if each is None or each < 0 else each for each in (low, high))
    first = None if low is None else low // 1_000
    # What moves on until the query runs bounds nothing from above.
    moves = any(_moves(each) for each in values)
    end = None if high is None or moves else -(-high // 1_000)
    first, end = _within((found.first_ms, found.end_ms), (first, end))
    return replace(found, first_ms=first, end_ms=end)


def _moves(value: exp.Expr) -> bool:
    text = value.sql(dialect="duckdb").lower()
    return any(name in text for name in _MOVING)


def _range(operator: type[exp.Expr], numbers: list[int]) -> tuple[int | None, int | None]:
    """The first one, and that behind the last."""
    low, high = min(numbers), max(numbers)
    if operator in (exp.EQ, exp.In):
        return low, high + 1
    if operator is exp.GTE:
        return low, None
    if operator is exp.GT:
        return low + 1, None
    return None, high + 1 if operator is exp.LTE else high


_Bounds: TypeAlias = tuple[int | None, int | None]


def _within(known: _Bounds, wanted: _Bounds) -> _Bounds:
    """What two ranges have in common, each from its first one to that behind its last; None bounds nothing."""
    firsts = [each for each in (known[0], wanted[0]) if each is not None]
    ends = [each for each in (known[1], wanted[1]) if each is not None]
    return max(firsts, default=None), min(ends, default=None)

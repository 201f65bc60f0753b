"""Joins with tables: a stream's record meets the row that its key has, and two tables are joined as they change.

Spark's SQL has neither, so that the pipeline joins before it is run (``standing_jobs``, ``table_records``).  SQL is
then given rows with a column for each topic, a struct that has the topic's row.  ``orders o`` is the column ``o``, and
``o.id`` its field.

Owns the translation: the sides of ON, names of columns as fields, and the fields that are read.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from pybroker.sql.parsing.queries import left_out_of, named_columns
from pybroker.sql.parsing.spark_text import spark_text
from pybroker.sql.relations.catalog import KEY, PSEUDO_COLUMNS, Column, Relation
from pybroker.sql.sql_errors import SqlError
from pybroker.sql.standing.standing_plans import JoinKind, TableJoin

# The view's rows have these beside those of the topics, while they are joined.
_TAKEN: Final = frozenset({"key", "value", "timestamp", "partition", "offset"})
_KEY: Final = "_key"
_KINDS: Final[dict[str, JoinKind]] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "outer"}
# Types of which equal values have equal texts.
_ALIKE: Final = (
    frozenset({"VARCHAR", "TEXT"}),
    frozenset({"TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}),
)


@dataclass(frozen=True, slots=True)
class Side:
    """A topic of the query, by the name that the query has for it."""

    alias: str
    relation: Relation

    def column(self, name: str) -> Column | None:
        """The column of a name, those of every record included."""
        kind = PSEUDO_COLUMNS.get(name.lower())
        return self.relation.column(name) or (None if kind is None else Column(name.lower(), kind))

    @property
    def key(self) -> Column:
        """What the query calls a table's key: the column that is declared as one, or ``_key``.

        A column of the value counts whose text the key is, as a query has it that GROUP BY gave its key.
        """
        declared = next((each for each in self.relation.columns if each.is_key), None)
        named = self.relation.options.get(KEY)
        found = declared or (None if named is None else self.relation.column(named))
        return found or Column(_KEY, PSEUDO_COLUMNS[_KEY])


@dataclass(frozen=True, slots=True)
class RowKey:
    """Which expressions are the key of the rows that joins by keys give.

    The key of a table that may have no row may be null.  ``whole`` has sets of tables, by their names in lower case: of
    each set one table has a row at least.  So its key is the row's, or the COALESCE of those of a set.
    """

    tables: tuple[Side, ...]
    whole: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, first: Side) -> RowKey:
        """That of the rows of one table."""
        return cls((first,), (_only(first),))

    def joined(self, table: Side, how: JoinKind) -> RowKey:
        """That of the rows of a join by this key."""
        match how:
            case "inner":
                whole: tuple[frozenset[str], ...] = (*self.whole, _only(table))
            case "left":
                whole = self.whole
            case "right":
                whole = (_only(table),)
            case "outer":
                whole = tuple(each | _only(table) for each in self.whole)
        return RowKey((*self.tables, table), whole)

    def column(self, node: exp.Expr) -> Column | None:
        """The column that an expression takes the key from; None where it is another one, or may be null."""
        parts = [node.this, *node.expressions] if isinstance(node, exp.Coalesce) else [node]
        named = {each.alias.lower(): key for part in parts for each in self.tables if (key := key_column(part, each))}
        is_key = len(named) == len(parts) and any(each <= named.keys() for each in self.whole)
        return next(iter(named.values())) if is_key else None


def _only(table: Side) -> frozenset[str]:
    return frozenset({table.alias.lower()})


def qualify(tree: exp.Select, sides: Sequence[Side]) -> None:
    """Have the columns of the tree be fields of the sides' rows, and stars be columns; ``SqlError``."""
    for side in sides:
        if side.alias.lower() in _TAKEN:
            raise SqlError(f"{side.alias} cannot be the name of a topic in a join with a table: AS gives it another")
        if sum(side.alias.lower() == each.alias.lower() for each in sides) > 1:
            raise SqlError(f"two topics of the query are {side.alias}: AS gives one another name")
    _expand_stars(tree, sides)
    for column in list(tree.find_all(exp.Column)):
        _qualify(column, sides)


def take_stream_joins(tree: exp.Select, sides: Sequence[Side]) -> tuple[TableJoin, ...]:
    """Take the joins of a stream with tables out of a qualified tree; ``SqlError`` for what is none by a key."""
    return tuple(_stream_join(join, table, later) for join, table, later in _taken(tree, sides))


def take_table_joins(tree: exp.Select, sides: Sequence[Side]) -> tuple[tuple[TableJoin, ...], RowKey]:
    """Take the joins of tables out of a qualified tree; ``SqlError`` for what is none by a key."""
    joins = []
    row_key = RowKey.of(sides[0])
    for join, table, later in _taken(tree, sides):
        found = _table_join(join, row_key, table, later)
        joins.append(found)
        if not found.key:
            row_key = row_key.joined(table, found.how)
    return tuple(joins), row_key


def _taken(tree: exp.Select, sides: Sequence[Side]) -> Iterator[tuple[exp.Join, Side, Sequence[Side]]]:
    """The joins, each with its table and those that come behind it."""
    found: list[exp.Join] = list(tree.args.get("joins") or ())
    tree.set("joins", None)
    tables = sides[1:]
    for number, (join, table) in enumerate(zip(found, tables, strict=True), 1):
        yield join, table, tables[number:]


def _stream_join(join: exp.Join, table: Side, later: Sequence[Side]) -> TableJoin:
    if _how(join) not in ("inner", "left"):
        raise SqlError("a stream has inner and left joins with a table")
    for of_stream, other in _both_ways(join, table):
        key = key_column(other, table)
        if key is not None and not _names(of_stream, (table, *later)):
            return TableJoin(spark_text(of_stream), key.type, "left" if join.side else "inner")
    raise SqlError(_hint(table))


def _table_join(join: exp.Join, row_key: RowKey, table: Side, later: Sequence[Side]) -> TableJoin:
    """``row_key`` is that of the rows before it."""
    how = _how(join)
    if how is None:
        raise SqlError("tables have inner, left, right and full joins")
    for own, other in _both_ways(join, table):
        key = key_column(other, table)
        if key is None or _names(own, (table, *later)):
            continue
        own_key = row_key.column(own)
        if own_key is not None and _are_alike(own_key.type, key.type):
            return TableJoin("", key.type, how)
        if how not in ("inner", "left"):
            if own_key is None and any(key_column(own, each) is not None for each in row_key.tables):
                told = f"{own.sql(dialect='duckdb')} may be null, and RIGHT and FULL JOIN compare the key of every row"
                raise SqlError(f"{told}: COALESCE has those of several tables")
            raise SqlError("a join by a column that names the other table's key is inner or left")
        return TableJoin(spark_text(own), key.type, "left" if how == "left" else "inner")
    first = row_key.tables[0]
    if any(key_column(own, first) is not None and _names(other, (table,)) for own, other in _both_ways(join, table)):
        raise SqlError(f"FROM names the table whose rows name the other's key: FROM {table.alias} JOIN {first.alias}")
    raise SqlError(_hint(table))


def _how(join: exp.Join) -> JoinKind | None:
    return None if join.kind not in ("", "INNER", "OUTER") or join.method else _KINDS.get(join.side)


def _hint(table: Side) -> str:
    return f"a join with a table is by its key: ON … = {table.alias}.{table.key.name}"


def _both_ways(join: exp.Join, table: Side) -> tuple[tuple[exp.Expr, exp.Expr], ...]:
    """The two sides of ON, which is an equality, in both orders."""
    on = join.args.get("on")
    on = on.unnest() if isinstance(on, exp.Expr) else None
    if not isinstance(on, exp.EQ):
        raise SqlError(_hint(table))
    left, right = on.this.unnest(), on.expression.unnest()
    return (left, right), (right, left)


def _names(node: exp.Expr, sides: Sequence[Side]) -> bool:
    """Whether an expression names a column of one of these."""
    aliases = {each.alias.lower() for each in sides}
    return any(_parts(each)[0].lower() in aliases for each in node.find_all(exp.Column))


def _are_alike(one: str, other: str) -> bool:
    """Whether equal keys of two types have equal texts."""
    return one == other or any(one in each and other in each for each in _ALIKE)


def key_column(node: exp.Expr, table: Side) -> Column | None:
    """The column of a table's key, where a node of a qualified tree names it."""
    if not isinstance(node, exp.Column):
        return None
    alias, *rest = (each.lower() for each in _parts(node))
    is_key = alias == table.alias.lower() and rest in ([table.key.name.lower()], [_KEY])
    return table.column(rest[0]) if is_key else None


def _parts(column: exp.Column) -> list[str]:
    return [each.name for each in column.parts]


def _qualify(column: exp.Column, sides: Sequence[Side]) -> None:
    """Have a column begin with its topic, by the names that topic and column have where they are declared.

    Names that no topic has stay, for DuckDB to judge.
    """
    first, *inner = column.parts
    owners = [side for side in sides if inner and side.alias.lower() == first.name.lower()]
    if not owners:
        owners, inner = [side for side in sides if side.column(first.name) is not None], column.parts
    if len(owners) > 1:
        raise SqlError(f"{first.name} is a column of {' and '.join(each.alias for each in owners)}: say whose")
    if owners:
        own = owners[0].column(inner[0].name)
        name = inner[0].copy() if own is None else exp.to_identifier(own.name)
        column.replace(_field(exp.to_identifier(owners[0].alias), name, *(each.copy() for each in inner[1:])))


def _field(*parts: exp.Expr) -> exp.Expr:
    column = exp.Column(**dict(zip(("this", "table", "db", "catalog"), parts[:4][::-1], strict=False)))
    return exp.Dot.build([column, *parts[4:]]) if parts[4:] else column


def _expand_stars(tree: exp.Select, sides: Sequence[Side]) -> None:
    expressions: list[exp.Expr] = []
    for each in tree.expressions:
        star = each.this if isinstance(each, exp.Column) else each
        if not isinstance(star, exp.Star):
            expressions.append(each)
            continue
        table = each.table.lower() if isinstance(each, exp.Column) else None
        chosen = [side for side in sides if table in (None, side.alias.lower())]
        if not chosen:
            raise SqlError(f"there is no topic {table} in the query")
        left_out = {identifier.name.lower() for identifier in left_out_of(star)}
        expressions += _all_of(chosen, left_out)
    tree.set("expressions", expressions)


def _all_of(sides: Sequence[Side], left_out: set[str]) -> Iterator[exp.Expr]:
    for side in sides:
        for column in side.relation.columns:
            if column.name.lower() not in left_out:
                yield _field(exp.to_identifier(side.alias), exp.to_identifier(column.name))


def read_columns(tree: exp.Select, side: Side) -> list[Column]:
    """The columns of a side that a tree names which is qualified, and still has its joins."""
    names: set[str] = set()
    for column in tree.find_all(exp.Column):
        alias, *rest = (each.lower() for each in _parts(column))
        if alias == side.alias.lower():
            names |= {rest[0]} if rest else {each.name.lower() for each in side.relation.columns}
    # A row has a column at least.
    return named_columns(side.relation, names) or [Column("_offset", PSEUDO_COLUMNS["_offset"])]

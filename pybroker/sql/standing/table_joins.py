"""A stream joined with tables: each record meets the row that its key has, which Spark's SQL has no join for.

The pipeline joins before Spark's SQL is run (``standing_jobs``).  SQL is then given one view with a column for each
topic, a struct that has the topic's row.  ``orders o`` is the column ``o``, and ``o.id`` its field.

Owns the translation: the sides of ON, names of columns as fields, and the fields that are read.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from pybroker.sql.parsing.queries import left_out_of, named_columns
from pybroker.sql.relations.catalog import PSEUDO_COLUMNS, Column, Relation
from pybroker.sql.sql_errors import SqlError
from pybroker.sql.standing.standing_plans import TableJoin

# The view's rows have these beside those of the topics, while they are joined.
_TAKEN: Final = frozenset({"key", "timestamp", "partition", "offset"})
_KEY: Final = "_key"


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
        """What the query calls a table's key: the column that is declared as one, or ``_key``."""
        return next((each for each in self.relation.columns if each.is_key), Column(_KEY, PSEUDO_COLUMNS[_KEY]))


def why_no_table_join(relations: Sequence[Relation], has_within: bool) -> str | None:
    """Why topics, some of them tables, cannot be joined; None where they can."""
    streams = sum(each.kind != "TABLE" for each in relations)
    if len(relations) == 1:
        return (
            "a query over a table is not there. A row that changes has to be taken back from its aggregate, and Spark "
            "has no state that is updated behind the table's own. A question reads the table, and a job regroups it"
        )
    if not streams:
        return "a join of tables is not there; a question joins them"
    if relations[0].kind == "TABLE":
        return "a table joins a stream: FROM names the stream, and JOIN the table"
    if streams > 1:
        return "a join of two streams has no table; make the join of the streams a stream of its own"
    if has_within:
        return "WITHIN is for two streams: a record meets the row that the table has when it comes"
    return None


def take_joins(tree: exp.Select, sides: Sequence[Side]) -> tuple[tuple[TableJoin, ...], list[list[Column]]]:
    """Take the joins out of the tree, whose columns become fields of the sides' rows.

    Gives the joins, and for each side the columns that are read.  Raises ``SqlError`` for what is no join by a key.
    """
    for side in sides:
        if side.alias.lower() in _TAKEN:
            raise SqlError(f"{side.alias} cannot be the name of a topic in a join with a table: AS gives it another")
    _expand_stars(tree, sides)
    for column in list(tree.find_all(exp.Column)):
        _qualify(column, sides)
    found: list[exp.Join] = list(tree.args.get("joins") or ())
    tables = sides[1:]
    joins = tuple(
        _table_join(join, table, tables[number:])
        for number, (join, table) in enumerate(zip(found, tables, strict=True), 1)
    )
    read = [_read(tree, side) for side in sides]
    tree.set("joins", None)
    return joins, read


def _table_join(join: exp.Join, table: Side, later: Sequence[Side]) -> TableJoin:
    hint = f"a join with a table is by its key: ON … = {table.alias}.{table.key.name}"
    if join.side not in ("", "LEFT") or join.kind not in ("", "INNER", "OUTER") or join.method:
        raise SqlError("a stream has inner and left joins with a table")
    on = join.args.get("on")
    on = on.unnest() if isinstance(on, exp.Expr) else None
    if not isinstance(on, exp.EQ):
        raise SqlError(hint)
    unknown = {each.alias.lower() for each in (table, *later)}
    sides = (on.this.unnest(), on.expression.unnest())
    for of_stream, other in zip(sides, sides[::-1], strict=True):
        key = _key(other, table)
        if key is not None and not any(_parts(each)[0].lower() in unknown for each in of_stream.find_all(exp.Column)):
            return TableJoin(of_stream.sql(dialect="spark"), key.type, "left" if join.side else "inner")
    raise SqlError(hint)


def _key(node: exp.Expr, table: Side) -> Column | None:
    """The column of a table's key, where a node names it."""
    if not isinstance(node, exp.Column):
        return None
    alias, *rest = (each.lower() for each in _parts(node))
    is_key = alias == table.alias.lower() and rest in ([table.key.name.lower()], [_KEY])
    return table.column(rest[0]) if is_key else None


def _parts(column: exp.Column) -> list[str]:
    return [each.name for each in column.parts]


def _qualify(column: exp.Column, sides: Sequence[Side]) -> None:
    """Have a column begin with its topic; names that no topic has stay, for DuckDB to judge."""
    first = _parts(column)[0].lower()
    if len(column.parts) > 1 and any(first == side.alias.lower() for side in sides):
        return
    owners = [side for side in sides if side.column(first) is not None]
    if len(owners) > 1:
        raise SqlError(f"{first} is a column of {' and '.join(each.alias for each in owners)}: say whose")
    if owners:
        column.replace(_field(exp.to_identifier(owners[0].alias), *(each.copy() for each in column.parts)))


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
        if star.args.get("replace") or star.args.get("rename"):
            raise SqlError("in a join with a table * has EXCLUDE, and neither REPLACE nor RENAME")
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


def _read(tree: exp.Select, side: Side) -> list[Column]:
    """The columns of a side that the tree names, its joins included."""
    names: set[str] = set()
    for column in tree.find_all(exp.Column):
        alias, *rest = (each.lower() for each in _parts(column))
        if alias == side.alias.lower():
            names |= {rest[0]} if rest else {each.name.lower() for each in side.relation.columns}
    # A row has a column at least.
    return named_columns(side.relation, names) or [Column("_offset", PSEUDO_COLUMNS["_offset"])]

"""A query and the topics in it: where it names them, which of their columns it uses, and what DuckDB is given instead.

Owns the walk over sqlglot's trees.  What a name means is the catalog's, what may be left unfetched is ``pushdown``'s.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import exp

from pybroker.sql.relations.catalog import PSEUDO_COLUMNS, Column, Relation
from pybroker.sql.sql_errors import SqlError

_DIALECT: Final = "duckdb"
# sqlglot has changed these names of arguments.
_WITH: Final = ("with_", "with")
_EXCEPT: Final = ("except_", "except")
_FROM: Final = ("from_", "from")


@dataclass(frozen=True, slots=True)
class TableReference:
    """One place where a query names a table: the name as it is written, and by which name the query knows it."""

    node: exp.Table
    name: str
    alias: str
    start: int | None


def table_references(tree: exp.Expr) -> list[TableReference]:
    """The places that name topics: tables that are no functions, no files and no common table expressions."""
    found = []
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or _is_file(table.this.name) or _is_defined(table):
            continue
        parts = [part.name for part in table.parts]
        start = table.parts[0].meta.get("start")
        found.append(TableReference(table, ".".join(parts), table.alias or parts[-1], start))
    return found


def _is_file(name: str) -> bool:
    """DuckDB reads a file where a table's name in quotes is a path: 'rates.parquet'."""
    return name.lower().endswith((".parquet", ".csv", ".json", ".jsonl", ".ndjson", ".csv.gz", ".json.gz"))


def _is_defined(table: exp.Table) -> bool:
    """Whether the name is that of a common table expression which the place can see."""
    if table.args.get("db") is not None:
        return False
    name = table.name.lower()
    inner: exp.Expr = table
    node = table.parent
    while node is not None:
        with_ = _argument(node, _WITH)
        if isinstance(with_, exp.With) and name in _visible(with_, inner):
            return True
        if isinstance(node, exp.With):
            # From inside of a definition those before it are seen; of a recursive one itself, too.
            if name in _visible(node, inner):
                return True
            inner = node
            node = node.parent.parent if node.parent is not None else None
            continue
        inner, node = node, node.parent
    return False


def _visible(with_: exp.With, inner: exp.Expr) -> set[str]:
    names: set[str] = set()
    for definition in with_.expressions:
        if definition is inner:
            if with_.args.get("recursive"):
                names.add(definition.alias.lower())
            return names
        names.add(definition.alias.lower())
    return names


def _argument(node: exp.Expr, names: tuple[str, ...]) -> object:
    return next((node.args[name] for name in names if node.args.get(name) is not None), None)


def name_columns_of_whole_topics(tree: exp.Expr) -> None:
    """COPY and SUMMARIZE of a topic's name become those of a SELECT, since an alias may stand in that alone."""
    for node in list(tree.find_all(exp.Copy, exp.Summarize)):
        named = node.this
        table, columns = (named.this, named.expressions) if isinstance(named, exp.Schema) else (named, [])
        if not isinstance(table, exp.Table):
            continue
        chosen: list[exp.Expr] = [exp.column(column.copy()) for column in columns] or [exp.Star()]
        select = exp.select(*chosen).from_(table.copy())
        node.set("this", select.subquery() if isinstance(node, exp.Copy) else select)
        node.set("table", None)


def reads_twice(tree: exp.Expr) -> bool:
    """Whether DuckDB asks a relation for a pivot's values, and then for its rows."""
    return any(
        not pivot.args.get("unpivot") and any(not isinstance(on, exp.In) for on in pivot.expressions)
        for pivot in tree.find_all(exp.Pivot)
        if not pivot.args.get("fields")
    )


def used_columns(tree: exp.Expr, reference: TableReference, relation: Relation) -> list[Column]:
    """The columns that a query may use of a topic, its pseudo columns among them: all that it names anywhere.

    With ``*`` it uses all, but of the pseudo columns those alone that it names.
    """
    names = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    has_all = _takes_all(tree, reference, relation)
    return named_columns(relation, names | {column.name.lower() for column in relation.columns} if has_all else names)


def named_columns(relation: Relation, names: AbstractSet[str]) -> list[Column]:
    """The columns whose names, in lower case, are among these, and behind them those of every record."""
    chosen = [column for column in relation.columns if column.name.lower() in names]
    pseudo = [Column(name, kind) for name, kind in PSEUDO_COLUMNS.items() if name in names]
    return [*chosen, *(column for column in pseudo if relation.column(column.name) is None)]


def left_out_of(star: exp.Star) -> list[exp.Expr]:
    """The names behind the EXCLUDE of a star."""
    found = _argument(star, _EXCEPT)
    return list(found) if isinstance(found, list) else []


def _takes_all(tree: exp.Expr, reference: TableReference, relation: Relation) -> bool:
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return True
    # A column by its place is one of all.
    if tree.find(exp.Columns, exp.Summarize, exp.Pivot, exp.PositionalColumn) is not None:
        return True
    if any(join.method == "NATURAL" or join.args.get("method") == "NATURAL" for join in tree.find_all(exp.Join)):
        return True
    # A table's name as a column is its row as a struct.
    alias = reference.alias.lower()
    return relation.column(alias) is None and any(
        column.name.lower() == alias and not column.table for column in tree.find_all(exp.Column)
    )


def replace_tables(
    tree: exp.Expr, names: dict[int, str], columns: dict[int, list[Column]], views: dict[int, str]
) -> str:
    """The query for DuckDB, where each reference, by its node's identity, is a relation of this name or a view."""
    exclude_pseudo_columns(tree, columns)
    references = {id(table): table for table in tree.find_all(exp.Table) if id(table) in names}
    _materialize(tree, references)
    for identity, table in references.items():
        alias = table.alias or table.parts[-1].name
        if identity in views:
            view = sqlglot.parse_one(views[identity], dialect=_DIALECT)
            table.replace(exp.Subquery(this=view, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True))))
            continue
        table.set("this", exp.to_identifier(names[identity], quoted=True))
        table.set("db", None)
        table.set("catalog", None)
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return tree.sql(dialect=_DIALECT)


def exclude_pseudo_columns(tree: exp.Expr, columns: dict[int, list[Column]]) -> None:
    for select in tree.find_all(exp.Select):
        pseudo = {
            column.name
            for table in tables_of(select)
            for column in columns.get(id(table), ())
            if column.name in PSEUDO_COLUMNS
        }
        if not pseudo:
            continue
        for each in select.expressions:
            star = each.this if isinstance(each, exp.Column) else each
            if isinstance(star, exp.Star):
                kept = left_out_of(star)
                name = next(name for name in _EXCEPT if name in exp.Star.arg_types)
                named = {identifier.name.lower() for identifier in kept}
                star.set(name, [*kept, *(exp.to_identifier(name) for name in sorted(pseudo - named))])


def tables_of(select: exp.Select) -> Iterator[exp.Table]:
    """The tables that a SELECT names itself, in FROM and in its joins."""
    from_ = _argument(select, _FROM)
    if isinstance(from_, exp.From) and isinstance(from_.this, exp.Table):
        yield from_.this
        yield from (join.this for join in from_.this.args.get("joins") or () if isinstance(join.this, exp.Table))
    yield from (join.this for join in select.args.get("joins") or () if isinstance(join.this, exp.Table))


def _materialize(tree: exp.Expr, references: dict[int, exp.Table]) -> None:
    """Have DuckDB compute a common table expression once that is named twice and reads a topic: a scan is read once."""
    counts: dict[str, int] = {}
    for table in tree.find_all(exp.Table):
        counts[table.name.lower()] = counts.get(table.name.lower(), 0) + 1
    for definition in tree.find_all(exp.CTE):
        reads = any(id(table) in references for table in definition.find_all(exp.Table))
        if not reads:
            continue
        with_ = definition.parent
        if isinstance(with_, exp.With) and with_.args.get("recursive") and counts.get(definition.alias.lower(), 0) > 1:
            raise SqlError("a recursive query over a topic is not there; name the topic in a definition before it")
        if counts.get(definition.alias.lower(), 0) > 1:
            definition.set("materialized", True)

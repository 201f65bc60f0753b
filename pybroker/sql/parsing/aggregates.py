"""Aggregates in a query: where it has them, and which of them streams and tables have in a standing query.

Owns the lists.  sqlglot knows some aggregates of DuckDB's as plain functions, so that their names stand here.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from pybroker.sql.parsing import duckdb_functions, ksql_functions

# DuckDB's, of which sqlglot does not know that they are aggregates.
_DUCKDB_ALONE: Final = frozenset(
    (
        *("arbitrary", "arg_max_null", "arg_max_nulls_last", "arg_min_null", "arg_min_nulls_last", "bitstring_agg"),
        *("decimal_average", "entropy", "favg", "fsum", "geometric_mean", "geomean", "histogram", "histogram_exact"),
        *("kahan_sum", "kurtosis_pop", "lttb", "mad", "product", "reservoir_quantile", "sem", "sum_no_overflow"),
        *("sumkahan", "variant_group_object", "weighted_avg", "wavg"),
    )
)
# Those that Spark has, and that give what they give to DuckDB.
_OF_STREAMS: Final[tuple[type[exp.Expr], ...]] = (
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.ArrayAgg, exp.ArrayUniqueAgg, exp.ApproxDistinct),
    *(exp.ArgMax, exp.ArgMin, exp.AnyValue, exp.First, exp.Last, exp.Median, exp.Mode, exp.ApproxQuantile),
    *(exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp),
    *(exp.LogicalAnd, exp.LogicalOr, exp.CountIf, exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg),
    *(exp.GroupConcat, exp.RegrSlope, exp.RegrIntercept, exp.RegrR2, exp.RegrCount),
)
STREAMS_HAVE: Final = ", ".join(
    (
        *("count", "sum", "avg", "min", "max", "median", "mode", "lists", "stddev", "variance"),
        *("corr", "covar_pop", "covar_samp", "regr_slope", "arg_max", "arg_min", "latest_by_offset"),
        *("earliest_by_offset", "count_distinct", "count_if", "any_value", "first", "last", "approx_quantile"),
        *("topk", "topkdistinct", "string_agg", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"),
    )
)
TABLES_HAVE: Final = "count, sum, avg, min, max and lists"
_ARGUMENT: Final = "argument"
_PLAIN: Final = frozenset({"this", "big_int", "nulls_excluded"})


def aggregates(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates, with the FILTER that belongs to one; those of windows (OVER) are among them."""
    for node in tree.find_all(exp.AggFunc, exp.Anonymous):
        if isinstance(node, exp.Anonymous) and not _is_known(node):
            continue
        yield node.parent if isinstance(node.parent, exp.Filter) else node


def has_aggregates(tree: exp.Expr) -> bool:
    """Whether there is one."""
    return next(aggregates(tree), None) is not None


def _is_known(node: exp.Anonymous) -> bool:
    return node.name.lower() in _DUCKDB_ALONE or ksql_functions.is_aggregate(node)


def is_of_streams(node: exp.Expr) -> bool:
    """Whether Spark has it over a stream; of values that are counted once (DISTINCT) it has none."""
    bare = _translated(node.this if isinstance(node, exp.Filter) else node)
    if not isinstance(bare, exp.AggFunc):
        bare = bare.find(exp.AggFunc) or bare  # an expression of one, as ksqlDB's are
    if bare.args.get("count") is not None or (isinstance(bare, exp.ArgMax | exp.ArgMin) and bare.expressions):
        return False
    if isinstance(bare, exp.PercentileCont | exp.PercentileDisc):
        return isinstance(node.parent, exp.WithinGroup)
    return isinstance(bare, _OF_STREAMS) and not isinstance(bare.this, exp.Distinct)


def is_plain(node: exp.Expr, kinds: tuple[type[exp.Expr], ...]) -> bool:
    """Whether it is one of these, of one expression and nothing else; ``count(DISTINCT x)`` and ``count(*)`` are."""
    bare = _translated(node)
    argument = bare.this
    if isinstance(bare, exp.Count) and isinstance(argument, exp.Distinct) and len(argument.expressions) == 1:
        argument = argument.expressions[0]
    named = {name for name, value in bare.args.items() if value}
    return isinstance(bare, kinds) and named <= _PLAIN and not isinstance(argument, (exp.Distinct, exp.Order))


def _translated(node: exp.Expr) -> exp.Expr:
    """As it is Spark's."""
    whole = exp.Tuple(expressions=[node.copy()])
    ksql_functions.for_spark(whole)
    duckdb_functions.for_spark(whole)
    (found,) = whole.expressions
    return found if isinstance(found, exp.Expr) else node


def shown(node: exp.Expr) -> str:
    """An expression as the user may have written it."""
    return node.sql(dialect="duckdb", normalize_functions="lower")


def arguments(node: exp.Expr) -> list[exp.Expr]:
    """What an aggregate is of."""
    bare = node.this if isinstance(node, exp.Filter) else node
    if isinstance(bare, exp.Anonymous):
        return list(bare.expressions)
    found = bare.this
    own = (
        found.expressions
        if isinstance(found, exp.Distinct)
        else [found.this if isinstance(found, exp.Order) else found]
    )
    other = bare.args.get("expression")
    return [each for each in (*own, other) if isinstance(each, exp.Expr)]


def keep_words(tree: exp.Expr) -> None:
    """Have aggregates know what they are of in the user's words, before columns and functions get other names."""
    for node in aggregates(tree):
        bare = node.this if isinstance(node, exp.Filter) else node
        bare.meta[_ARGUMENT] = ", ".join(shown(each) for each in arguments(bare))


def words_of(node: exp.Expr) -> str:
    """What an aggregate is of, in the user's words where they were kept."""
    return str(node.meta.get(_ARGUMENT) or ", ".join(shown(each) for each in arguments(node)))

"""Expressions as text of Spark's SQL.

Owns that nothing is left out on the way: sqlglot would drop what Spark has not, and go on.  Pure.
"""

from __future__ import annotations

from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError

from pybroker.sql.sql_errors import SqlError


def spark_text(node: exp.Expr) -> str:
    """The text; ``SqlError`` for what Spark's SQL cannot say."""
    try:
        return node.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise SqlError(f"Spark, which runs standing queries, cannot say this: {str(error).rstrip('.')}") from error

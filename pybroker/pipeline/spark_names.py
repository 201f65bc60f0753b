"""Names as Spark's SQL has them.  Pure."""

from __future__ import annotations


def spark_name(name: str) -> str:
    """A column's or a view's name as it is, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"

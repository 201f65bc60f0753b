"""Names and texts as statements of PostgreSQL have them.  Pure."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A name as it is, whatever characters it has."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def identifier(table: str) -> str:
    """A table's name, which may have a schema before it."""
    return ".".join(map(quoted, table.split(".", 1)))


def literal(text: str) -> str:
    """A text, with the setting ``standard_conforming_strings`` that PostgreSQL has by default."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"

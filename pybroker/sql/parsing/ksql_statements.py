"""Statements of ksqlDB's that are not there, and what does the same.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_LISTED: Final = ("SHOW", "LIST")
_CONNECTORS: Final = "connectors are commands: pybroker connect"
_FUNCTIONS: Final = "functions are DuckDB's, and its pages list them; a standing query has those that Spark has, too"
_TYPES: Final = "types have no names: write STRUCT<…> where a column has it"
_VARIABLES: Final = "there are no variables: a shell puts them into the text of -e"

# By the words with which a statement begins.
_ELSEWHERE: Final[dict[tuple[str, ...], str]] = {
    ("ALTER",): "CREATE OR REPLACE declares a stream or a table with other columns",
    ("ASSERT",): "DESCRIBE shows what a stream or a table has, and pybroker topics describe its topic",
    ("CREATE", "CONNECTOR"): f"{_CONNECTORS} create",
    ("CREATE", "SOURCE", "CONNECTOR"): f"{_CONNECTORS} create",
    ("CREATE", "SINK", "CONNECTOR"): f"{_CONNECTORS} create",
    ("DESCRIBE", "CONNECTOR"): f"{_CONNECTORS} status",
    ("DROP", "CONNECTOR"): f"{_CONNECTORS} delete",
    ("DESCRIBE", "FUNCTION"): _FUNCTIONS,
    ("CREATE", "TYPE"): _TYPES,
    ("DROP", "TYPE"): _TYPES,
    ("DEFINE",): _VARIABLES,
    ("UNDEFINE",): _VARIABLES,
    ("RUN", "SCRIPT"): "pybroker sql -f FILE runs a script",
    ("SPOOL",): "the shell writes output to a file: pybroker sql … > FILE",
    **{(word, "CONNECTORS"): f"{_CONNECTORS} list" for word in _LISTED},
    **{(word, "FUNCTIONS"): _FUNCTIONS for word in _LISTED},
    **{(word, "TYPES"): _TYPES for word in _LISTED},
    **{(word, "VARIABLES"): _VARIABLES for word in _LISTED},
    **{(word, "PROPERTIES"): "HELP lists the options of a session" for word in _LISTED},
}


def elsewhere(words: Sequence[str]) -> str | None:
    """What does the same as a statement that begins with these words, in capitals; None for one that may be there."""
    if len(words) == len(("DESCRIBE", "name")) and words[0] == "DESCRIBE":
        return None  # a stream may have the name
    return next((told for first, told in _ELSEWHERE.items() if tuple(words[: len(first)]) == first), None)

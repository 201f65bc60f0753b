"""Where the handlers ask for a permission, and for which API, read from their sources.

Owns: ``questions_of_handlers``, and which APIs are those of brokers alone.  Imports nothing of the broker, because what
is imported before a mutant is put in cannot be mutated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from mutants.mutant import Edit
from mutants.operators import Operator, instead, sites
from mutants.places import ROOT, definitions

HANDLERS: Final = ROOT / "pybroker" / "handlers"
_APIS: Final = ROOT / "pybroker" / "apis.py"
# The methods of ``RequestContext`` that ask, and what answers in their place.
_ASKING: Final = tuple(instead(name, "True") for name in ("authorize", "authorize_by_resource_type"))
_SERVES: Final = re.compile(r"(\w+) \(key \d+\)")  # how the docstring of a handler begins


class Question(NamedTuple):
    """``text`` is the call, ``edit`` answers yes in its place; ``api`` is None for what handlers share."""

    api: str | None
    module: str
    text: str
    edit: Edit


def questions_of_handlers() -> Iterator[Question]:
    """Each call by which a handler asks for a permission."""
    for path in sorted(HANDLERS.glob("*.py")):
        source = path.read_text()
        if ".authorize" not in source:
            continue
        tree = ast.parse(source)
        serves = _SERVES.match(ast.get_docstring(tree) or "")
        for place, number, asking, question in questions(tree):
            edit = Edit(f"{path.stem}.{place}", asking, number)
            yield Question(None if serves is None else serves[1], path.stem, ast.unparse(question), edit)


def questions(tree: ast.Module) -> list[tuple[str, int, Operator, ast.expr]]:
    """Each that is asked in a module: in which definition, the innermost, and which of its questions it is.

    A method that asks and is not called where it is named, which no mutant can answer, is among them.
    """
    innermost = {}
    for name, definition in definitions(tree):
        for asking in _ASKING:
            for number, site in enumerate(sites(definition, asking), 1):
                innermost[site.expression] = (name, number, asking, site.expression)
    return list(innermost.values())


def _names_in(table: str) -> frozenset[str]:
    """The APIs of a table of ``pybroker.apis``."""
    for node in ast.parse(_APIS.read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table:
            rows = (each for each in ast.walk(node) if isinstance(each, ast.Call))
            return frozenset(ast.literal_eval(row.args[1]) for row in rows)
    raise LookupError(f"apis.py has no {table}")


INTER_BROKER_APIS: Final = _names_in("INTER_BROKER_APIS")

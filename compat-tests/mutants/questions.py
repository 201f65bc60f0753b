"""Where the handlers ask for a permission, and for which API, read from their sources.

Owns: ``questions_of_handlers``, and which APIs are those of brokers alone.  Imports nothing of the broker, because what
is imported before a mutant is put in cannot be mutated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from mutants.places import ROOT, definitions

HANDLERS: Final = ROOT / "pybroker" / "handlers"
_APIS: Final = ROOT / "pybroker" / "apis.py"
_ASKING: Final = ("authorize", "authorize_by_resource_type")  # of ``RequestContext``
_SERVES: Final = re.compile(r"(\w+) \(key \d+\)")  # how the docstring of a handler begins


class Question(NamedTuple):
    """``place`` is the innermost definition that asks, ``text`` the call; ``api`` is None for what handlers share."""

    api: str | None
    module: str
    place: str
    text: str


def questions_of_handlers() -> Iterator[Question]:
    """Each call by which a handler asks for a permission."""
    for path in sorted(HANDLERS.glob("*.py")):
        source = path.read_text()
        if not any(f".{name}" in source for name in _ASKING):
            continue
        tree = ast.parse(source)
        serves = _SERVES.match(ast.get_docstring(tree) or "")
        for places, question in questions(tree):
            if isinstance(question, ast.Call):
                place = f"{path.stem}.{places[-1]}"
                yield Question(None if serves is None else serves[1], path.stem, place, ast.unparse(question))


def questions(tree: ast.Module) -> Iterator[tuple[list[str], ast.expr]]:
    """Each call that asks for a permission, with the definitions that it is in, the innermost last.

    A method that asks and is not called where it is named, which no mutant can find, is told, too.
    """
    calls = {node.func: node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    places: dict[ast.expr, list[str]] = {}
    for name, definition in definitions(tree):
        for node in ast.walk(definition):
            if isinstance(node, ast.Attribute) and node.attr in _ASKING:
                places.setdefault(calls.get(node, node), []).append(name)
    for question, names in places.items():
        yield sorted(names, key=len), question


def _names_in(table: str) -> frozenset[str]:
    """The APIs of a table of ``pybroker.apis``."""
    for node in ast.parse(_APIS.read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table:
            rows = (each for each in ast.walk(node) if isinstance(each, ast.Call))
            return frozenset(ast.literal_eval(row.args[1]) for row in rows)
    raise LookupError(f"apis.py has no {table}")


INTER_BROKER_APIS: Final = _names_in("INTER_BROKER_APIS")

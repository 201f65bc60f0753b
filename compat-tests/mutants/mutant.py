"""A mutant: one behaviour of pybroker, broken by changed code, and the tests that its trap names.

An edit names a place and a fragment of its code, which are compared as syntax: neither the file that the place is in
nor line breaks, quotes or comments count.  Owns: what a mutant is, and how it changes the syntax trees of modules.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from textwrap import dedent

from mutants.places import BROKER, Definition, NotApplicable, Sources

# Where the tests of the wire stand, below the checkout; a mutant names them without it.
WIRE_TESTS = "compat-tests/conformance/wire"
# Where those of the broker stand, for what no client of an open listener can ask; a mutant names them with it.
BROKER_TESTS = "tests/"
CANARY = f"{WIRE_TESTS}/test_connections.py::test_what_is_produced_is_fetched"


@dataclass(frozen=True)
class Edit:
    """``old`` stands exactly once in the definition that ``place`` means (see ``places``), and becomes ``new``.

    Both are expressions, or ``old`` is one or more statements that follow one another, and ``new`` any statements: none
    of them takes ``old`` away.
    """

    place: str
    old: str
    new: str

    def shown(self) -> str:
        """The change as a diff shows it, below the place where it is."""
        definition = BROKER.locate(self.place)
        lines = [f"  {definition.module}.{definition.name}"]
        for sign, text in (("-", self.old), ("+", self.new)):
            lines += [f"    {sign} {line}" for line in dedent(text).strip().splitlines()]
        return "\n".join(lines)

    def apply(self, definition: ast.AST) -> None:
        """Change the tree of the place; raises ``NotApplicable``."""
        old, new = _expression(self.old), _expression(self.new)
        if old is not None and new is not None:
            found = _replace_expression(definition, old, new)
        else:
            found = _replace_statements(definition, _statements(self.old), _statements(self.new))
        if found != 1:
            raise NotApplicable(f"{self.place} has this {found} times, not once: {' '.join(self.old.split())}")


@dataclass(frozen=True)
class Mutant:
    """``trap``: what goes wrong, as one sentence.

    ``tests``: below ``WIRE_TESTS``, as ``module.py::test``, or in ``BROKER_TESTS``, as ``tests/part/module.py::test``.
    """

    name: str
    trap: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    @property
    def node_ids(self) -> list[str]:
        return [test if test.startswith(BROKER_TESTS) else f"{WIRE_TESTS}/{test}" for test in self.tests]

    def mutate(self, sources: Sources = BROKER) -> dict[str, ast.Module]:
        """The trees of the modules that it changes, by their names, with its edits one after the other.

        Raises ``NotApplicable``, also where an edit changes nothing, and ``SyntaxError`` where one is no Python.
        """
        trees: dict[str, ast.Module] = {}
        for edit in self.edits:
            definition = sources.locate(edit.place)
            if definition.module not in trees:
                trees[definition.module] = ast.parse(definition.path.read_text(), str(definition.path))
            self._apply(edit, definition, trees[definition.module])
        return trees

    def _apply(self, edit: Edit, definition: Definition, tree: ast.Module) -> None:
        node = definition.node_in(tree)
        before = ast.dump(node)
        edit.apply(node)
        if ast.dump(node) == before:
            raise NotApplicable(f"{self.name} does not change {edit.place}")
        ast.fix_missing_locations(node)


def check_applicable(mutant: Mutant) -> None:
    """Raise ``NotApplicable`` or ``SyntaxError`` unless a mutant changes the broker into something that compiles."""
    for module, tree in mutant.mutate().items():
        compile(tree, module, "exec", dont_inherit=True)


def _expression(text: str) -> ast.expr | None:
    """The expression that a fragment is; ``None`` where it is statements.  It may be broken into lines anywhere."""
    try:
        return ast.parse(f"(\n{text}\n)", mode="eval").body if text.strip() else None
    except SyntaxError:
        return None


def _statements(text: str) -> list[ast.stmt]:
    """The statements of a fragment, indented as it may be.  ``return`` may stand outside of a function here."""
    return ast.parse(dedent(text)).body


def _replace_expression(tree: ast.AST, old: ast.expr, new: ast.expr) -> int:
    """Put an expression in the place of others that are alike, and count those."""
    wanted, count = ast.dump(old), 0
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            for index, child in enumerate(value if isinstance(value, list) else [value]):
                if type(child) is type(old) and ast.dump(child) == wanted:
                    count += 1
                    if isinstance(value, list):
                        value[index] = new
                    else:
                        setattr(node, field, new)
    return count


def _replace_statements(tree: ast.AST, old: list[ast.stmt], new: list[ast.stmt]) -> int:
    """Put statements in the place of a run of others that is alike, and count those runs."""
    wanted = [ast.dump(statement) for statement in old]
    found = [
        (body, start)
        for node in ast.walk(tree)
        for _, body in ast.iter_fields(node)
        if isinstance(body, list)
        for start in range(len(body) - len(old) + 1)
        if type(body[start]) is type(old[0]) and [ast.dump(each) for each in body[start : start + len(old)]] == wanted
    ]
    for body, start in found[:1]:
        body[start : start + len(old)] = new or [ast.Pass()]
    return len(found)

"""A mutant: one behaviour of pybroker, broken by operators, and the tests that its trap names.

An edit is an operator (see ``operators``) at a place (see ``places``).  Owns: what a mutant is, and how it changes the
syntax trees of modules.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from mutants.operators import Operator, sites
from mutants.places import BROKER, NotApplicable, Sources

# Where the tests of the wire stand, below the checkout; a mutant names them without it.
WIRE_TESTS = "compat-tests/conformance/wire"
# Where those of the broker stand, for what no client of an open listener can ask; a mutant names them with it.
BROKER_TESTS = "tests/"
CANARY = f"{WIRE_TESTS}/test_connections.py::test_what_is_produced_is_fetched"

# Which of the expressions that an operator finds an edit means; any other number counts them from 1.
ONLY, EVERY = 0, -1


@dataclass(frozen=True)
class Edit:
    """``at`` is a number of an expression, ``EVERY``, or ``ONLY``, which is an error where there are several."""

    place: str
    operator: Operator
    at: int = ONLY

    def shown(self) -> str:
        """The change as a diff shows it, below the place where it is."""
        definition = BROKER.locate(self.place)
        changes = self.apply(definition.node_in(ast.parse(definition.path.read_text())))
        lines = [f"    - {before}\n    + {after}" for before, after in changes]
        return "\n".join([f"  {definition.module}.{definition.name}", *lines])

    def apply(self, definition: ast.AST) -> list[tuple[str, str]]:
        """Change the tree of the place; each expression before and after.  Raises ``NotApplicable``."""
        found = sites(definition, self.operator)
        meant = {ONLY: found[:1], EVERY: found}.get(self.at, found[self.at - 1 : self.at])
        if not meant or (self.at == ONLY and len(found) > 1):
            raise NotApplicable(f"{self.place} has this {len(found)} times: {self.operator.told}")
        changes = []
        for expression, put in meant:
            before, new = ast.unparse(expression), self.operator.becomes(expression)
            for node in ast.walk(new):
                ast.copy_location(node, expression)
            changes.append((before, ast.unparse(new)))
            put(new)
        if any(before == after for before, after in changes):
            raise NotApplicable(f"{self.place} stays as it is: {self.operator.told}")
        return changes


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

        Raises ``NotApplicable``, which names it, also where an edit changes nothing or is no Python.
        """
        trees: dict[str, ast.Module] = {}
        for edit in self.edits:
            try:
                definition = sources.locate(edit.place)
                if definition.module not in trees:
                    trees[definition.module] = ast.parse(definition.path.read_text(), str(definition.path))
                edit.apply(definition.node_in(trees[definition.module]))
            except (NotApplicable, SyntaxError) as error:
                raise NotApplicable(f"{self.name}: {error}") from None
        return trees


def check_applicable(mutant: Mutant) -> None:
    """Raise ``NotApplicable`` unless a mutant changes the broker into something that compiles."""
    for module, tree in mutant.mutate().items():
        compile(tree, module, "exec", dont_inherit=True)

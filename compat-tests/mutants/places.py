"""Places in the code, by name: what a mutant changes stays tied to it when a file is moved, split or reformatted.

A place is the end of a definition's dotted name, long enough to mean one definition of the whole broker:
``Partition.on_appended``, ``offset_commit._resolve`` (there are more functions of that name).

Owns: which definition, a function or a class, a place means.  Reads sources, imports and changes nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Defining = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class NotApplicable(Exception):
    """What a mutant changes is not in the code, or more often than it means: the mutant must change with the code."""


@dataclass(frozen=True)
class Definition:
    """``name`` is dotted, inside of its module: ``Partition.on_appended``, ``handle.done``."""

    path: Path
    module: str
    name: str

    def node_in(self, tree: ast.Module) -> Defining:
        """The definition in its module's tree, which may have been changed elsewhere."""
        [found] = [node for name, node in definitions(tree) if name == self.name]
        return found


def definitions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, Defining]]:
    """Every definition of a module with its dotted name, those inside of others behind these."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Defining):
            yield above + node.name, node
            yield from definitions(node, f"{above}{node.name}.")
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):  # no expression has a definition
            yield from definitions(node, above)


class Sources:
    """The modules below some packages, as they were when one was first asked for."""

    def __init__(self, *packages: Path) -> None:
        self._packages = packages

    def locate(self, place: str) -> Definition:
        """The one definition that a place means; raises ``NotApplicable``."""
        found = [each for module in self._modules for each in module.having(place)]
        if len(found) == 1:
            return found[0]
        names = " and ".join(f"{each.module}.{each.name}" for each in found)
        raise NotApplicable(f"{place} is {names}" if found else f"nothing is called {place}")

    @cached_property
    def _modules(self) -> list[_Module]:
        return [_Module(path, package) for package in self._packages for path in sorted(package.rglob("*.py"))]


class _Module:
    """One source file.  It is parsed only if it has all the words of a name, which few of some hundred do."""

    def __init__(self, path: Path, package: Path) -> None:
        self._path = path
        self._text = path.read_text()
        self._name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")

    def having(self, place: str) -> Iterator[Definition]:
        """The definitions that are called so."""
        if all(word in self._text or word in self._name for word in place.split(".")):
            for name in self._names:
                if f".{self._name}.{name}".endswith(f".{place}"):
                    yield Definition(self._path, self._name, name)

    @cached_property
    def _names(self) -> list[str]:
        return [name for name, _ in definitions(ast.parse(self._text))]


BROKER = Sources(ROOT / "pybroker", ROOT / "protocol" / "pybroker_protocol")

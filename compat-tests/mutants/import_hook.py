"""Importing changed code: a finder that stands before Python's own and compiles a mutant's modules as it says.

Owns: which modules were imported in their changed form.  Writes nothing, not even byte code.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from mutants.mutant import Mutant
from mutants.places import BROKER, Sources


class MutantFinder(MetaPathFinder):
    """Finds the modules of one mutant; ``imported`` are those that were asked for so far."""

    def __init__(self, mutant: Mutant, sources: Sources) -> None:
        self.mutant = mutant
        self.imported: set[str] = set()
        self._trees = mutant.mutate(sources)

    @property
    def modules(self) -> frozenset[str]:
        return frozenset(self._trees)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._trees:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _MutatingLoader(fullname, spec.origin, self._trees[fullname], self.imported)
        return spec


class _MutatingLoader(SourceFileLoader):
    """Compiles the changed tree, whatever byte code there is of the real module."""

    def __init__(self, fullname: str, path: str, tree: ast.Module, imported: set[str]) -> None:
        super().__init__(fullname, path)
        self._tree = tree
        self._imported = imported

    def get_code(self, fullname: str) -> CodeType:
        self._imported.add(fullname)
        code: CodeType = compile(self._tree, self.path, "exec", dont_inherit=True)
        return code


def install(mutant: Mutant, sources: Sources = BROKER) -> MutantFinder:
    """Import the mutant's modules as it wants them, from now on.  None of them may have been imported before.

    Raises ``NotApplicable`` for a mutant that does not fit the code as it is.
    """
    finder = MutantFinder(mutant, sources)
    if early := finder.modules & set(sys.modules):
        raise ImportError(f"too late for {mutant.name}: {', '.join(sorted(early))} is imported already")
    sys.meta_path.insert(0, finder)
    return finder

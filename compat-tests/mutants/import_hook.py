"""Importing changed source: a finder that stands before Python's own and compiles a mutant's modules as it says.

Owns: which modules were imported in their changed form.  Writes nothing, not even byte code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from mutants.mutant import Mutant


class MutantFinder(MetaPathFinder):
    """Finds the modules of one mutant; ``imported`` are those that were asked for so far."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.imported: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.mutant.modules:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _MutatingLoader(fullname, spec.origin, self)
        return spec


class _MutatingLoader(SourceFileLoader):
    """Compiles the changed source, whatever byte code there is of the real one."""

    def __init__(self, fullname: str, path: str, finder: MutantFinder) -> None:
        super().__init__(fullname, path)
        self._finder = finder

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname)
        assert source is not None
        mutated = self._finder.mutant.mutate(fullname, source)
        self._finder.imported.add(fullname)
        code: CodeType = compile(mutated, self.path, "exec", dont_inherit=True)
        return code


def install(mutant: Mutant) -> MutantFinder:
    """Import the mutant's modules as it wants them, from now on.  None of them may have been imported before."""
    if early := mutant.modules & set(sys.modules):
        raise ImportError(f"too late for {mutant.name}: {', '.join(sorted(early))} is imported already")
    finder = MutantFinder(mutant)
    sys.meta_path.insert(0, finder)
    return finder

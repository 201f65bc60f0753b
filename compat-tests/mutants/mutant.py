"""A mutant: one behaviour of pybroker, broken by changed source text, and the tests that its trap names.

Owns: what a mutant is, and how it changes a module's source.  Pure but for reading sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("pybroker", "pybroker_protocol")
# Where the tests of the wire stand, below the checkout; a mutant names them without it.
WIRE_TESTS = "compat-tests/conformance/wire"
CANARY = f"{WIRE_TESTS}/test_connections.py::test_what_is_produced_is_fetched"


class NotApplicable(Exception):
    """The text that a mutant replaces is not in the module exactly once: the code has changed, the mutant must, too."""


@dataclass(frozen=True)
class Edit:
    """``old`` stands exactly once in the source of ``module``, and becomes ``new``."""

    module: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The changed source; raises ``NotApplicable``."""
        count = source.count(self.old)
        if count != 1:
            raise NotApplicable(f"{self.module} has this text {count} times, not once:\n{self.old}")
        return source.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """``trap``: what goes wrong, as one sentence.  ``tests``: below ``WIRE_TESTS``, as ``module.py::test``."""

    name: str
    trap: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    @property
    def modules(self) -> frozenset[str]:
        return frozenset(edit.module for edit in self.edits)

    @property
    def node_ids(self) -> list[str]:
        return [f"{WIRE_TESTS}/{test}" for test in self.tests]

    def mutate(self, module: str, source: str) -> str:
        """The module's source with this mutant's edits, one after the other; raises ``NotApplicable``."""
        for edit in self.edits:
            if edit.module == module:
                source = edit.apply(source)
        return source


def source_path(module: str) -> Path:
    """Where the source of one of pybroker's modules is; imports no more than the packages above it."""
    package, _, _ = module.rpartition(".")
    search = None
    if package:
        above = find_spec(package)
        search = None if above is None else above.submodule_search_locations
    spec = PathFinder.find_spec(module, search)
    if spec is None or spec.origin is None:
        raise NotApplicable(f"there is no module {module}")
    return Path(spec.origin)


def check_applicable(mutant: Mutant) -> None:
    """Raise ``NotApplicable`` unless every edit changes its module into something that compiles."""
    for module in sorted(mutant.modules):
        if module.partition(".")[0] not in PACKAGES:
            raise NotApplicable(f"{module} is none of pybroker's modules")
        path = source_path(module)
        source = path.read_text()
        mutated = mutant.mutate(module, source)
        if mutated == source:
            raise NotApplicable(f"{mutant.name} does not change {module}")
        compile(mutated, str(path), "exec", dont_inherit=True)

"""Every mutant.  A rule that a test of a part of the broker finds broken has none."""

from __future__ import annotations

from mutants.catalogue import permissions, wire
from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (*wire.MUTANTS, *permissions.MUTANTS)

_BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def by_name(name: str) -> Mutant:
    """Raises ``KeyError`` for a name that no mutant has."""
    return _BY_NAME[name]

"""Every mutant, one module per family."""

from __future__ import annotations

from mutants.catalogue import (
    commits,
    connections,
    fetch,
    groups,
    list_offsets,
    membership,
    permissions,
    produce,
    quotas,
    settings,
    topics,
    transactions,
)
from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *connections.MUTANTS,
    *produce.MUTANTS,
    *fetch.MUTANTS,
    *list_offsets.MUTANTS,
    *groups.MUTANTS,
    *commits.MUTANTS,
    *transactions.MUTANTS,
    *topics.MUTANTS,
    *settings.MUTANTS,
    *quotas.MUTANTS,
    *permissions.MUTANTS,
    *membership.MUTANTS,
)

_BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def by_name(name: str) -> Mutant:
    """Raises ``KeyError`` for a name that no mutant has."""
    return _BY_NAME[name]

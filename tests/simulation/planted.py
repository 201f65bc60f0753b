"""Planted mistakes: what one is, and the runs that have to find it.

Owns: the search for a seed that finds a mistake as what it is.  Owns no mistake (``test_planted_cluster_bugs``,
``test_planted_state_bugs``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.simulation import cluster_observer as observed
from tests.simulation.cluster_simulation import ClusterSimulation

SEEN = "the high watermark never goes back in what a client sees"
LOST = {
    observed.LEADER_HAS_IT,
    observed.SAME_PREFIX,
    observed.PREFIX_STAYS,
    observed.FOLLOWERS_WATERMARK,
    observed.IN_SYNC,
}

Plant = Callable[[pytest.MonkeyPatch], None]


class Planted(NamedTuple):
    """A mistake, the invariants that it violates, and the runs that find it, as ``ClusterSimulation`` has them.

    ``first_seed``: those before it were run, and found nothing, or what follows from a loss (a gap in sequences).
    ``seeds_max``: of what fewer seeds find than of the others; 0 for as many as those take.
    """

    plant: Plant
    invariants: set[str]
    runs: dict[str, Any] = {}  # noqa: RUF012  # a constant
    first_seed: int = 1
    seeds_max: int = 0


def check_found(planted: Planted, monkeypatch: pytest.MonkeyPatch, seeds_max: int, **runs: Any) -> None:
    """Fail unless one of so many seeds finds the mistake, and finds it first as one of its invariants."""
    planted.plant(monkeypatch)
    seeds_max = planted.seeds_max or seeds_max
    for seed in range(planted.first_seed, planted.first_seed + seeds_max):
        violation = ClusterSimulation(seed, **{**runs, **planted.runs}).run().violation
        if violation is not None:
            assert violation.invariant in planted.invariants, f"seed {seed}: {violation}"
            return
    pytest.fail(f"{seeds_max} seeds did not find it")

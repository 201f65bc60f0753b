"""The differences that are meant, each with its reason.

Owns: the list.  An entry covers a difference when its scenario, step and path patterns match (as in file names:
``*`` stands for anything).  An entry that covers nothing in a whole run is stale, and the run fails.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from comparator.diff import Difference


class Meant(NamedTuple):
    """``scenario``, ``step`` and ``path`` are patterns; ``step`` is matched against ``Api vN (note)``."""

    scenario: str
    step: str
    path: str
    reason: str

    def covers(self, scenario: str, step: str, difference: Difference) -> bool:
        # Brackets are part of paths and notes here, not character classes of a pattern.
        return (
            fnmatchcase(scenario, self.scenario)
            and fnmatchcase(step, self.step)
            and fnmatchcase(difference.path, self.path.replace("[", "[[]"))
        )


MEANT: tuple[Meant, ...] = ()

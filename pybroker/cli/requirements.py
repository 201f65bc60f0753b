"""What the client commands need and this environment lacks.

Owns: the comparison of the extra ``cli``, as this distribution's metadata tells it, with what is installed.  A project
may hold an older client library and use the broker in its tests: the commands then say so in a line.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

from pybroker.extras import DISTRIBUTION

EXTRA = "cli"
# As hatchling writes them: `name>=version; extra == 'cli'`.
_REQUIREMENT = re.compile(r"([\w.-]+)>=([\d.]+)\s*;\s*extra == ['\"]" + EXTRA + r"['\"]")


def unmet_requirements() -> list[str]:
    """The requirements of the extra that are not met, as ``name>=version``.

    Empty where pybroker is not installed (run from its sources): then the imports tell.
    """
    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    wanted = [match.groups() for match in map(_REQUIREMENT.fullmatch, declared) if match is not None]
    return [f"{name}>={least}" for name, least in wanted if not _is_met(name, least)]


def _is_met(name: str, least: str) -> bool:
    try:
        return _numbers(version(name)) >= _numbers(least)
    except PackageNotFoundError:
        return False


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with; what follows (``rc1``, ``.post0``) decides nothing here."""
    leading = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, leading[0].split("."))) if leading else ()

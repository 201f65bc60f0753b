"""The third of the heavy tests that a commit chooses, for continuous integration: a plugin of pytest.

Owns: which units are in a commit's share.  A unit is a file where a test starts a JVM, because the tests of a file
share it, and the test itself elsewhere.  ``scripts/conformance`` draws its clients in the same way.
Does not own: which tests are heavy (``scripts/test``).
Invariant: the same commit and units give the same share, in every process and on every machine.

    pytest -p harness.ci_share --share 27f4aa6
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pytest

# Of so many units one is drawn.  Each commit draws anew, so that six in a row cover nine tenths.
ONE_OF = 3


def share(commit: str, units: Iterable[str]) -> set[str]:
    """The units that a commit chooses: one of ``ONE_OF``, rounded up."""
    ranked = sorted(set(units), key=lambda unit: hashlib.sha256(f"{commit} {unit}".encode()).digest())
    return set(ranked[: -(-len(ranked) // ONE_OF)])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", metavar="COMMIT", help="run the share of the tests that this commit chooses")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not in the commit's share of those that the other options have left."""
    if (commit := config.getoption("--share")) is None:
        return
    chosen = share(commit, map(_unit, items))
    left_out = [item for item in items if _unit(item) not in chosen]
    items[:] = [item for item in items if _unit(item) in chosen]
    config.hook.pytest_deselected(items=left_out)


def _unit(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0] if item.get_closest_marker("jvm") else item.nodeid

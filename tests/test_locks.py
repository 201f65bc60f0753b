"""What the scripts install is locked: each package by version and hash, as pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pybroker.extras import DISTRIBUTION
from tests.source_tree import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ENTRY = re.compile(r"^(?P<what>[^\s#].*?) \\\n(?P<hashes>(?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE)


def entries(lock: str) -> list[tuple[Requirement, list[str]]]:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    found = [(Requirement(each["what"]), re.findall(r"--hash=(\S+)", each["hashes"])) for each in ENTRY.finditer(text)]
    assert len(found) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), "each line is an entry with its hashes"
    return found


def needed(extra: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for: that of a broker, and of the extra, with the extras that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in (*project["dependencies"], *project["optional-dependencies"][extra]):
        requirement = Requirement(text)
        if requirement.name == DISTRIBUTION:
            for inner in requirement.extras:
                yield from needed(inner)
        else:
            yield requirement


@pytest.mark.parametrize("lock", [path.stem for path in LOCKS])
def test_each_package_has_one_version_and_its_hashes(lock: str) -> None:
    assert LOCKS
    for requirement, hashes in entries(lock):
        assert [each.operator for each in requirement.specifier] == ["=="], requirement
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes)


@pytest.mark.parametrize("extra", ["dev", "demo"])
@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_locked_is_what_is_asked_for(extra: str, python: str) -> None:
    """After a change of pyproject.toml: scripts/lock."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    versions = {
        canonicalize_name(locked.name): next(iter(locked.specifier)).version
        for locked, _ in entries(extra)
        if locked.marker is None or locked.marker.evaluate(environment)
    }
    for requirement in needed(extra):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            version = versions.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement} is not locked"
            assert requirement.specifier.contains(version, prereleases=True), f"{requirement}, {version} is locked"


def test_both_locks_have_the_same_version_of_a_package() -> None:
    of_dev, of_demo = (
        {str(locked.marker) + locked.name: str(locked.specifier) for locked, _ in entries(lock)}
        for lock in ("dev", "demo")
    )
    assert {name: of_demo[name] for name in of_dev.keys() & of_demo.keys()} == {
        name: of_dev[name] for name in of_dev.keys() & of_demo.keys()
    }

"""A client's suite is built once, and again when what it is built of has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from client_suites.suite import Outcome, Suite


class SuiteOfFiles(Suite):
    """Builds by counting."""

    name: ClassVar[str] = "a-suite"
    version: ClassVar[str] = "1"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.builds = 0
        self.fails = False
        self.folder.mkdir()
        (self.folder / "pins").write_text("client==1")
        (self.folder / "tests.allow").write_text("a\n")

    @property
    def folder(self) -> Path:
        return self._directory / "folder"

    @property
    def cache(self) -> Path:
        return self._directory / "cache"

    def build(self, environment: Mapping[str, str]) -> None:
        assert not list(self.cache.iterdir())
        assert environment["PATH"]
        (self.cache / "program").touch()
        if self.fails:
            raise RuntimeError("no network")
        self.builds += 1

    def run(
        self, bootstrap: str, log: Path, selected: Sequence[str] = (), *, replicas: int = 1, apache: bool = False
    ) -> dict[str, Outcome]:
        raise NotImplementedError


@pytest.fixture
def suite(tmp_path: Path) -> SuiteOfFiles:
    """A suite that has been built."""
    made = SuiteOfFiles(tmp_path)
    made.prepare()
    return made


def test_a_suite_is_built_once(suite: SuiteOfFiles) -> None:
    suite.prepare()
    assert suite.builds == 1


def test_a_suite_is_built_anew_when_its_pins_change(suite: SuiteOfFiles) -> None:
    (suite.folder / "pins").write_text("client==2")
    suite.prepare()
    assert suite.builds == 2


def test_an_allow_list_that_grows_builds_nothing(suite: SuiteOfFiles) -> None:
    (suite.folder / "tests.allow").write_text("a\nb\n")
    suite.prepare()
    assert suite.builds == 1


def test_a_build_that_failed_is_tried_again(suite: SuiteOfFiles) -> None:
    (suite.folder / "pins").write_text("client==2")
    suite.fails = True
    with pytest.raises(RuntimeError):
        suite.prepare()
    suite.fails = False
    suite.prepare()
    assert suite.builds == 2

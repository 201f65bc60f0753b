"""One client's own test suite: where it is pinned, how it is made ready and run, and which of its tests must pass.

Owns: the shape of a suite, the allow-list beside it, and the verdict over a run.  The allow-list ``NAME/tests.allow``
has a test per line and only grows: a listed test that does not pass is a failure, one that passes without being
listed is told.  Below the line ``# flaky:`` stand tests that fail in some runs by a rule of Kafka's: that is told and
is no failure.  What fails, why, and whether it fails with Apache Kafka too, is in FINDINGS.md.
"""

from __future__ import annotations

import inspect
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from conformance.client_folder import CACHE, checksum_of, directory_of, files_below

FOLDERS = Path(__file__).resolve().parent
FLAKY = "# flaky:"


class Outcome(StrEnum):
    """What became of a test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Verdict(NamedTuple):
    """``broken``: had to pass and did not; ``unlisted``: passed and not listed; ``flaked``: listed as flaky and not
    passed; each in order of name."""

    broken: tuple[str, ...]
    unlisted: tuple[str, ...]
    flaked: tuple[str, ...] = ()


class AllowList(NamedTuple):
    """``must_pass``: in every run; ``flaky``: in most."""

    must_pass: tuple[str, ...]
    flaky: tuple[str, ...]


class Suite(ABC):
    """A client's test suite; subclasses say how to get, build and run it."""

    name: ClassVar[str]
    version: ClassVar[str]
    toolchains: ClassVar[tuple[str, ...]] = ()
    # Properties that its authors give the broker; a broker that runs already should have them.
    properties: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    def folder(self) -> Path:
        """What is pinned, and the allow-list."""
        return FOLDERS / self.name

    @property
    def _allow_list(self) -> Path:
        return self.folder / "tests.allow"

    @property
    def cache(self) -> Path:
        """What was fetched and built."""
        return CACHE / "client-suites" / f"{self.name}-{self.version}"

    def prepare(self) -> None:
        """Fetch and build, unless that is done.  Raises ``ToolchainMissing`` and ``RuntimeError``."""
        environment = self.environment(get=True)
        stamp, wanted = self.cache / ".built", self._checksum()
        if stamp.exists() and stamp.read_text() == wanted:
            return
        shutil.rmtree(self.cache, ignore_errors=True)
        self.cache.mkdir(parents=True)
        self.build(environment)
        stamp.write_text(wanted)

    def _checksum(self) -> str:
        """Of what the build follows from: the pins, and the module that says how."""
        pins = [path for path in files_below(self.folder) if path != self._allow_list]
        return checksum_of([*pins, Path(inspect.getfile(type(self)))])

    @abstractmethod
    def build(self, environment: Mapping[str, str]) -> None:
        """Fetch and build into the empty ``cache``.  Raises ``RuntimeError``."""

    @abstractmethod
    def run(self, bootstrap: str, log: Path, selected: Sequence[str] = ()) -> dict[str, Outcome]:
        """Run against a broker, all or the selected tests, with their output in ``log``; returns each outcome."""

    def allowed(self) -> AllowList:
        """The tests that are listed."""
        return parse_allow_list(self._allow_list.read_text())

    def environment(self, more: Mapping[str, str] | None = None, *, get: bool = False) -> dict[str, str]:
        """The environment of builds and runs; with ``get`` a missing toolchain is installed, if PyPI has it."""
        tools = [str(directory_of(toolchain, get=get)) for toolchain in self.toolchains]
        return {**os.environ, "PATH": os.pathsep.join([*tools, os.environ["PATH"]]), **(more or {})}


def parse_allow_list(text: str) -> AllowList:
    """The two parts of an allow-list; lines of comment are passed over."""
    must_pass, _, flaky = text.partition(f"{FLAKY}\n")
    return AllowList(
        *(tuple(line for line in part.split("\n") if line and line[0] != "#") for part in (must_pass, flaky))
    )


def judge(outcomes: Mapping[str, Outcome], allowed: AllowList, selected: Sequence[str] = ()) -> Verdict:
    """Hold a run to an allow-list, or to the tests that it was made of, which then must pass."""
    passed = {test for test, outcome in outcomes.items() if outcome is Outcome.PASSED}
    flaky = () if selected else allowed.flaky
    return Verdict(
        broken=tuple(sorted(set(selected or allowed.must_pass) - passed)),
        unlisted=tuple(sorted(passed.difference(*allowed))),
        flaked=tuple(sorted(set(flaky) - passed)),
    )

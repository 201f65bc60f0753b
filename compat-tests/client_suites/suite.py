"""One client's own test suite: where it is pinned, how it is made ready and run, and which of its tests must pass.

Owns: the shape of a suite, the allow-list beside it, and the verdict over a run.  The allow-list has a test per
line and only grows: a listed test that does not pass is a failure, one that passes without being listed is told.  What
fails, and whether it fails with Apache Kafka too, is in FINDINGS.md.
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

from conformance.client_folder import CACHE, built_by_one, checksum_of, directory_of, files_below

FOLDERS = Path(__file__).resolve().parent


class Outcome(StrEnum):
    """What became of a test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Verdict(NamedTuple):
    """``broken``: listed and not passed; ``unlisted``: passed and not listed; both in order of name."""

    broken: tuple[str, ...]
    unlisted: tuple[str, ...]


class Suite(ABC):
    """A client's test suite; subclasses say how to get, build and run it."""

    name: ClassVar[str]
    version: ClassVar[str]
    toolchains: ClassVar[tuple[str, ...]] = ()
    # Of a suite that is a part of another's tests: whose folder and build it shares.  Its allow-list there is its own.
    part_of: ClassVar[str | None] = None
    allow_list: ClassVar[str] = "tests.allow"
    # It starts what it needs, of the make that it is told, and is given no address.
    starts_its_broker: ClassVar[bool] = False
    # Properties that its authors give the broker; a broker that runs already should have them.
    properties: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    def folder(self) -> Path:
        """What is pinned, and the allow-list."""
        return FOLDERS / (self.part_of or self.name)

    @property
    def _allow_list(self) -> Path:
        return self.folder / self.allow_list

    @property
    def cache(self) -> Path:
        """What was fetched and built."""
        return CACHE / "client-suites" / f"{self.part_of or self.name}-{self.version}"

    def prepare(self) -> None:
        """Fetch and build, unless that is done.  Raises ``ToolchainMissing`` and ``RuntimeError``."""
        with built_by_one(self.cache):
            self._prepare()

    def _prepare(self) -> None:
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
        pins = [path for path in files_below(self.folder) if path.suffix != self._allow_list.suffix]
        return checksum_of([*pins, Path(inspect.getfile(type(self)))])

    @abstractmethod
    def build(self, environment: Mapping[str, str]) -> None:
        """Fetch and build into the empty ``cache``.  Raises ``RuntimeError``."""

    @abstractmethod
    def run(
        self, bootstrap: str, log: Path, selected: Sequence[str] = (), *, replicas: int = 1, apache: bool = False
    ) -> dict[str, Outcome]:
        """Run against a broker, all or the selected tests, with their output in ``log``; returns each outcome.

        ``bootstrap`` is one address or, of a cluster, several with commas; ``replicas`` is how many each partition has.
        ``apache`` says to a suite that starts its broker that it be Apache Kafka's.

        Raises ``subprocess.TimeoutExpired`` for a run that hangs and ``RuntimeError`` for one that tells nothing.
        """

    def allowed(self) -> tuple[str, ...]:
        """The tests that must pass."""
        lines = self._allow_list.read_text().splitlines()
        return tuple(line for line in lines if line and not line.startswith("#"))

    def environment(self, more: Mapping[str, str] | None = None, *, get: bool = False) -> dict[str, str]:
        """The environment of builds and runs; with ``get`` a missing toolchain is installed, if PyPI has it."""
        tools = [str(directory_of(toolchain, get=get)) for toolchain in self.toolchains]
        return {**os.environ, "PATH": os.pathsep.join([*tools, os.environ["PATH"]]), **(more or {})}


def judge(outcomes: Mapping[str, Outcome], must_pass: Sequence[str], allowed: Sequence[str]) -> Verdict:
    """Compare a run with the tests that it had to pass and with all that are listed."""
    passed = {test for test, outcome in outcomes.items() if outcome is Outcome.PASSED}
    return Verdict(
        tuple(sorted(test for test in must_pass if test not in passed)), tuple(sorted(passed.difference(allowed)))
    )

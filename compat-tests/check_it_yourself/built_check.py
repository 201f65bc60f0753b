"""A tool that is built of its sources, once, and kept in the cache.

Owns: that one process builds at a time, and that a build which was broken off is begun anew.  Does not own how.
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

from conformance.client_folder import CACHE, built_by_one

from check_it_yourself.check import Check


class BuiltCheck(Check):
    """``folder`` is the tool's place in the cache, with its version; ``program`` its path below that."""

    folder: str
    program: str

    @property
    def _cache(self) -> Path:
        return CACHE / "check-it-yourself" / self.folder

    @property
    def _program(self) -> Path:
        return self._cache / self.program

    def prepare(self) -> None:
        environment = self._environment()
        with built_by_one(self._cache):
            if self._program.exists():
                return
            shutil.rmtree(self._cache, ignore_errors=True)
            self._cache.mkdir(parents=True)
            self._build(environment)

    @abstractmethod
    def _environment(self) -> Mapping[str, str]:
        """With the compilers on its path.  Raises ``ToolchainMissing``."""

    @abstractmethod
    def _build(self, environment: Mapping[str, str]) -> None:
        """Make the program, of nothing.  Raises ``ToolchainMissing`` and ``RuntimeError``."""

"""Keeps pandas out of a process that answers questions: PyArrow imports it with its first array where it is installed.

That is 40 % of the processor's time to a first row (0.35 s of 0.9), and nothing here wants it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for all modules but pandas, which is not there."""
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not wanted here", name=fullname)
        return None


@contextmanager
def without_pandas() -> Iterator[None]:
    """Inside of the block pandas counts as not installed, unless it is imported already."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)

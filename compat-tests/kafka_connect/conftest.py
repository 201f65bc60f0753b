"""Commands of pages are forked from a process that has imported them, as those of `tests` are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness.forked_commands import ForkedCommands


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    """A folder with a ``pybroker``."""
    with closing(ForkedCommands()) as forked:
        yield forked.bin

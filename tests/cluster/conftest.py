"""The cluster that most tests of this folder start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .fakes import FakeCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """One broker, id 1, no topics."""
    fake = FakeCluster(tmp_path).start()
    yield fake
    fake.close()

"""Topics as tables, of one broker and one session per module."""

from pathlib import Path
from typing import Any

import pytest

from pybroker.testing import Broker
from tests.pipeline.topics.tables import Tables


@pytest.fixture
def tables(spark: Any, pybroker: Broker, tmp_path: Path) -> Tables:
    return Tables(spark, pybroker.bootstrap, tmp_path)

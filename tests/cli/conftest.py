"""The command line pointed at the test run's broker."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.cli.command import CommandLine


@pytest.fixture
def cli(pybroker: Any) -> CommandLine:
    """``pybroker`` against the broker of this test run."""
    return CommandLine(pybroker.bootstrap)


@pytest.fixture
def name() -> str:
    """A topic or group name that no other test uses."""
    return f"cli-{uuid.uuid4().hex[:12]}"

"""The command line pointed at the test run's broker."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.cli.command import CommandLine


@pytest.fixture
def cli(pybroker: Any) -> CommandLine:
    """``pybroker`` against the broker of this module."""
    return CommandLine(pybroker.bootstrap)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses, and that SQL needs no quotes for."""
    return f"sql_{uuid.uuid4().hex[:12]}"

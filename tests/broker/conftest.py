"""Fixtures of the tests against a running broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pybroker.testing import Broker
from tests.broker.wire_client import WireClient


@pytest.fixture
def address(pybroker: Broker) -> tuple[str, int]:
    """Host and port of the broker of its module."""
    return pybroker.host, pybroker.port


@pytest.fixture
def wire(address: tuple[str, int]) -> Iterator[WireClient]:
    """A raw connection to the broker of its module."""
    with WireClient(address) as client:
        yield client

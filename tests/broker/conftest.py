"""Fixtures of the tests against a running broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from pybroker.testing import Broker
from tests.broker.wire_client import WireClient

_PATIENCE_S = 30


@pytest.fixture
def address(kafka_broker: Broker) -> tuple[str, int]:
    """Host and port of the broker of its module."""
    return kafka_broker.host, kafka_broker.port


@pytest.fixture
def wire(address: tuple[str, int]) -> Iterator[WireClient]:
    """A raw connection to the broker of its module."""
    with WireClient(address) as client:
        yield client


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition of another thread or process holds; fails with ``what`` when it never does."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.005)

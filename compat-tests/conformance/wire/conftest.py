"""A connection to the run's broker for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.broker_under_test import BrokerUnderTest
from conformance.wire.asking import Wire, fresh_name, wait_for_coordinator


@pytest.fixture
def wire(broker: BrokerUnderTest) -> Iterator[Wire]:
    """Asks the broker; what it made is gone after the test."""
    made = Wire((broker.host, broker.port))
    yield made
    made.close()


@pytest.fixture
def topic(wire: Wire) -> str:
    """A topic of one partition."""
    return wire.topic()


@pytest.fixture
def group(wire: Wire) -> str:
    """A group that nobody has heard of, whose coordinator is there."""
    name = fresh_name()
    wait_for_coordinator(wire, name)
    return name


@pytest.fixture
def transactional_id() -> str:
    return fresh_name()

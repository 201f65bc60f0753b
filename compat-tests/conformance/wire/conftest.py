"""A connection to the run's broker for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.broker_under_test import BrokerUnderTest
from conformance.wire.asking import GROUP, TRANSACTION, Wire


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
def lone_topic(wire: Wire) -> str:
    """A topic without followers: what is acknowledged by its leader alone is read at once."""
    return wire.topic(replicated=False)


@pytest.fixture
def group(wire: Wire) -> str:
    """A group that nobody has heard of, whose coordinator is there."""
    return wire.name_of(GROUP)


@pytest.fixture
def transactional_id(wire: Wire) -> str:
    """As ``group``."""
    return wire.name_of(TRANSACTION)

"""A pytest plugin: the former names of ``pybroker`` and its topic.  Whether they hold ``pytest_plugin`` decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from pybroker.testing.pytest_plugin import fresh_topic

if TYPE_CHECKING:
    from pybroker.testing.in_process_broker import Broker, Setting
    from pybroker.testing.security import Security


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, Setting]:
    """The former name of ``pybroker_settings``."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker_security() -> Security | str | None:
    """The former name of ``pybroker_security``."""
    return None


@pytest.fixture(scope="session")
def kafka_broker(pybroker: Broker) -> Broker:
    """The former name of ``pybroker``."""
    return pybroker


@pytest.fixture
def kafka_topic(kafka_broker: Broker) -> Iterator[str]:
    """The former name of ``pybroker_topic``; of the ``kafka_broker`` that a conftest may have replaced."""
    with fresh_topic(kafka_broker) as name:
        yield name

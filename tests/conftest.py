"""A broker per module instead of one per run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from pybroker.testing import Broker
from pybroker.testing.broker import Setting


@pytest.fixture(scope="module")
def kafka_broker(kafka_broker_settings: Mapping[str, Setting]) -> Iterator[Broker]:
    """The plugin's broker, which ends with the module: tests elsewhere fail the process's disk, and count its calls."""
    with Broker(kafka_broker_settings) as broker:
        yield broker

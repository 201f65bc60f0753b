"""A broker per module instead of one per run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from pybroker.testing import Broker
from pybroker.testing.broker import Setting
from tests.cli.command import end_forked_commands


@pytest.fixture(scope="session", autouse=True)
def forked_commands_end() -> Iterator[None]:
    """The process that client commands are forked from ends with the tests."""
    yield
    end_forked_commands()


@pytest.fixture(scope="module")
def kafka_broker(kafka_broker_settings: Mapping[str, Setting]) -> Iterator[Broker]:
    """The plugin's broker, which ends with the module: tests elsewhere fail the process's disk, and count its calls."""
    with Broker(kafka_broker_settings) as broker:
        yield broker

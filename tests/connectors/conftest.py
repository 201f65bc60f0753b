"""What tests of connectors on Spark share: a session, or a supervisor whose connectors end with their test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness.spark_sessions import SparkSessions

from examples.tour.postgres import DRIVER_JAR
from pybroker.testing import Broker
from tests.connectors.supervisor_world import World


@pytest.fixture(scope="module")
def spark(spark_sessions: SparkSessions) -> Iterator[Any]:
    """With the driver that a supervisor's session has."""
    with spark_sessions.lend(packages=[DRIVER_JAR]) as session:
        yield session


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for a module's tests: it costs seconds to start."""
    with Broker() as broker, World(broker, tmp_path_factory.mktemp("connect")) as made:
        yield made


@pytest.fixture
def world(supervisor: World) -> Iterator[World]:
    """The module's supervisor; a connector that ran on would take its part of the processors."""
    yield supervisor
    supervisor.delete_all()

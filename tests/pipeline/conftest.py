"""Spark and PostgreSQL: one session and one server for all tests of a process, because they cost seconds."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from harness.spark_sessions import SparkSessions

from examples.tour.postgres import DRIVER_JAR, Postgres, own_postgres


@pytest.fixture(scope="module")
def spark(spark_sessions: SparkSessions) -> Iterator[Any]:
    """What a module sets in it ends with the module."""
    with spark_sessions.lend(packages=[DRIVER_JAR]) as session:
        yield session


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Of the whole run: modules come between those that ask for it."""
    with own_postgres() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def no_client_waits_for_a_broker_that_is_gone() -> Iterator[None]:
    """Close what a module's reading and writing in this process keeps for the next time: it would connect for ever."""
    yield
    for name in ("range_reader", "epoch_transactions", "client_calls"):
        module = sys.modules.get(f"pybroker.pipeline.topics.{name}")
        if module is not None:
            module.close_idle()


@pytest.fixture
def drive(spark: Any) -> Iterator[Any]:
    """Starts the test driver of a job, which ends with the test."""
    from pybroker.pipeline.testing import JobDriver

    drivers: list[JobDriver] = []

    def start(job: Any, **given: Any) -> JobDriver:
        drivers.append(JobDriver(spark, job, **given))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()

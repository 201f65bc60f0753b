"""Spark, once per module: a session costs seconds, and only one can be in a process."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pybroker import pipeline

    session = pipeline.session("tests", master="local[2]", settings=pipeline.SHORT_LIVED)
    yield session
    pipeline.end_session(session)


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

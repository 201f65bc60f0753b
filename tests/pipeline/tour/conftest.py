"""A Spark session and a PostgreSQL for the tests of this folder."""

from collections.abc import Iterator
from typing import Any

import pytest

from pybroker.pipeline.tour.postgres import DRIVER_JAR, Postgres, own_postgres


@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    from pybroker.pipeline.spark_session import SHORT_LIVED, end_session, session

    started = session("real-input", master="local[2,4]", settings=SHORT_LIVED, packages=[DRIVER_JAR], connector=False)
    yield started
    end_session(started)


@pytest.fixture(scope="package")
def postgres() -> Iterator[Postgres]:
    with own_postgres() as server:
        yield server

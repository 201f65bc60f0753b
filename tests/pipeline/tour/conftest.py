"""A PostgreSQL for the tests of this folder."""

from collections.abc import Iterator

import pytest

from pybroker.pipeline.tour.postgres import Postgres, own_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Of the whole run: modules of other folders come between those of this one."""
    with own_postgres() as server:
        yield server

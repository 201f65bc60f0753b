"""The database that a connector's keys name.  Its outages are lines of the log, under the connector's name."""

from __future__ import annotations

import logging

from pybroker.connectors.kinds.connector_runs import Work
from pybroker.pipeline.postgres_database import Database

_log = logging.getLogger(__name__)


def database_of(work: Work) -> Database:
    """It is reached as the connector's user, and waited for as long as the connector's keys say."""
    login = {"user": work.value("connection.user"), "password": work.value("connection.password")}
    given = {name: value for name, value in login.items() if value is not None}

    def tell(text: str) -> None:
        _log.warning("%s: %s", work.name, text)

    return Database(work.value("connection.url"), given, work.patience_s, tell, work.ends)

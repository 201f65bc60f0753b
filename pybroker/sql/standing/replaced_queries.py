"""A query that is started under a name, in place of a former one where there is one.

Owns the order: the former one is at rest before it goes, and comes back where the other one does not run.

A connector has the former one's name, so that both are not there at a time.  What comes back begins anew: a table has
the same rows then, and a stream would have its records twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pybroker.sql.sql_errors import Interrupted, SqlError
from pybroker.sql.standing.hosted_queries import FAILED, RUNNING, HostedQueries, HostedQuery


class NotStarted(SqlError):
    """A query does not run, and is not there any more."""


class Replacement:
    """One start of a query; ``former`` is the one that it replaces, which makes a table or a stream (``kind``)."""

    def __init__(self, queries: HostedQueries, name: str, former: HostedQuery | None, kind: str) -> None:
        self._queries = queries
        self._name = name
        self._former = former
        self._comes_back = kind == "TABLE"

    def start(self, config: Mapping[str, str], at_rest: Callable[[], None] = lambda: None) -> None:
        """Have it run; ``at_rest`` is called when the former one writes nothing more.

        Raises ``SqlError``, with the former one as it was.
        """
        former = self._former
        try:
            if former is not None:
                self._queries.pause(former.name)
            at_rest()
        except BaseException:
            if former is not None:
                self._queries.let_go_on(former.name)
            raise
        if former is not None:
            self._queries.end(former.name)
        try:
            self._queries.start(self._name, config)
        except BaseException:
            self._come_back()
            raise

    def settled(self) -> HostedQuery:
        """The query, once it runs; raises ``NotStarted``, and ``Interrupted``, with the former one back.

        Without a former one a query that takes long is as it is.
        """
        try:
            found = self._queries.settled(self._name, RUNNING)
        except Interrupted:
            if self._former is not None:
                self._go_back()
            raise
        if found.state == RUNNING or (found.state != FAILED and self._former is None):
            return found
        why = found.reason if found.state == FAILED else f"it is {found.state}"
        raise NotStarted(f"the query {self._name} could not be started: {why}{self._go_back()}")

    def _go_back(self) -> str:
        self._queries.end(self._name)
        return self._come_back()

    def _come_back(self) -> str:
        """Have the former query run again; what is to be said of it."""
        former = self._former
        if former is None:
            return ""
        if not self._comes_back:
            return f"; the former query is ended, for its stream would have its records twice: {former.statement}"
        self._queries.start(former.name, former.config)
        return "; the former query is started again"

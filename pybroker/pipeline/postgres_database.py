"""A database of PostgreSQL as jobs reach it, by the driver that the session's JVM has; an outage is waited for.

Owns connections, and what an outage is, as opposed to a refusal.  Knows no table.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

DRIVER_CLASS = "org.postgresql.Driver"

PATIENCE_S = 300.0
ASK_AGAIN_AFTER_S = 0.5

# The driver's: for how long a connection may take, and a statement that a database gone without a word leaves open.
_TIMEOUTS = {"connectTimeout": "5", "socketTimeout": "300"}


class DatabaseGone(RuntimeError):
    """The database did not answer for longer than the sink waits, or the waiting was ended."""


class Transaction:
    """What is done in one: by a connection of the JVM's, which others leave alone meanwhile."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, *statements: str) -> None:
        """One after the other."""
        statement = self._connection.createStatement()
        for text in statements:
            statement.execute(text)

    def rows(self, query: str, columns: int) -> list[tuple[str | None, ...]]:
        """The rows of a small result as text, ``columns`` of each."""
        found = self._connection.createStatement().executeQuery(query)
        rows: list[tuple[str | None, ...]] = []
        while found.next():
            rows.append(tuple(found.getString(at) for at in range(1, columns + 1)))
        return rows

    def copy(self, statement: str, stream: Any) -> None:
        """Give a ``COPY … FROM STDIN`` what a stream of the JVM's has."""
        self._connection.getCopyAPI().copyIn(statement, stream)


class Database:
    """A database by its URL and the driver's properties; ``ends``, where it is set, ends a wait for it.

    ``on_outage`` gets a line when a wait begins, and when it is over.
    """

    def __init__(
        self,
        url: str,
        properties: Mapping[str, str],
        patience_s: float,
        on_outage: Callable[[str], None],
        ends: threading.Event | None = None,
    ) -> None:
        self.url = url
        # Its parameters may have a password.
        self._shown = url.partition("?")[0]
        self.properties = {**_TIMEOUTS, **properties, "driver": DRIVER_CLASS}
        self._patience_s = patience_s
        self._on_outage = on_outage
        self._ends = threading.Event() if ends is None else ends

    @contextmanager
    def transaction(self, spark: SparkSession) -> Iterator[Transaction]:
        """One that is committed where the block ends without an error, and undone else."""
        with self.connection(spark) as connection:
            connection.setAutoCommit(False)
            yield Transaction(connection)
            connection.commit()

    def execute(self, spark: SparkSession, *statements: str) -> None:
        """In a transaction of their own."""
        with self.transaction(spark) as transaction:
            transaction.execute(*statements)

    def rows(self, spark: SparkSession, query: str, columns: int) -> list[tuple[str | None, ...]]:
        """The rows of a small result as text, ``columns`` of each."""
        with self.transaction(spark) as transaction:
            return transaction.rows(query, columns)

    def wait_until_it_answers(self, spark: SparkSession) -> None:
        """Returns when it does; raises `DatabaseGone`."""
        deadline = monotonic() + self._patience_s
        is_out = False
        while (reason := self.refusal(spark)) is not None:
            if monotonic() > deadline:
                raise DatabaseGone(f"{self._shown} did not answer for {self._patience_s:.0f} s: {reason}")
            if not is_out:
                self._on_outage(
                    f"The database does not answer; waiting for it up to {self._patience_s:.0f} s: {reason}"
                )
                is_out = True
            if self._ends.wait(ASK_AGAIN_AFTER_S):
                raise DatabaseGone(f"{self._shown} does not answer: {reason}")
        if is_out:
            self._on_outage("The database answers again.")

    def refusal(self, spark: SparkSession) -> str | None:
        """Why the database can't be had now."""
        try:
            with self.connection(spark):
                return None
        except Py4JJavaError as error:
            state = error.java_exception.getSQLState() or ""
            # Class 08: no connection; 57P: it shuts down, or starts up.  A wrong password is no outage.
            if not state.startswith(("08", "57P")):
                raise
            return str(error.java_exception.getMessage()).partition(". ")[0]

    @contextmanager
    def connection(self, spark: SparkSession) -> Iterator[Any]:
        """A connection of the JVM's.  (DriverManager knows no driver that came with a session's jars.)"""
        jvm: Any = spark._jvm
        given = jvm.java.util.Properties()
        for name, value in self.properties.items():
            given.setProperty(name, value)
        driver = jvm.org.postgresql.Driver
        if not isinstance(driver, JavaClass):
            raise RuntimeError(f"the session has no {DRIVER_CLASS}: it wants the package org.postgresql:postgresql")
        connection = driver().connect(self.url, given)
        if connection is None:
            raise ValueError(f"no URL of PostgreSQL, which begins with jdbc:postgresql: {self._shown}")
        try:
            yield connection
        finally:
            connection.close()

"""The session of Spark that tests share: a process may have one at a time, and its start costs seconds.

Owns that session: it is kept while tests ask for one of its kind, ends before one of another kind begins, and has the
settings of its start again when a borrower is done.  Knows nothing of brokers or tests; imports PySpark when a session
is asked for, since environments without it collect the tests, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple

LOCAL_MASTER: Final = "local[2,4]"  # a task that fails is tried again, as on a cluster
# A task in Python that takes longer than any test's says on stderr where it is.
TELL_WHERE_A_TASK_HANGS: Final = {"spark.python.worker.tracebackDumpIntervalSeconds": "200"}


class Kind(NamedTuple):
    """What makes two sessions different; as `pybroker.pipeline.session` takes it."""

    master: str
    settings: Mapping[str, str]
    packages: Sequence[str]
    connector: bool


class SparkSessions:
    """The sessions of a process, one after another."""

    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._session: Any = None

    @contextmanager
    def lend(
        self,
        master: str = LOCAL_MASTER,
        settings: Mapping[str, str] = MappingProxyType({}),
        packages: Sequence[str] = (),
        *,
        connector: bool = True,
    ) -> Iterator[Any]:
        """A session of minutes of that kind; one borrower at a time.  Raises as `pybroker.pipeline.session` does."""
        session = self._of(Kind(master, dict(settings), tuple(packages), connector))
        before = dict(session.conf.getAll)
        try:
            yield session
        finally:
            for query in session.streams.active:  # of a test that failed
                query.stop()
            _restore(session.conf, before)

    def end(self) -> None:
        """End the session that there is, if any."""
        session, self._session, self._kind = self._session, None, None
        if session is not None:
            from pybroker import pipeline

            pipeline.end_session(session)

    def _of(self, kind: Kind) -> Any:
        from pybroker import pipeline

        if kind != self._kind:
            self.end()
            self._session = pipeline.session(
                "tests",
                master=kind.master,
                settings={**pipeline.SHORT_LIVED, **TELL_WHERE_A_TASK_HANGS, **kind.settings},
                packages=kind.packages,
                connector=kind.connector,
            )
            self._kind = kind
        return self._session


def _restore(conf: Any, before: Mapping[str, str]) -> None:
    from pyspark.errors import AnalysisException

    now = conf.getAll
    for name in now.keys() | before.keys():
        with suppress(AnalysisException):  # of one that a running session does not heed
            if name not in before:
                conf.unset(name)
            elif now.get(name) != before[name]:
                conf.set(name, before[name])

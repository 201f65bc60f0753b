"""The run that writes, and what its tasks report to the driver.

Owns no protocol (``claims``, ``epoch_transactions``), and imports neither librdkafka nor Arrow. The driver's process
that hears the answers of a micro-batch mostly has nothing to decide, and is started for it.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

MARKS_TOPIC = "__pybroker_spark"


class QueryRun(NamedTuple):
    """A run of a query, under the name by which it writes; ``marks_topic`` as in ``marks``."""

    group: str
    query: str
    run: str
    marks_topic: str = MARKS_TOPIC

    def slot(self, task: int) -> str:
        """Transactional id of a task number."""
        return f"{self.group}-{task}"

    @property
    def claim(self) -> str:
        """Transactional id of who claims."""
        return f"{self.group}-claim"

    @property
    def marks(self) -> str:
        """Consumer group of the claim, the decision and the marks: the group itself shows the query's lag."""
        return f"{self.group}-marks"


class Outcome(StrEnum):
    """What has become of a task's rows."""

    EMPTY = "empty"
    WRITTEN = "written"
    FOUND = "found"
    HELD = "held"


class Written(NamedTuple):
    """A task's answer to the driver.  ``before`` are the tasks of this epoch that earlier runs had committed."""

    task: int
    rows: int
    outcome: Outcome
    query_run: QueryRun
    epoch: int
    before: frozenset[int] = frozenset()


def is_decided(written: Iterable[Written | None]) -> bool:
    """Whether nothing is held back, and no earlier run had a part in it."""
    return not any(each and (each.outcome is Outcome.HELD or each.before) for each in written)

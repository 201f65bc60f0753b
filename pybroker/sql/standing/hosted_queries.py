"""The standing queries of a supervisor, by Kafka Connect's REST interface, of which each is a connector.

Owns the requests, and what a query is to a session.  The transport is a port; what runs is the supervisor's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pybroker.sql.relations.cluster_port import Supervisor
from pybroker.sql.sql_errors import Interrupted, SqlError, nearest
from pybroker.sql.standing.standing_plans import STANDING_QUERY

RUNNING, PAUSED, FAILED = "RUNNING", "PAUSED", "FAILED"
# A supervisor starts Spark with its first query, which may take longer than a person waits.
PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class HostedQuery:
    """One query.  ``reads`` are the topics that it reads, ``writes`` is its own.

    ``reason`` is why it failed, or which records it leaves out; ``config`` is what it was started with.
    """

    name: str
    state: str
    reads: tuple[str, ...]
    writes: str
    statement: str
    reason: str | None
    config: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)


class HostedQueries:
    """Asks one supervisor; raises ``SqlError`` for one that does not answer."""

    def __init__(self, supervisor: Supervisor, is_interrupted: Callable[[], bool]) -> None:
        self._supervisor = supervisor
        self._is_interrupted = is_interrupted

    def all(self) -> list[HostedQuery]:
        """All queries, in the order of their names."""
        found = self._supervisor.ask("GET", "connectors", expand=("info", "status"))
        return [
            _query(name, each["info"]["config"], each.get("status"))
            for name, each in sorted(found.items())
            if each.get("info", {}).get("config", {}).get("connector.class") == STANDING_QUERY
        ]

    def named(self, name: str) -> HostedQuery:
        """The query of a name, in any case; ``SqlError`` with the nearest."""
        queries = {each.name.lower(): each for each in self.all()}
        if name.lower() not in queries:
            raise SqlError(f"there is no query {name}{nearest(name, [each.name for each in queries.values()])}")
        return queries[name.lower()]

    def start(self, name: str, config: Mapping[str, str]) -> None:
        """Have it run; ``SqlError`` where a connector has the name."""
        self._supervisor.ask("POST", "connectors", body={"name": name, "config": dict(config)})

    def pause(self, name: str) -> None:
        """Have it rest; returns when it does, and raises ``SqlError`` where that takes too long."""
        self._supervisor.ask("PUT", "connectors", name, "pause")
        if (found := self._awaited(name, (PAUSED,))).state != PAUSED:
            raise SqlError(f"the query {name} does not come to rest: it is {found.state} after {PATIENCE_S:.0f} s")

    def let_go_on(self, name: str) -> None:
        """Take a pause back, without waiting for the query."""
        self._supervisor.ask("PUT", "connectors", name, "resume")

    def resume(self, name: str) -> None:
        """Have it go on; raises ``SqlError`` with the reason where it fails."""
        self.let_go_on(name)
        if (found := self.settled(name, RUNNING)).state == FAILED:
            raise SqlError(f"the query {name} failed: {found.reason}")

    def end(self, name: str) -> None:
        """End it for good.  What it wrote stays."""
        self._supervisor.ask("DELETE", "connectors", name)

    def settled(self, name: str, state: str) -> HostedQuery:
        """The query, once it has a state or failed; as it is, where that takes too long.  Raises ``Interrupted``."""
        return self._awaited(name, (state, FAILED))

    def _awaited(self, name: str, states: tuple[str, ...]) -> HostedQuery:
        deadline_s = time.monotonic() + PATIENCE_S
        while (found := self.named(name)).state not in states and time.monotonic() < deadline_s:
            if self._is_interrupted():
                raise Interrupted
            time.sleep(_LOOK_S)
        return found

    def offsets(self, name: str) -> dict[tuple[str, int], int]:
        """How far it has read, by topic and partition."""
        found = self._supervisor.ask("GET", "connectors", name, "offsets")["offsets"]
        return {
            (each["partition"]["kafka_topic"], each["partition"]["kafka_partition"]): each["offset"]["kafka_offset"]
            for each in found
        }


def _query(name: str, config: Mapping[str, str], status: Mapping[str, Any] | None) -> HostedQuery:
    # The task is the part of a connector that may fail.
    parts = [] if status is None else [*status["tasks"], status["connector"]]
    state = str(parts[0]["state"]) if parts else "UNASSIGNED"
    trace = parts[0].get("trace") if parts else None
    reads = tuple(each for each in config.get("topics", "").split(",") if each)
    remark = parts[0].get("remark") if parts else None
    reason = (str(trace or "").strip().splitlines() or ["its log says why"])[0] if state == FAILED else remark
    return HostedQuery(name, state, reads, config.get("topic", ""), config.get("statement", ""), reason, config)

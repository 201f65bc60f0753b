"""A supervisor in memory, behind the port that SQL wants: Kafka Connect's REST interface, as far as queries use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pybroker.sql.sql_errors import SqlError


class FakeSupervisor:
    """Connectors that do at once what is meant; ``failures`` has the reason of each one that fails.

    ``remarks`` has what there is to know of one that runs.  ``refusals`` are said to those that are to be started next,
    and ``on_start`` is called with each start.  One that is restless pauses none,
    and one that is slow starts none.
    """

    def __init__(self) -> None:
        self.configs: dict[str, Mapping[str, str]] = {}
        self.states: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.remarks: dict[str, str] = {}
        self.offsets: dict[str, dict[tuple[str, int], int]] = {}
        self.paused: list[str] = []
        self.is_away = False
        self.is_restless = False
        self.is_slow = False
        self.refusals: list[str] = []
        self.on_start: Callable[[], object] = lambda: None

    def ask(self, method: str, *path: str, body: Any = None, **query: str | Sequence[str]) -> Any:
        if self.is_away:
            raise SqlError("standing queries need a supervisor")
        match (method, *path[1:]):
            case ["GET"]:
                return {
                    name: {"info": {"config": self.configs[name]}, "status": self._status(name)}
                    for name in self.configs
                }
            case ["POST"]:
                if self.refusals:
                    raise SqlError(self.refusals.pop())
                if body["name"] in self.configs:
                    raise SqlError(f"Connector {body['name']} already exists")
                self.configs[body["name"]] = body["config"]
                started = "UNASSIGNED" if self.is_slow else "RUNNING"
                self.states[body["name"]] = "FAILED" if body["name"] in self.failures else started
                self.on_start()
            case "PUT", name, "pause":
                if not self.is_restless:
                    self.states[str(name)] = "PAUSED"
                    self.paused.append(str(name))
            case "PUT", name, "resume":
                self.states[str(name)] = "RUNNING"
            case "DELETE", name:
                del self.configs[str(name)]
            case "GET", name, "offsets":
                found = self.offsets.get(str(name), {})
                return {
                    "offsets": [
                        {"partition": {"kafka_topic": topic, "kafka_partition": each}, "offset": {"kafka_offset": at}}
                        for (topic, each), at in found.items()
                    ]
                }
            case other:
                raise AssertionError(other)
        return None

    def _status(self, name: str) -> dict[str, Any]:
        task = {"id": 0, "state": self.states[name], "trace": self.failures.get(name), "remark": self.remarks.get(name)}
        return {"connector": {"state": "RUNNING"}, "tasks": [task]}

"""What the three topics of a supervisor say, as records and back.

Forms and keys are Kafka Connect's: its tools read these topics, and a supervisor finds what Connect has left there.
Owns no client.  Counterparts in Kafka: ``KafkaConfigBackingStore``, ``KafkaStatusBackingStore``,
``KafkaOffsetBackingStore``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

_CONNECTOR: Final = "connector-"
_TARGET: Final = "target-state-"
_RUN: Final = "run-"
_STATUS: Final = "status-connector-"
_TASK_STATUS: Final = "status-task-"
_TOPIC_STATUS: Final = "status-topic-"
_BETWEEN: Final = ":connector-"


class Target(StrEnum):
    """What a connector is meant to do; a paused one keeps its place, a stopped one may be given another."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(StrEnum):
    """What a connector does."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    UNASSIGNED = "UNASSIGNED"
    RESTARTING = "RESTARTING"


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a connector's task, why it failed, and what is to be known of one that runs.

    Connect has no ``remark``, and passes over it in the topic.
    """

    state: State
    trace: str | None = None
    worker: str = ""
    remark: str | None = None


@dataclass(slots=True)
class Known:
    """All that the topics say.  ``runs`` counts the checkpoints of a connector: each reset of offsets begins one.

    ``offsets`` has, by connector, the offset of each partition of its source; a partition is JSON text.
    """

    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, Status] = field(default_factory=dict)
    topics: dict[str, set[str]] = field(default_factory=dict)
    offsets: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def take_config(self, key: bytes | None, value: bytes | None) -> None:
        """A record of the topic of configurations; what is not understood is passed over, as Connect does."""
        name = _text(key)
        said = _document(value)
        if name.startswith(_CONNECTOR):
            name = name.removeprefix(_CONNECTOR)
            properties = said.get("properties")
            if value is None:
                self.configs.pop(name, None)
            elif isinstance(properties, dict):
                self.configs[name] = {str(each): str(text) for each, text in properties.items() if text is not None}
        elif name.startswith(_TARGET):
            name = name.removeprefix(_TARGET)
            found = said.get("state.v2") or said.get("state")
            if value is None:
                self.targets.pop(name, None)
            elif found in set(Target):
                self.targets[name] = Target(found)
        elif name.startswith(_RUN) and isinstance(said.get("number"), int):
            self.runs[name.removeprefix(_RUN)] = said["number"]

    def take_status(self, key: bytes | None, value: bytes | None) -> None:
        """A record of the topic of statuses."""
        name = _text(key)
        said = _document(value)
        if name.startswith(_TASK_STATUS):
            name = name.removeprefix(_TASK_STATUS).rpartition("-")[0]
            if value is None:
                self.statuses.pop(name, None)
            elif said.get("state") in set(State):
                worker, remark = str(said.get("worker_id", "")), said.get("remark")
                self.statuses[name] = Status(State(said["state"]), said.get("trace"), worker, remark)
        elif name.startswith(_TOPIC_STATUS):
            # No topic has a colon in its name, and a connector may.
            topic, _, connector = name.removeprefix(_TOPIC_STATUS).partition(_BETWEEN)
            topics = self.topics.setdefault(connector, set())
            topics.discard(topic) if value is None else topics.add(topic)

    def take_offset(self, key: bytes | None, value: bytes | None) -> None:
        """A record of the topic of offsets."""
        try:
            connector, partition = json.loads(_text(key))
        except (ValueError, TypeError, RecursionError):
            return
        if not isinstance(connector, str) or not isinstance(partition, dict):
            return
        offsets = self.offsets.setdefault(connector, {})
        if value is None:
            offsets.pop(canonical(partition), None)
        elif said := _document(value):
            offsets[canonical(partition)] = said


Record = tuple[bytes, bytes | None]


def config_record(name: str, config: Mapping[str, str] | None) -> Record:
    """A connector's configuration; ``None`` deletes it."""
    return _key(_CONNECTOR + name), None if config is None else _value({"properties": dict(config)})


def target_record(name: str, target: Target | None) -> Record:
    """What a connector is meant to do.  Connects of before KIP-875 take a stopped one for paused."""
    if target is None:
        return _key(_TARGET + name), None
    former = Target.PAUSED if target is Target.STOPPED else target
    return _key(_TARGET + name), _value({"state": former, "state.v2": target})


def run_record(name: str, number: int) -> Record:
    """Which checkpoint a connector is at.  It outlives the connector: one of the same name begins anew."""
    return _key(_RUN + name), _value({"number": number})


def status_records(name: str, status: Status | None) -> list[Record]:
    """The status of a connector and of its task, which is the part of it that may fail."""
    keys = (_key(_STATUS + name), _key(f"{_TASK_STATUS}{name}-0"))
    if status is None:
        return [(key, None) for key in keys]
    of_task = {"state": status.state, "trace": status.trace, "worker_id": status.worker, "generation": 0}
    of_connector = {**of_task, "state": connector_state(status), "trace": None}
    if status.remark is not None:
        of_task["remark"] = status.remark
    return [(keys[0], _value(of_connector)), (keys[1], _value(of_task))]


def connector_state(status: Status) -> State:
    """The state that Connect tells of the connector, beside that of its task."""
    return State.RUNNING if status.state is State.FAILED else status.state


def topic_record(name: str, topic: str, *, is_used: bool = True) -> Record:
    """That a connector has read or written a topic (KIP-558)."""
    said = {"topic": {"name": topic, "connector": name, "task": 0, "discoverTimestamp": 0}}
    return _key(f"{_TOPIC_STATUS}{topic}{_BETWEEN}{name}"), _value(said) if is_used else None


def offset_record(name: str, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Record:
    """Where a source is in one of its partitions; ``None``: at its beginning."""
    key = json.dumps([name, dict(partition)], separators=(",", ":"), sort_keys=True).encode()
    return key, None if offset is None else _value(offset)


def canonical(partition: Mapping[str, Any]) -> str:
    """A source's partition as text that is the same for the same partition."""
    return json.dumps(dict(partition), separators=(",", ":"), sort_keys=True)


def _key(text: str) -> bytes:
    return text.encode()


def _value(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode(errors="replace")


def _document(raw: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(raw or b"{}")
    except (ValueError, RecursionError):
        return {}
    # Connect may write the schema beside it.
    if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
        found = found["payload"]
    return found if isinstance(found, dict) else {}

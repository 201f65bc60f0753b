"""What may be asked of a supervisor: Kafka Connect's operations, with Connect's refusals.

Owns their meaning, and the documents that answer them.  Knows no HTTP: `rest_server` does.  Counterpart in Kafka:
``DistributedHerder`` and ``ConnectorsResource``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pybroker.connectors.declared.common_keys import check_name
from pybroker.connectors.declared.config_keys import Key
from pybroker.connectors.declared.connector_kind import Kind
from pybroker.connectors.declared.converter_names import CLASSES_OF_CONVERTERS
from pybroker.connectors.declared.plugin_kinds import KINDS, kind_named, unknown_kind
from pybroker.connectors.declared.secret_texts import hidden, shown
from pybroker.connectors.declared.transforms import CLASSES_OF_TRANSFORMS
from pybroker.connectors.declared.validation import document, key_document, refusal
from pybroker.connectors.state.state_records import (
    State,
    Status,
    Target,
    config_record,
    connector_state,
    offset_record,
    run_record,
    status_records,
    target_record,
    topic_record,
)
from pybroker.connectors.state.state_topics import StateTopics
from pybroker.connectors.supervision.connector_offsets import (
    GroupOffsets,
    OffsetsRefused,
    offset_pairs,
    sink_offsets,
    source_offsets,
)
from pybroker.connectors.supervision.connector_supervisor import Supervisor

BAD_REQUEST, NOT_FOUND, CONFLICT = 400, 404, 409


class RequestRefused(Exception):
    """A request that is not done: the code of HTTP, and Connect's words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(slots=True)
class Operations:
    """The operations of one supervisor; may be called by several threads, one at a time."""

    state: StateTopics
    supervisor: Supervisor
    groups: GroupOffsets
    worker: str
    version: str
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    # --- what there is -----------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All connectors."""
        return sorted(self.state.known.configs)

    def info(self, name: str) -> dict[str, Any]:
        """A connector's configuration and tasks; one that is stopped, or was not started yet, has none."""
        config = self.config(name)
        tasks = [{"connector": name, "task": 0}] if self._has_task(name) else []
        return {"name": name, "config": config, "tasks": tasks, "type": _type(config)}

    def config(self, name: str) -> dict[str, str]:
        """A connector's configuration.  Where a topic has a secret in plain text, from Connect, it is hidden."""
        return _shown(self._config(name))

    def status(self, name: str) -> dict[str, Any]:
        """A connector's state, and that of its task with the reason of its failure."""
        config = self.state.known.configs.get(name)
        status = self.state.known.statuses.get(name)
        if config is None or status is None:
            raise RequestRefused(NOT_FOUND, f"No status found for connector {name}")
        tasks = []
        if status.state is not State.STOPPED:
            task = {"id": 0, "state": status.state, "worker_id": status.worker or self.worker}
            tasks.append({**task, "version": self.version, **_told(status)})
        connector = {
            "state": connector_state(status),
            "worker_id": status.worker or self.worker,
            "version": self.version,
        }
        return {"name": name, "connector": connector, "tasks": tasks, "type": _type(config)}

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """The configuration of each task."""
        config = self.config(name)
        if not self._has_task(name):
            return []
        return [{"id": {"connector": name, "task": 0}, "config": config}]

    def task_status(self, name: str, task: int) -> dict[str, Any]:
        """The state of a task."""
        tasks = self.status(name)["tasks"] if name in self.state.known.statuses else []
        if task != 0 or not tasks:
            raise RequestRefused(NOT_FOUND, f"No status found for task {name}-{task}")
        found: dict[str, Any] = tasks[0]
        return found

    def topics(self, name: str) -> dict[str, Any]:
        """The topics that a connector has used (KIP-558); none of one that there is not."""
        return {name: {"topics": sorted(self.state.known.topics.get(name, set()))}}

    def plugins(self, *, connectors_only: bool = True) -> list[dict[str, str]]:
        """The kinds of connectors; else also the transforms and converters that are taken, by Connect's classes."""
        found: list[tuple[str, str]] = [(kind.name, kind.type) for kind in KINDS]
        if not connectors_only:
            found += [(name, "transformation") for name in CLASSES_OF_TRANSFORMS]
            found += [(name, "converter") for name in CLASSES_OF_CONVERTERS]
        return [{"class": name, "type": kind, "version": self.version} for name, kind in found]

    def plugin_keys(self, name: str) -> list[dict[str, Any]]:
        """The keys of a kind."""
        return [key_document(key, order) for order, key in enumerate(self._plugin(name).keys, start=1)]

    def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        """A configuration judged."""
        kind, given = kind_named(plugin), config.get("connector.class")
        if given is None:
            raise RequestRefused(BAD_REQUEST, "Connector config contains no connector type")
        if kind is None and given == plugin:
            raise RequestRefused(BAD_REQUEST, unknown_kind(given))
        if kind is None or kind_named(given) is not kind:
            raise RequestRefused(BAD_REQUEST, f"Included connector type {given} does not match request type {plugin}")
        return document(kind, config)

    # --- changes -----------------------------------------------------------------------------------------------------

    def create(self, name: str, config: Mapping[str, str], target: Target = Target.STARTED) -> dict[str, Any]:
        """A new connector."""
        with self._lock:
            full = self._checked(name, config)
            if name in self.state.known.configs:
                raise RequestRefused(CONFLICT, f"Connector {name} already exists")
            self.state.write_configs([target_record(name, target), config_record(name, full)])
            self._unassigned(name)
            return self.info(name)

    def put(self, name: str, config: Mapping[str, str]) -> tuple[bool, dict[str, Any]]:
        """A connector's configuration, whole; whether it is new, and the connector."""
        with self._lock:
            full = self._checked(name, config)
            is_new = name not in self.state.known.configs
            targets = [target_record(name, Target.STARTED)] if is_new else []
            self.state.write_configs([*targets, config_record(name, full)])
            if is_new:
                self._unassigned(name)
            self.supervisor.wake()
            return is_new, self.info(name)

    def patch(self, name: str, changes: Mapping[str, str | None]) -> dict[str, Any]:
        """A connector's configuration, in part (KIP-477): null removes a key."""
        with self._lock:
            config: dict[str, str | None] = {**self._config(name), **changes}
            return self.put(name, {key: text for key, text in config.items() if text is not None})[1]

    def delete(self, name: str) -> None:
        """Forget a connector.  A sink's group stays, as Connect leaves it; a later one of the name goes on there."""
        with self._lock:
            self._config(name)
            known = self.state.known
            used = [topic_record(name, topic, is_used=False) for topic in known.topics.get(name, set())]
            number = run_record(name, known.runs.get(name, 1) + 1)
            self.state.write_configs([config_record(name, None), target_record(name, None), number])
            self.state.write_statuses([*status_records(name, None), *used])
            self.supervisor.wake()

    def set_target(self, name: str, target: Target) -> None:
        """Pause, resume or stop."""
        with self._lock:
            if name not in self.state.known.configs:
                raise RequestRefused(NOT_FOUND, f"Unknown connector {name}")
            self.state.write_configs([target_record(name, target)])
            self.supervisor.wake()

    def restart(self, name: str, *, with_tasks: bool, only_failed: bool) -> dict[str, Any] | None:
        """Restart; with either choice the status is returned, as Connect does."""
        with self._lock:
            if name not in self.state.known.configs:
                raise RequestRefused(NOT_FOUND, f"Unknown connector: {name}")
            status = self.state.known.statuses.get(name)
            has_failed = status is not None and status.state is State.FAILED
            if has_failed or not only_failed:
                if with_tasks and status is not None:
                    told = Status(State.RESTARTING, None, status.worker)
                    self.state.write_statuses(status_records(name, told))
                self.supervisor.restart(name)
            return self.status(name) if with_tasks or only_failed else None

    def restart_task(self, name: str, task: int) -> None:
        """Restart the task, which is all of a connector that runs."""
        if name not in self.state.known.configs:
            raise RequestRefused(NOT_FOUND, f"Unknown connector: {name}")
        if task != 0 or not self._has_task(name):
            raise RequestRefused(NOT_FOUND, f"Unknown task: {name}-{task}")
        self.supervisor.restart(name)

    def reset_topics(self, name: str) -> None:
        """Forget which topics a connector has used; there are none of one that there is not."""
        used = [topic_record(name, topic, is_used=False) for topic in self.state.known.topics.get(name, set())]
        self.state.write_statuses(used)

    # --- offsets -----------------------------------------------------------------------------------------------------

    def offsets(self, name: str) -> dict[str, Any]:
        """Where a connector is."""
        config = self._config(name)
        if _type(config) == "sink":
            return {"offsets": self.groups.documents(group_of(name))}
        known = self.state.known.offsets.get(name, {})
        return {"offsets": [{"partition": json.loads(key), "offset": offset} for key, offset in known.items()]}

    def alter_offsets(self, name: str, body: Any) -> dict[str, str]:
        """Set where a stopped connector goes on."""
        with self._lock:
            try:
                pairs = offset_pairs(body)
                kind = self._stopped(name)
                if kind.type == "sink" and not kind.keeps_state:
                    self.groups.alter(group_of(name), sink_offsets(pairs))
                elif not kind.has_offsets:
                    raise OffsetsRefused(f"{kind.name} keeps its place in its checkpoint: its offsets can be reset")
                else:
                    reads = None if kind.partition is None else kind.partition(self._config(name))
                    self.state.write_offsets([offset_record(name, *pair) for pair in source_offsets(reads, pairs)])
            except OffsetsRefused as error:
                raise RequestRefused(BAD_REQUEST, str(error)) from None
            self._begin_anew(name)
            return {"message": "The offsets for this connector have been altered successfully"}

    def reset_offsets(self, name: str) -> dict[str, str]:
        """Have a stopped connector begin anew."""
        with self._lock:
            kind = self._stopped(name)
            if kind.type == "sink":
                self.groups.reset(group_of(name))
            known = self.state.known.offsets.get(name, {})
            self.state.write_offsets([offset_record(name, json.loads(key), None) for key in list(known)])
            self._begin_anew(name)
            return {"message": "The offsets for this connector have been reset successfully"}

    def _begin_anew(self, name: str) -> None:
        self.state.write_configs([run_record(name, self.state.known.runs.get(name, 1) + 1)])
        self.supervisor.wake()

    def _stopped(self, name: str) -> Kind:
        config = self._config(name)
        is_meant = self.state.known.targets.get(name) is Target.STOPPED
        if not is_meant or self.supervisor.is_running(name):
            raise RequestRefused(
                BAD_REQUEST,
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
            )
        kind = _kind(config)
        if kind is None:
            raise RequestRefused(BAD_REQUEST, unknown_kind(config.get("connector.class", "")))
        return kind

    # --- parts -------------------------------------------------------------------------------------------------------

    def _has_task(self, name: str) -> bool:
        status = self.state.known.statuses.get(name)
        return status is not None and status.state not in (State.UNASSIGNED, State.STOPPED)

    def _config(self, name: str) -> dict[str, str]:
        config = self.state.known.configs.get(name)
        if config is None:
            raise RequestRefused(NOT_FOUND, f"Connector {name} not found")
        return config

    def _checked(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        if (own := config.get("name", name)) != name:
            raise RequestRefused(
                BAD_REQUEST,
                f"Connector name configuration ({own}) doesn't match connector name in the URL ({name})",
            )
        if (wrong := check_name(name)) is not None:
            raise RequestRefused(BAD_REQUEST, wrong)
        full = {"name": name, **config}
        given = full.get("connector.class", "")
        if kind_named(given) is None and given:
            raise RequestRefused(BAD_REQUEST, unknown_kind(given))
        if (why := refusal(full, "{connectorType}")) is not None:
            raise RequestRefused(BAD_REQUEST, why)
        return full

    def _unassigned(self, name: str) -> None:
        self.state.write_statuses(status_records(name, Status(State.UNASSIGNED, None, self.worker)))
        self.supervisor.wake()

    def _plugin(self, name: str) -> Kind:
        kind = kind_named(name)
        if kind is None:
            raise RequestRefused(NOT_FOUND, f"Unknown plugin {name}.")
        return kind


def group_of(name: str) -> str:
    """The consumer group of a sink, as Connect names it."""
    return f"connect-{name}"


def _kind(config: Mapping[str, str]) -> Kind | None:
    return kind_named(config.get("connector.class", ""))


def _type(config: Mapping[str, str]) -> str:
    """As Connect tells it of a class that is not there, such as one that Connect has left in the topic."""
    kind = _kind(config)
    return "unknown" if kind is None else kind.type


def _told(status: Status) -> dict[str, str]:
    """What a status says beside its state.  Connect has no remark."""
    told = {"trace": status.trace, "remark": status.remark}
    return {name: text for name, text in told.items() if text}


def _shown(config: Mapping[str, str]) -> dict[str, str]:
    kind = _kind(config)
    keys = {key.name: key for key in kind.keys} if kind is not None else {}
    return {name: _shown_value(name, text, keys.get(name)) for name, text in config.items()}


def _shown_value(name: str, text: str, key: Key | None) -> str:
    # What Connect has left there was judged by nothing here, and a class of Connect's has keys that are not known here.
    return hidden(name, text) if key is None else shown(text, is_secret=key.is_secret)

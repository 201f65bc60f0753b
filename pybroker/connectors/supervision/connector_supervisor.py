"""Runs the connectors that are declared: starts, stops and restarts them until what runs is what is meant.

Owns the thread that does so, and each connector's status.  What is meant stands in the topics (`StateTopics`); requests
change that and wake this thread (`connect_operations`).  ``start`` is the port to Spark.

Invariants: a connector runs once; its status in the topic is what it did last; a supervisor that does not work runs
nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pybroker.connectors.declared.common_keys import TOPICS
from pybroker.connectors.declared.config_keys import setting
from pybroker.connectors.declared.plugin_kinds import kind_named
from pybroker.connectors.state.state_records import Known, Record, State, Status, Target, status_records, topic_record
from pybroker.connectors.supervision.connector_checkpoints import Checkpoints
from pybroker.connectors.supervision.restarts import Restarts

LOOKED_EVERY_S: Final = 0.5
# A remark may change with each micro-batch, and each change is a record in the topic of statuses.
REMARKED_EVERY_S: Final = 5.0

_log = logging.getLogger(__name__)


class Running(Protocol):
    """A connector that runs."""

    @property
    def failure(self) -> str | None:
        """Why it ended by itself."""
        ...

    @property
    def remark(self) -> str | None:
        """What its operator is to know while it runs."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Remembered(Protocol):
    """The topics, as far as the supervisor needs them."""

    known: Known

    def write_statuses(self, records: list[Record]) -> None:
        """Write and remember."""
        ...


# Starts a connector: its name, its configuration as declared, the number of its checkpoint.
Start = Callable[[str, Mapping[str, str], int], Running]


@dataclass(slots=True)
class _Connector:
    config: Mapping[str, str]
    run_number: int
    restarts: Restarts
    run: Running | None = None
    status: Status | None = None
    remarked_at_s: float = -REMARKED_EVERY_S
    # Whether checkpoints of runs before may be there.
    may_have_former: bool = True


@dataclass(slots=True)
class Supervisor:
    """The connectors of one supervisor, while it is the one that works."""

    state: Remembered
    start_run: Start
    worker: str
    clock: Callable[[], float] = time.monotonic
    checkpoints: Checkpoints = field(default_factory=lambda: Checkpoints(""))
    # What a text is that may be shown: without secrets.
    told: Callable[[str], str] = str
    # The topics that a configuration reads or writes.
    topics: Callable[[Mapping[str, str]], Sequence[str]] = field(default_factory=lambda: topics_of)
    _connectors: dict[str, _Connector] = field(default_factory=dict, init=False)
    _asked: set[str] = field(default_factory=set, init=False)
    # Names of connectors of which a run has failed to end.
    _strays: set[str] = field(default_factory=set, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _news: threading.Event = field(default_factory=threading.Event, init=False)

    def wake(self) -> None:
        """What is meant has changed."""
        self._news.set()

    def restart(self, name: str) -> None:
        """Start a connector anew, whatever it does, with all its restarts before it."""
        with self._lock:
            self._asked.add(name)
        self.wake()

    def is_running(self, name: str) -> bool:
        """Whether a connector has a run, which may write."""
        with self._lock:
            found = self._connectors.get(name)
            return found is not None and found.run is not None

    def work(self, ends: threading.Event) -> None:
        """Do it until ``ends`` is set; then stop all.  Raises `Replaced`, with all stopped."""
        try:
            while not ends.is_set():
                self.step()
                self._news.wait(LOOKED_EVERY_S)
                self._news.clear()
        finally:
            self.stop_all()

    def step(self) -> None:
        """Bring what runs nearer to what is meant."""
        known = self.state.known
        for name in [name for name in self._connectors if name not in known.configs]:
            self._stop(self._connectors[name], name)
            self._remove_former(name, known.runs.get(name, 1))
            with self._lock:
                del self._connectors[name]
        for name, config in list(known.configs.items()):
            self._step_of(name, config, known.targets.get(name, Target.STARTED), known.runs.get(name, 1))

    def stop_all(self) -> None:
        """End all runs; statuses stay as they are, for the next supervisor takes over."""
        for name, connector in list(self._connectors.items()):
            self._stop(connector, name)
        with self._lock:
            self._connectors.clear()

    def _step_of(self, name: str, config: Mapping[str, str], target: Target, number: int) -> None:
        connector = self._connectors.get(name)
        with self._lock:
            is_asked = name in self._asked
            self._asked.discard(name)
        if connector is None or connector.config != config or connector.run_number != number or is_asked:
            if connector is not None:
                self._stop(connector, name)
            connector = _Connector(dict(config), number, _restarts(config))
            with self._lock:
                self._connectors[name] = connector
        if target is not Target.STARTED:
            self._stop(connector, name)
            self._tell(connector, name, State.PAUSED if target is Target.PAUSED else State.STOPPED)
            connector.restarts = _restarts(config)
            return
        now_s = self.clock()
        if connector.run is not None and (failure := connector.run.failure) is not None:
            self._stop(connector, name)
            self._failed(connector, name, failure)
        elif connector.run is None and (not connector.restarts.failures or connector.restarts.is_due(now_s)):
            self._start(connector, name)
        elif connector.run is not None and now_s >= connector.remarked_at_s + REMARKED_EVERY_S:
            connector.remarked_at_s = now_s
            self._tell(connector, name, State.RUNNING, remark=connector.run.remark)
            if connector.may_have_former and self.checkpoints.has_batch(name, number):
                self._remove_former(name, number)
                connector.may_have_former = False

    def _start(self, connector: _Connector, name: str) -> None:
        connector.restarts.started(self.clock())
        try:
            run = self.start_run(name, connector.config, connector.run_number)
        except Exception as error:  # whatever a kind, Spark or a target says
            self._failed(connector, name, first_line(error))
            return
        with self._lock:
            connector.run = run
        self._tell(connector, name, State.RUNNING)
        try:
            used = self.topics(connector.config)
        except Exception as error:  # whatever the brokers say: the connector runs
            _log.warning("%s: its topics are not listed: %s", name, first_line(error))
            return
        missing = [topic for topic in used if topic not in self.state.known.topics.get(name, set())]
        self.state.write_statuses([topic_record(name, topic) for topic in missing])

    def _stop(self, connector: _Connector, name: str) -> None:
        run = connector.run
        if run is None:
            return
        try:
            run.stop()
        except Exception as error:
            _log.warning("%s: stopping it: %s", name, first_line(error))
            self._strays.add(name)
        with self._lock:
            connector.run = None

    def _remove_former(self, name: str, number: int) -> None:
        """A run that may not have ended may use its checkpoint."""
        if name not in self._strays:
            self.checkpoints.remove_before(name, number)

    def _failed(self, connector: _Connector, name: str, why: str) -> None:
        restarts = connector.restarts
        restarts.failed(self.clock())
        after = "it is not started again" if restarts.has_given_up else f"it starts again in {restarts.pause_s:.0f} s"
        _log.error("%s failed: %s; %s", name, self.told(why), after)
        self._tell(connector, name, State.FAILED, why)

    def _tell(
        self, connector: _Connector, name: str, state: State, trace: str | None = None, remark: str | None = None
    ) -> None:
        trace, remark = (None if text is None else self.told(text) for text in (trace, remark))
        status = Status(state, trace, self.worker, remark)
        if connector.status != status:
            self.state.write_statuses(status_records(name, status))
            connector.status = status


def topics_of(config: Mapping[str, str]) -> list[str]:
    """The topics that a configuration names: those that a sink reads, or the one that a source writes."""
    kind = kind_named(config.get("connector.class", ""))
    if kind is None:
        return []
    named = config.get(TOPICS if kind.type == "sink" else "topic", "")
    return [name.strip() for name in named.split(",") if name.strip()]


def first_line(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _restarts(config: Mapping[str, str]) -> Restarts:
    kind = kind_named(config.get("connector.class", ""))
    if kind is None:
        return Restarts(1.0, 0)
    try:
        backoff_ms = setting(kind.keys, config, "errors.restarts.backoff.ms")
        return Restarts(backoff_ms / 1_000, setting(kind.keys, config, "errors.restarts.max"))
    except ValueError:  # a reference, or what Connect has left in the topic; its start will fail, and say so
        return Restarts(1.0, 0)

"""A history: what clients and faults did, when each operation began and ended, and what came of it.

Owns: events and operations as values, the journal that a process writes them to, and reading journals back.  Knows no
client and no anomaly.

A journal is a file of JSON lines, one event each: ``{"time", "process", "type", "kind", "value"}``.  ``time`` is
nanoseconds of the machine's monotonic clock, which all processes share.  ``process`` is one client from its start to
its end, whichever operating system process it lives in: it does one thing at a time, and what is opened anew is a new
process.  ``type`` is ``invoke``, or the outcome: ``ok`` (it happened), ``fail`` (it did not, and will not), ``info``
(nobody knows).  An operation that was invoked and never heard of again is ``info``, too.

===========  ===========================================================================================================
kind         value
===========  ===========================================================================================================
open         what the client is; see ``Client``
send         ``[[key, value, offset], ...]`` in the order of sending; offset: ``null`` until it is acknowledged,
             ``UNKNOWN_OFFSET`` where the acknowledgement names none
txn          ``{"sends": as for send, "consumed": as for poll, "group": whose offsets it commits or null,
             "commit": the time at which the commit was asked for, or null}``; the offsets are the next behind
             what was consumed
poll         ``[[key, [[offset, value], ...]], ...]``
commit       ``{key: next offset}``, outside of transactions
assign       ``[key, ...]``: partitions that are read from what the process's group has committed, or, without a group,
             from their beginning; also a seek to there
subscribe    ``[topic, ...]``
assigned     ``[key, ...]``: given by a rebalance; reading starts at the committed offset
revoked      ``[key, ...]``: taken by a rebalance
final        ``{key: end offset}``: the process has read these from their beginning to their end, after everything else
committed    ``{"group": name, "offsets": {key: next offset}}``: committed offsets after everything else
end          ``null``: the last transaction of an id is over, after everything else; of this and the two above, ``fail``
             says that it did not come to that, with the reason as the value
login        for how many milliseconds a connection that has logged in, or has done so anew, is to be served; 0: no end
ask          ``null``: a small request of such a connection, which was answered if it is ``ok``
ready        ``null``: the client has begun to work
crash        ``null``: the process is given up, or killed
kill, pause  ``null``: the broker is dead, or stopped, from invoke to completion
fault        ``{"kind": name, "whom": [broker id, ...]}``: what befalls a cluster; ``cluster_nemesis`` says what each is
===========  ===========================================================================================================

A key is a partition, ``topic/index``.  Values are integers, each written once in a history.
"""

from __future__ import annotations

import heapq
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, get_args

UNKNOWN_OFFSET = -1
NEVER_NS = 1 << 62
BROKER = -1  # the process of faults
CLIENT_FAULTS = -2  # the process of what befalls clients
FAULTS = -10  # this and all below are the processes of faults of a cluster, each its own

EventType = Literal["invoke", "ok", "fail", "info"]
Outcome = Literal["ok", "fail", "info"]
EVENT_TYPES = frozenset(get_args(EventType))


class HistoryError(ValueError):
    """Events that are no history."""


class Event(NamedTuple):
    """One line of a journal."""

    time_ns: int
    process: int
    type: EventType
    kind: str
    value: Any = None


@dataclass(slots=True)
class Operation:
    """An invocation with its outcome; what has no duration has been invoked when it completed."""

    process: int
    kind: str
    outcome: Outcome
    invoked_ns: int
    completed_ns: int
    value: Any

    def __str__(self) -> str:
        return f"{self.kind} of process {self.process}, {self.outcome}, at {self.invoked_ns / 1e9:.3f} s"


class Client(NamedTuple):
    """What a process is, as its ``open`` says."""

    library: str = ""
    producer: str | None = None  # plain (it may repeat what was not answered), idempotent, transactional
    transactional_id: str | None = None
    isolation: str | None = None
    group: str | None = None
    login: str | None = None  # once, again: what a client does that only asks how long a login is good

    @property
    def reads_committed(self) -> bool:
        return self.isolation == "read_committed"


class Journal:
    """Appends events to a file: each is there, whole, before the call returns, so that it survives a kill -9."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def record(self, process: int, event_type: EventType, kind: str, value: Any = None) -> None:
        line = json.dumps(
            {"time": time.monotonic_ns(), "process": process, "type": event_type, "kind": kind, "value": value},
            separators=(",", ":"),
        )
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file, but for a last line that a kill cut off; raises ``HistoryError`` for what is none."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n"):
                try:
                    yield _event(json.loads(line))
                except (ValueError, KeyError, TypeError):
                    raise HistoryError(f"line {number} is no event: {line[:80]!r}") from None


def _event(found: dict[str, Any]) -> Event:
    event = Event(found["time"], found["process"], found["type"], found["kind"], found["value"])
    if not (isinstance(event.time_ns, int) and isinstance(event.process, int) and event.type in EVENT_TYPES):
        raise ValueError(found)
    return event


def merge_journals(paths: Iterable[Path], merged: Path) -> None:
    """One history out of the journals of several operating system processes, in the order of time."""
    with merged.open("wb") as file:
        for line in heapq.merge(*map(_timed_lines, paths)):
            file.write(line[1])


def _timed_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)["time"], line


def operations(events: Iterable[Event]) -> list[Operation]:
    """Invocations with their outcomes, in the order of completion; what never completed is at the end.

    Raises ``HistoryError`` when a process does two things at once, or events are not in the order of time.
    """
    found: list[Operation] = []
    pending: dict[int, Event] = {}
    now_ns = 0
    for event in events:
        if event.time_ns < now_ns:
            raise HistoryError(f"{event} comes before {now_ns}")
        now_ns = event.time_ns
        invocation = pending.get(event.process)
        if event.type == "invoke":
            if invocation is not None:
                raise HistoryError(f"{event} while {invocation} has not completed")
            pending[event.process] = event
        elif invocation is not None and invocation.kind == event.kind:
            del pending[event.process]
            value = invocation.value if event.value is None else event.value
            found.append(Operation(event.process, event.kind, event.type, invocation.time_ns, now_ns, value))
        else:
            found.append(Operation(event.process, event.kind, event.type, now_ns, now_ns, event.value))
    found.extend(
        Operation(event.process, event.kind, "info", event.time_ns, NEVER_NS, event.value) for event in pending.values()
    )
    return found

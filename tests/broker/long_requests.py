"""Requests whose arrays are as long as one likes, made from the declarations, and a loop that times its own turns.

Owns: what a field of a request holds, by its name, for three kinds of elements: ``plain`` ones (each another, and known
to the broker as far as a broker knows so many), ``repeated`` ones (all the same, and known), and ``unknown`` ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pybroker.apis import APIS
from pybroker_protocol.messages import request_class
from pybroker_protocol.schema import Array, Fixed, Nested, Request, Struct, Variable, WireType, schema_of

TOPIC = "long"
TOPIC_ID_BYTES = 16
KINDS = ("plain", "repeated", "unknown")
PARTITIONS = 50

# Where the whole takes a shape that no element has by itself.
_SCALARS: dict[str, Any] = {
    "acks": -1,
    "timeout_ms": 10_000,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 10,
    "replica_id": -1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "num_partitions": 1,
    "replication_factor": 1,
    "validate_only": True,
    "client_software_name": "long",
    "client_software_version": "1",
    "election_type": 0,
    "server_assignor": "uniform",
    "member_id": "",
    "producer_id": 1,
    "timestamp": -1,
    "count": PARTITIONS + 1,
    "generation_id_or_member_epoch": -1,
}
_NAMES = frozenset({"name", "topic", "topic_name", "topics", "topic_names", "resource_name", "subscribed_topic_names"})
_INDEXES = frozenset({"index", "partition", "partitions", "partition_index", "partition_indexes"})


@dataclass(frozen=True)
class LongArray:
    """One array of one version of a request: ``path`` are the names of the fields that lead to it."""

    name: str
    key: int
    version: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}-{self.version}-{'.'.join(self.path)}"

    def request(self, kind: str, count: int, topic_id: bytes) -> Request:
        """The request with ``count`` elements in the array, and one in all others."""
        return _Maker(self, kind, count, topic_id).request()


def long_arrays(every_version: bool) -> Iterator[LongArray]:
    """All arrays of all served requests: of the newest version, or of every one."""
    for api in APIS:
        first, last = api.versions
        for version in range(first, last + 1) if every_version else (last,):
            for path in _paths(request_class(api.key), version):
                yield LongArray(api.name, api.key, version, path)


def _paths(struct: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    for field in schema_of(struct).fields:
        if version not in field.versions:
            continue
        wire_type = field.type
        if isinstance(wire_type, Array):
            yield (field.name,)
            wire_type = wire_type.element
        if isinstance(wire_type, Nested):
            for path in _paths(wire_type.struct, version):
                yield (field.name, *path)


class _Maker:
    """Makes one request."""

    def __init__(self, array: LongArray, kind: str, count: int, topic_id: bytes) -> None:
        self._array = array
        self._kind = kind
        self._count = count
        self._topic_id = topic_id

    def request(self) -> Request:
        made = self._struct(request_class(self._array.key), self._array.path, 0)
        assert isinstance(made, Request)
        return made

    def _struct(self, struct: type[Struct], path: tuple[str, ...] | None, position: int) -> Struct:
        """``path`` leads from this struct to the long array; None where it does not lead through it."""
        fields = {}
        for field in schema_of(struct).fields:
            if self._array.version in field.versions:
                rest = path[1:] if path and path[0] == field.name else None
                fields[field.name] = self._value(field.type, field.name, rest, position, field.default)
        return struct(**fields)

    def _value(self, wire_type: WireType, name: str, rest: tuple[str, ...] | None, position: int, default: Any) -> Any:
        match wire_type:
            case Array(element):
                count = self._count if rest == () else 1
                return [self._element(element, name, rest or None, each if rest == () else 0) for each in range(count)]
            case Nested(struct):
                return self._struct(struct, rest or None, position)
            case _:
                return self._scalar(wire_type, name, position, default)

    def _element(self, element: WireType, name: str, rest: tuple[str, ...] | None, position: int) -> Any:
        if isinstance(element, Nested):
            return self._struct(element.struct, rest, position)
        return self._scalar(element, name, position, None)

    def _scalar(self, wire_type: WireType, name: str, position: int, default: Any) -> Any:
        if name in _SCALARS:
            return _SCALARS[name]
        if name == "resource_type":
            return 2
        if isinstance(wire_type, Fixed) and wire_type.name == "uuid":
            return self._uuid(position)
        if isinstance(wire_type, Fixed):
            return self._number(name, position, default)
        assert isinstance(wire_type, Variable)
        if wire_type.name != "string":
            return b""
        return self._text(name, position)

    def _number(self, name: str, position: int, default: Any) -> Any:
        if name in _INDEXES:
            return {"plain": position % PARTITIONS, "repeated": 0, "unknown": 1_000_000 + position}[self._kind]
        return default or 0

    def _text(self, name: str, position: int) -> str:
        if self._kind == "repeated" or (self._kind == "plain" and name in _NAMES and self._names_one_topic()):
            return TOPIC
        return f"{self._kind}-{position}"

    def _names_one_topic(self) -> bool:
        """Partitions of the array are those of a topic that is there."""
        return self._array.path[-1] in _INDEXES

    def _uuid(self, position: int) -> bytes:
        return (position + 1).to_bytes(TOPIC_ID_BYTES) if self._kind == "unknown" else self._topic_id


class TimedLoop(asyncio.SelectorEventLoop):
    """A loop that knows the longest of its turns, in processor time of its thread: others on the machine count not."""

    longest_turn_s = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_turn_s = max(self.longest_turn_s, time.thread_time() - began)

"""Requests whose arrays are as long as one likes, made from the declarations, and a loop that times its own turns.

Owns: what a field of a request holds, by its name, for three kinds of elements: ``plain`` ones (each another, and known
to the broker as far as a broker knows so many), ``repeated`` ones (all the same, and known), and ``unknown`` ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pybroker.apis import APIS, BY_KEY
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
# Each request has a group of its own, or it would wait for members of those before it.
_GROUPS = ("group", "group_id")
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
        """The request with ``count`` elements in the array (or as many as it may have), and one in all others."""
        elements_max = BY_KEY[self.key].elements_max
        if elements_max is not None:
            count = min(count, (elements_max - len(self.path)) // self._elements_of_one())
        return _Maker(self, kind, count, topic_id).request()

    def _elements_of_one(self) -> int:
        """An element of the array counts with those of the arrays in it."""
        below = _paths(request_class(self.key), self.version)
        return sum(path[: len(self.path)] == self.path for path in below)


def long_arrays(every_version: bool) -> Iterator[LongArray]:
    """All arrays of all served requests: of the newest version, or of every one."""
    for api in APIS:
        first, last = api.versions
        for version in range(first, last + 1) if every_version else (last,):
            for path in _paths(request_class(api.key), version):
                yield LongArray(api.name, api.key, version, path)


def short_request(key: int, version: int, topic_id: bytes) -> Request:
    """An ordinary request with one element in each of its arrays."""
    return _Maker(LongArray(BY_KEY[key].name, key, version, ("no array",)), "plain", 1, topic_id).request()


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
        made = self._struct(request_class(self._array.key), self._array.path)
        assert isinstance(made, Request)
        return made

    def _struct(self, struct: type[Struct], path: tuple[str, ...] | None) -> Struct:
        """``path`` leads from this struct to the long array; None where it does not lead through it."""
        return struct(**{name: values[0] for name, values in self._columns(struct, path, 1).items()})

    def _columns(self, struct: type[Struct], path: tuple[str, ...] | None, count: int) -> dict[str, Sequence[Any]]:
        """The values of each field in ``count`` structs."""
        columns = {}
        for field in schema_of(struct).fields:
            if self._array.version in field.versions:
                rest = path[1:] if path and path[0] == field.name else None
                columns[field.name] = self._column(field.type, field.name, rest, count, field.default)
        return columns

    def _column(
        self, wire_type: WireType, name: str, rest: tuple[str, ...] | None, count: int, default: Any
    ) -> Sequence[Any]:
        match wire_type:
            case Array(element):
                return [self._elements(element, name, rest or None, self._count if rest == () else 1)] * count
            case Nested(struct):
                return self._structs(struct, rest or None, count)
            case _:
                return self._scalars(wire_type, name, count, default)

    def _elements(self, element: WireType, name: str, rest: tuple[str, ...] | None, count: int) -> list[Any]:
        if isinstance(element, Nested):
            return self._structs(element.struct, rest, count)
        return list(self._scalars(element, name, count, None))

    def _structs(self, struct: type[Struct], rest: tuple[str, ...] | None, count: int) -> list[Struct]:
        if self._kind == "repeated":
            return [self._struct(struct, rest)] * count
        columns = self._columns(struct, rest, count)
        names = tuple(columns)
        return [struct(**dict(zip(names, values, strict=True))) for values in zip(*columns.values(), strict=True)]

    def _scalars(self, wire_type: WireType, name: str, count: int, default: Any) -> Sequence[Any]:
        if name in _SCALARS:
            return [_SCALARS[name]] * count
        if name == "resource_type":
            return [2] * count
        if isinstance(wire_type, Fixed) and wire_type.name == "uuid":
            return _unknown_ids(count) if self._kind == "unknown" else [self._topic_id] * count
        if isinstance(wire_type, Fixed):
            return _indexes(self._kind, count) if name in _INDEXES else [default or 0] * count
        assert isinstance(wire_type, Variable)
        if wire_type.name != "string":
            return [b""] * count
        if name in _GROUPS and count == 1:
            return [f"{self._array}-{self._kind}-{self._count}"]
        if self._kind == "repeated" or (self._kind == "plain" and name in _NAMES and self._names_one_topic()):
            return [TOPIC] * count
        return _texts(self._kind, count)

    def _names_one_topic(self) -> bool:
        """Partitions of the array are those of a topic that is there."""
        return self._array.path[-1] in _INDEXES


# What elements hold, the same objects in each request: making them anew took longer than serving them.


@cache
def _unknown_ids(count: int) -> Sequence[bytes]:
    return [(position + 1).to_bytes(TOPIC_ID_BYTES) for position in range(count)]


@cache
def _indexes(kind: str, count: int) -> Sequence[int]:
    if kind == "repeated":
        return [0] * count
    return [position % PARTITIONS if kind == "plain" else 1_000_000 + position for position in range(count)]


@cache
def _texts(kind: str, count: int) -> Sequence[str]:
    return [f"{kind}-{position}" for position in range(count)]


class TimedLoop(asyncio.SelectorEventLoop):
    """A loop that knows the longest of its turns, in processor time of its thread: others on the machine count not."""

    longest_turn_s = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_turn_s = max(self.longest_turn_s, time.thread_time() - began)

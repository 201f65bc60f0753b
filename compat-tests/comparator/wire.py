"""A raw blocking client: one connection, requests from plain values, replies as plain trees.

Owns: framing, the request header, turning nested dicts into a message of a version and a decoded reply back into
nested dicts.  A *tree* is made of dicts (structs, with the fields of that version alone), lists and plain values.
It has no retries and no knowledge of the cluster, so that every byte a broker sends is seen as it came.
"""

from __future__ import annotations

import select
import socket
import struct
from typing import Any

from pybroker.apis import APIS
from pybroker_protocol.codec import decode, encode
from pybroker_protocol.messages import request_class, response_class
from pybroker_protocol.schema import Array, Message, Nested, Struct, WireType, schema_of

Tree = Any

API_KEYS = {api.name: api.key for api in APIS}
API_VERSIONS = API_KEYS["ApiVersions"]
CLIENT_ID = "comparator"
REPLY_TIMEOUT_S = 10.0

CLOSED: Tree = {"connection": "closed without a reply"}


class Connection:
    """One connection to one broker; replies are read in order, as Kafka sends them."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=REPLY_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def send(self, api: str, version: int, fields: Tree) -> None:
        """Send one request; fields that its version does not have are left out."""
        cls = request_class(API_KEYS[api])
        message = build(cls, version, fields)
        assert isinstance(message, Message)
        body = encode(message, version)
        flexible = version in cls.__declaration__.flexible
        self.send_bytes(API_KEYS[api], version, body, flexible)

    def send_bytes(self, api_key: int, version: int, body: bytes, flexible: bool) -> None:
        """Send a body that is bytes already, behind a sound header."""
        self._correlation_id += 1
        client_id = CLIENT_ID.encode()
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(client_id)) + client_id
        # A flexible header ends with its (here empty) tagged fields.
        self.send_frame(header + (b"\0" if flexible else b"") + body)

    def send_frame(self, frame: bytes) -> None:
        self.send_raw(struct.pack(">i", len(frame)) + frame)

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, api: str, version: int) -> Tree:
        """The next reply as a tree, or ``CLOSED``; raises ``TimeoutError`` when nothing comes."""
        payload = self.receive_payload()
        if payload is None:
            return CLOSED
        key = API_KEYS[api]
        flexible = version in request_class(key).__declaration__.flexible
        # ApiVersions' reply never has tagged fields in its header, so that any client can read it.
        header_length = 5 if flexible and key != API_VERSIONS else 4
        cls = response_class(key)
        return tree_of(decode(cls, version, payload[header_length:]), version)

    def receive_payload(self) -> bytes | None:
        """The next frame, or ``None`` when the broker has closed the connection."""
        try:
            length = self._receive_exactly(4)
            return None if length is None else self._receive_exactly(int.from_bytes(length, "big"))
        except ConnectionResetError:
            return None

    def has_reply(self) -> bool:
        """Whether bytes of a reply, or the end of the connection, have come."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()

    def _receive_exactly(self, length: int) -> bytes | None:
        received = bytearray()
        while len(received) < length:
            chunk = self._socket.recv(min(length - len(received), 1 << 20))
            if not chunk:
                return None
            received += chunk
        return bytes(received)


def build(cls: type[Struct], version: int, fields: Tree) -> Struct:
    """A message from nested dicts; names are checked, fields that the version lacks are dropped."""
    known = {field.name: field for field in schema_of(cls).fields}
    unknown = set(fields) - set(known)
    if unknown:
        raise ValueError(f"{cls.__name__} has no {sorted(unknown)}; it has {sorted(known)}")
    values = {
        name: _build_value(known[name].type, version, value)
        for name, value in fields.items()
        if version in known[name].versions
    }
    return cls(**values)


def _build_value(wire_type: WireType, version: int, value: Tree) -> Any:
    match wire_type:
        case Nested(cls) if isinstance(value, dict):
            return build(cls, version, value)
        case Array(element) if value is not None:
            return [_build_value(element, version, item) for item in value]
    return value


def tree_of(message: Struct, version: int) -> Tree:
    """The fields that ``version`` of the message has, as nested dicts and lists."""
    fields = schema_of(type(message)).fields
    return {
        field.name: _value_tree(getattr(message, field.name), version) for field in fields if version in field.versions
    }


def _value_tree(value: Any, version: int) -> Tree:
    match value:
        case Struct():
            return tree_of(value, version)
        case list():
            return [_value_tree(item, version) for item in value]
        case memoryview():
            return bytes(value)
    return value

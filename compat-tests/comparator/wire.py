"""A raw blocking client: one connection, requests from plain values, replies as plain trees.

Owns: the headers, and turning a decoded reply into nested dicts; requests are encoded by ``encoding``.  A *tree* is
made of dicts (structs, with the fields of that version alone), lists and plain values.  It has no retries and no
knowledge of the cluster, so that every byte a broker sends is seen as it came.
"""

from __future__ import annotations

import struct
from typing import Any

from harness.sockets import REPLY_TIMEOUT_S, FrameConnection

from comparator.encoding import Tree, encode_request
from pybroker.apis import APIS
from pybroker_protocol.codec import decode
from pybroker_protocol.messages import request_class, response_class
from pybroker_protocol.schema import Struct, schema_of

__all__ = [
    "API_KEYS",
    "API_VERSIONS",
    "CLIENT_ID",
    "CLOSED",
    "REPLY_TIMEOUT_S",
    "SILENT",
    "Connection",
    "Tree",
    "tree_of",
]

API_KEYS = {api.name: api.key for api in APIS}
API_VERSIONS = API_KEYS["ApiVersions"]
CLIENT_ID = "comparator"

CLOSED: Tree = {"connection": "closed without a reply"}
SILENT: Tree = {"connection": "no reply"}


class Connection(FrameConnection):
    """One connection to one broker."""

    def __init__(self, address: tuple[str, int], source: str | None = None) -> None:
        super().__init__(address, source=source)
        self._correlation_id = 0

    def send(self, api: str, version: int, fields: Tree) -> int:
        """Send one request; fields that its version does not have are left out.  Returns the correlation id."""
        cls = request_class(API_KEYS[api])
        body = encode_request(cls, version, fields)
        return self.send_bytes(API_KEYS[api], version, body, version in cls.__declaration__.flexible)

    def send_bytes(self, api_key: int, version: int, body: bytes, flexible: bool) -> int:
        """Send a body that is bytes already, behind a sound header.  Returns the correlation id."""
        self._correlation_id += 1
        client_id = CLIENT_ID.encode()
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(client_id)) + client_id
        # A flexible header ends with its (here empty) tagged fields.
        self.send_frame(header + (b"\0" if flexible else b"") + body)
        return self._correlation_id

    def receive(self, api: str, version: int, correlation_id: int | None = None) -> Tree:
        """The next reply as a tree, ``CLOSED``, or ``SILENT``.

        ``ValueError`` when the reply is not to the request of this correlation id.
        """
        try:
            payload = self.receive_payload()
        except TimeoutError:
            return SILENT
        return CLOSED if payload is None else self.decoded(payload, api, version, correlation_id)

    def decoded(self, payload: bytes, api: str, version: int, correlation_id: int | None = None) -> Tree:
        """A frame that came as the reply to this request."""
        answered = int.from_bytes(payload[:4], "big")
        if correlation_id is not None and answered != correlation_id:
            raise ValueError(f"the reply is to request {answered}, not to {correlation_id}")
        key = API_KEYS[api]
        flexible = version in request_class(key).__declaration__.flexible
        # ApiVersions' reply never has tagged fields in its header, so that any client can read it.
        header_length = 5 if flexible and key != API_VERSIONS else 4
        cls = response_class(key)
        return tree_of(decode(cls, version, payload[header_length:]), version)


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

"""Records of a log as documents: opaque ones as text or base64, those of internal topics decoded.

Owns: which internal topic holds which records.  A record that nobody here knows is shown as its bytes.
"""

from __future__ import annotations

import base64
from typing import Any, Protocol

from pybroker.cli.record_format import put_bytes
from pybroker_protocol.data_records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    decode_key,
    decode_metadata_record,
    decode_value,
)
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import ControlRecordType, Record, control_type
from pybroker_protocol.schema import Field, Fixed, Struct, schema_of
from pybroker_protocol.uuids import uuid_text

COORDINATOR_TOPICS = {
    "__consumer_offsets": CONSUMER_OFFSETS,
    "__transaction_state": TRANSACTION_STATE,
    "__share_group_state": SHARE_GROUP_STATE,
}
METADATA_TOPIC = "__cluster_metadata"


class RecordDecoder(Protocol):
    """Makes a document of a record."""

    def __call__(self, record: Record, *, is_control: bool) -> dict[str, Any]: ...


def as_document(value: Any) -> Any:
    """A decoded message as plain data: structs as dicts, bytes as base64."""
    if isinstance(value, Struct):
        return {field.name: as_field(field, getattr(value, field.name)) for field in schema_of(type(value)).fields}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [as_document(item) for item in value]
    return value


def as_field(field: Field, value: Any) -> Any:
    """A field's value as plain data; ids as Kafka's tools print them."""
    if isinstance(field.type, Fixed) and field.type.name == "uuid":
        return uuid_text(value)
    return as_document(value)


def decoder_of(topic: str) -> RecordDecoder:
    """The decoder for the records of a topic."""

    def decode(record: Record, *, is_control: bool) -> dict[str, Any]:
        document: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp_ms}
        if is_control:
            return document | {"control": control_name(record.key)}
        try:
            decoded = decode_internal(topic, record)
        except ProtocolError as error:
            decoded = {"undecodable": str(error)}
        if decoded is not None and "undecodable" not in decoded:
            return document | decoded
        put_bytes(document, "key", record.key)
        put_bytes(document, "value", record.value)
        if record.headers:
            document["headers"] = [as_header(name, value) for name, value in record.headers]
        return document | (decoded or {})

    return decode


def as_header(name: str, value: bytes | None) -> dict[str, Any]:
    """A record header as in the JSON envelope of ``consume``."""
    document: dict[str, Any] = {"key": name}
    put_bytes(document, "value", value)
    return document


def control_name(key: bytes | None) -> str:
    """What a control record says, in one word."""
    number = control_type(key)
    try:
        return ControlRecordType(number).name
    except ValueError:
        return f"UNKNOWN({number})"


def decode_internal(topic: str, record: Record) -> dict[str, Any] | None:
    """A record of an internal topic, decoded; ``None`` where there is nothing known to decode."""
    if topic == METADATA_TOPIC and record.value is not None:
        decoded, version = decode_metadata_record(record.value)
        if decoded is None:
            return None
        return {"type": type(decoded).__name__, "version": version, "value": as_document(decoded)}
    if topic not in COORDINATOR_TOPICS or record.key is None:
        return None
    modules = COORDINATOR_TOPICS[topic]
    key = decode_key(modules, record.key)
    if key is None:
        return None
    value = None if record.value is None else decode_value(modules, record.key, record.value)
    return {"type": type(key).__name__.removesuffix("Key"), "key": as_document(key), "value": as_document(value)}

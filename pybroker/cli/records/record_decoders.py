"""Records of a log as documents: opaque ones as text or base64, those of internal topics decoded.

Owns: which internal topic holds which records.  An unknown record is shown as its bytes.
"""

from __future__ import annotations

import base64
from importlib import import_module
from typing import Any, Protocol

from pybroker.cli.records.record_format import put_bytes
from pybroker_protocol import codec
from pybroker_protocol.data_records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    decode_key,
    decode_metadata_record,
    decode_value,
)
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import ControlRecordType, Record, control_type, end_transaction_marker
from pybroker_protocol.schema import Field, Fixed, Struct, schema_of
from pybroker_protocol.uuids import uuid_text

COORDINATOR_TOPICS = {
    "__consumer_offsets": CONSUMER_OFFSETS,
    "__transaction_state": TRANSACTION_STATE,
    "__share_group_state": SHARE_GROUP_STATE,
}
METADATA_TOPIC = "__cluster_metadata"

# The value of each kind of control record but transaction markers.
CONTROL_VALUES = {
    ControlRecordType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlRecordType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlRecordType.KRAFT_VOTERS: "VotersRecord",
}

# Fields that hold the number of a state: by the type of the record, the field and the names.
STATE_FIELDS = {
    "TransactionLog": (
        "transaction_status",
        {
            0: "Empty",
            1: "Ongoing",
            2: "PrepareCommit",
            3: "PrepareAbort",
            4: "CompleteCommit",
            5: "CompleteAbort",
            6: "Dead",
            7: "PrepareEpochFence",
        },
    ),
    "ConsumerGroupCurrentMemberAssignment": (
        "state",
        {0: "Stable", 1: "UnrevokedPartitions", 2: "UnreleasedPartitions"},
    ),
}


class RecordDecoder(Protocol):
    """Makes a document of a record."""

    def __call__(self, record: Record, *, is_control: bool) -> dict[str, Any]: ...


def as_document(value: Any, version: int) -> Any:
    """A decoded message as plain data: structs as dicts of what their version has, bytes as base64.

    As in Kafka's tools, tagged fields that hold their default are left out: they are not in the bytes either.
    """
    if isinstance(value, Struct):
        return {
            field.name: as_field(field, getattr(value, field.name), version)
            for field in schema_of(type(value)).fields
            if version in field.versions
            and not (field.is_tagged(version) and getattr(value, field.name) == field.default)
        }
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [as_document(item, version) for item in value]
    return value


def as_field(field: Field, value: Any, version: int) -> Any:
    """A field's value as plain data; ids as Kafka's tools print them."""
    if isinstance(field.type, Fixed) and field.type.name == "uuid":
        return uuid_text(value)
    return as_document(value, version)


def decoder_of(topic: str) -> RecordDecoder:
    """The decoder for the records of a topic."""

    def decode(record: Record, *, is_control: bool) -> dict[str, Any]:
        document: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp_ms}
        try:
            if is_control:
                return document | decode_control(record)
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


def decode_control(record: Record) -> dict[str, Any]:
    """What a control record says: its kind, and what its value tells."""
    number = control_type(record.key)
    try:
        kind = ControlRecordType(number)
    except ValueError:
        return {"control": f"UNKNOWN({number})"}
    if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return {"control": kind.name, "coordinator_epoch": end_transaction_marker(record.value)}
    value = record.value or b""
    # These begin with their version, and have it as a field, too.
    version = version_of(value)
    declared = getattr(import_module("pybroker_protocol.messages.records_control"), CONTROL_VALUES[kind])
    if version not in declared.__declaration__.versions:
        raise ProtocolError(f"{CONTROL_VALUES[kind]} has no version {version}")
    return {"control": kind.name, "value": as_document(codec.decode(declared, version, value), version)}


def version_of(value: bytes) -> int:
    """The version that a coordinator's or a control record's value begins with."""
    if len(value) < 2:
        raise ProtocolError("the value ends inside of its version")
    return int.from_bytes(value[:2], "big", signed=True)


def decode_internal(topic: str, record: Record) -> dict[str, Any] | None:
    """A record of an internal topic, decoded; ``None`` where there is nothing known to decode."""
    if topic == METADATA_TOPIC and record.value is not None:
        decoded, version = decode_metadata_record(record.value)
        if decoded is None:
            return None
        return {"type": type(decoded).__name__, "version": version, "value": as_document(decoded, version)}
    if topic not in COORDINATOR_TOPICS or record.key is None:
        return None
    modules = COORDINATOR_TOPICS[topic]
    key = decode_key(modules, record.key)
    if key is None:
        return None
    document: dict[str, Any] = {"type": type(key).__name__.removesuffix("Key"), "key": as_document(key, 0)}
    if record.value is None:
        return document | {"value": None}
    version = version_of(record.value)
    value = as_document(decode_value(modules, record.key, record.value), version)
    explain(document["type"], value)
    return document | {"version": version, "value": value}


def explain(kind: str, value: dict[str, Any]) -> None:
    """Put names in place of numbers, and of the bytes in which consumers keep what they tell each other."""
    if kind in STATE_FIELDS:
        field, names = STATE_FIELDS[kind]
        value[field] = names.get(value[field], value[field])
    elif kind == "GroupMetadata" and value["protocol_type"] == "consumer":
        for member in value["members"]:
            for field, name in (
                ("subscription", "ConsumerProtocolSubscription"),
                ("assignment", "ConsumerProtocolAssignment"),
            ):
                member[field] = consumer_protocol(name, member[field])


def consumer_protocol(name: str, encoded: str) -> Any:
    """A consumer's subscription or assignment; the bytes as they came where they are none."""
    declared = getattr(import_module("pybroker_protocol.messages.consumer_protocol"), name)
    data = base64.b64decode(encoded)
    try:
        version = version_of(data)
        # A newer version only adds fields at the end.
        known = min(version, declared.__declaration__.versions.highest)
        message, _ = codec.decoder(declared, known)(memoryview(data), 2)
    except (ProtocolError, ValueError):
        return encoded
    return as_document(message, known)

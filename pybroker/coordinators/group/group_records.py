"""The records of ``__consumer_offsets``, as bytes.

Owns: making and reading the keys and values that a group coordinator writes, in the versions that Kafka 4.4 writes,
and reading every version that older brokers wrote.  The schemas are declared in
``pybroker_protocol.messages.records_group``; committed offsets, which come by the million, are packed and read by
hand here, and a test holds that to the declaration.

A key begins with an int16 that says its kind, a value with an int16 that says its version.

Counterpart in Kafka: ``GroupCoordinatorRecordHelpers`` and ``GroupCoordinatorRecordSerde``.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from pybroker.coordinators.result import Record
from pybroker_protocol import codec
from pybroker_protocol.messages.records_group import GroupMetadataValue, OffsetCommitValue
from pybroker_protocol.uuids import ZERO_UUID

# Kinds of keys.  Offsets have two, the older from before Kafka 0.8.2; all above are of other kinds of groups.
LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1


_INT16 = Struct(">h")
_INT16_PAIR = Struct(">hh")
_INT32 = Struct(">i")
# Version 4 of a committed offset with a topic id.  Before the metadata: version, offset, leader epoch, and the
# metadata's length plus one, a varint that is one byte up to 126 bytes of metadata.  After it: the commit timestamp,
# the number of tagged fields, tag and size of the topic id, the topic id.
_OFFSET_HEAD = Struct(">hqiB")
_OFFSET_TAIL = Struct(">qBBB16s")
_OFFSET_WITHOUT_METADATA = Struct(">hqiBqBBB16s")
_METADATA_AT = _OFFSET_HEAD.size
_ONE_BYTE_VARINT_MAX = 0x7F

pack_partition = _INT32.pack


class CommittedOffset(NamedTuple):
    """One committed offset; ``expire_timestamp_ms`` is -1 unless the client asked for a retention of its own."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def key_kind(key: bytes) -> int:
    """The kind of a key, -1 when it is too short to have one."""
    return _INT16.unpack_from(key)[0] if len(key) >= _INT16.size else -1


# --- group metadata --------------------------------------------------------------------------------------------------


def group_metadata_key(group_id: str) -> bytes:
    return _INT16.pack(GROUP_METADATA) + _string(group_id)


def group_metadata_record(group_id: str, value: GroupMetadataValue) -> Record:
    return group_metadata_key(group_id), _INT16.pack(GROUP_METADATA_VERSION) + codec.encode(
        value, GROUP_METADATA_VERSION
    )


def group_metadata_tombstone(group_id: str) -> Record:
    return group_metadata_key(group_id), None


def read_group_id(key: bytes) -> str:
    """The group of any key that begins with one, which all of this topic do."""
    _, length = _INT16_PAIR.unpack_from(key)
    return key[4 : 4 + length].decode()


def read_group_metadata(value: bytes) -> GroupMetadataValue:
    return codec.decode(GroupMetadataValue, _INT16.unpack_from(value)[0], memoryview(value)[2:])


# --- committed offsets -----------------------------------------------------------------------------------------------


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """An offset's key without its last four bytes, which are the partition (``pack_partition``)."""
    return _INT16.pack(OFFSET_COMMIT) + _string(group_id) + _string(topic)


def read_offset_key_prefix(prefix: bytes) -> tuple[str, str]:
    """(group id, topic) of a prefix."""
    _, length = _INT16_PAIR.unpack_from(prefix)
    topic_at = 4 + length
    return prefix[4:topic_at].decode(), prefix[topic_at + 2 :].decode()


def read_partition(key: bytes) -> int:
    """The partition of an offset's key."""
    partition: int = _INT32.unpack_from(key, len(key) - 4)[0]
    return partition


def pack_offset(offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, topic_id: bytes) -> bytes:
    """The value of a committed offset whose retention is the broker's."""
    if not metadata and topic_id != ZERO_UUID:
        return _OFFSET_WITHOUT_METADATA.pack(
            OFFSET_COMMIT_VERSION, offset, leader_epoch, 1, commit_timestamp_ms, 1, 0, 16, topic_id
        )
    encoded = metadata.encode()
    if len(encoded) < _ONE_BYTE_VARINT_MAX and topic_id != ZERO_UUID:
        head = _OFFSET_HEAD.pack(OFFSET_COMMIT_VERSION, offset, leader_epoch, len(encoded) + 1)
        return head + encoded + _OFFSET_TAIL.pack(commit_timestamp_ms, 1, 0, 16, topic_id)
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp_ms,
        topic_id=topic_id,
    )
    return _INT16.pack(OFFSET_COMMIT_VERSION) + codec.encode(value, OFFSET_COMMIT_VERSION)


def pack_offset_with_expiry(offset: int, metadata: str, commit_timestamp_ms: int, expire_timestamp_ms: int) -> bytes:
    """The value of an offset for which the client (OffsetCommit 2 to 4) asked a retention of its own."""
    value = OffsetCommitValue(
        offset=offset, metadata=metadata, commit_timestamp=commit_timestamp_ms, expire_timestamp=expire_timestamp_ms
    )
    return _INT16.pack(OFFSET_COMMIT_WITH_EXPIRY_VERSION) + codec.encode(value, OFFSET_COMMIT_WITH_EXPIRY_VERSION)


def read_offset(value: bytes) -> CommittedOffset:
    """A committed offset of any version."""
    try:
        version, offset, leader_epoch, length = _OFFSET_HEAD.unpack_from(value)
        if version == OFFSET_COMMIT_VERSION and 0 < length <= _ONE_BYTE_VARINT_MAX:
            end = _METADATA_AT + length - 1
            timestamp_ms, tags, tag, size, topic_id = _OFFSET_TAIL.unpack_from(value, end)
            if (tags, tag, size) == (1, 0, 16) and len(value) == end + _OFFSET_TAIL.size:
                return CommittedOffset(
                    offset, leader_epoch, value[_METADATA_AT:end].decode(), timestamp_ms, -1, topic_id
                )
    except StructError:
        pass  # shorter than the usual form: without a topic id, or of another version
    return _read_any_offset(value)


def _read_any_offset(value: bytes) -> CommittedOffset:
    version: int = _INT16.unpack_from(value)[0]
    body = memoryview(value)[2:]
    decoded: OffsetCommitValue = codec.decode(OffsetCommitValue, version, body)
    return CommittedOffset(
        decoded.offset,
        decoded.leader_epoch,
        decoded.metadata,
        decoded.commit_timestamp,
        decoded.expire_timestamp,
        decoded.topic_id,
    )

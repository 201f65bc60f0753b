"""The records of ``__consumer_offsets``, as bytes.

Owns: making and reading the keys and values that a group coordinator writes, in the versions that Kafka 4.3 writes,
and reading every version that older brokers wrote.  The record schemas themselves are declared in
``pybroker_protocol.messages.records_group``; committed offsets, which come by the million, are packed by hand here
and checked against the declaration by a test.

A key begins with an int16 that says its kind, a value with an int16 that says its version.

Counterpart in Kafka: ``GroupCoordinatorRecordHelpers`` and ``GroupCoordinatorRecordSerde``.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from pybroker_protocol import codec
from pybroker_protocol.messages.records_group import GroupMetadataValue

# Kinds of keys.  Offsets have two, the older from before Kafka 0.8.2; everything above is of other group types.
LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

GROUP_METADATA_VALUE_VERSION = 3

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_KEY_HEAD = Struct(">hh")
# version, offset, leader_epoch, length of metadata | commit_timestamp
_OFFSET_V3 = Struct(">hqih")
_OFFSET_V0_V1 = Struct(">hqh")
_INT64 = Struct(">q")
_INT64_PAIR = Struct(">qq")


class CommittedOffset(NamedTuple):
    """One committed offset; ``expire_timestamp_ms`` is -1 unless the client asked for a retention of its own."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int

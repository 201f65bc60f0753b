"""What consumers of classic groups say to each other inside of JoinGroup and SyncGroup, in version 1.

Owns the encoding of subscriptions (with what is owned) and assignments, written by hand from the format's description,
apart from the code under test.

Kafka counterpart: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json.
"""

from __future__ import annotations

import struct

Partition = tuple[str, int]

VERSION = struct.pack(">h", 1)
NO_USER_DATA = struct.pack(">i", -1)


def subscription(topics: list[str], owned: list[Partition]) -> bytes:
    """What a member says as it joins."""
    return VERSION + _array([_string(topic) for topic in topics]) + NO_USER_DATA + _partitions(owned)


def assignment(partitions: list[Partition]) -> bytes:
    """What a leader decides for a member."""
    return VERSION + _partitions(partitions) + NO_USER_DATA


def owned_in(metadata: bytes) -> list[Partition]:
    """What a member that joins has."""
    count, position = struct.unpack_from(">i", metadata, 2)[0], 6
    for _ in range(count):
        position += 2 + struct.unpack_from(">h", metadata, position)[0]
    position += 4 + max(struct.unpack_from(">i", metadata, position)[0], 0)
    return _read_partitions(metadata, position)


def partitions_in(assigned: bytes) -> list[Partition]:
    """What a member is given; nothing where there is no assignment."""
    return _read_partitions(assigned, 2) if assigned else []


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _array(elements: list[bytes]) -> bytes:
    return struct.pack(">i", len(elements)) + b"".join(elements)


def _partitions(partitions: list[Partition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return _array(
        [_string(topic) + _array([struct.pack(">i", index) for index in found]) for topic, found in by_topic.items()]
    )


def _read_partitions(data: bytes, position: int) -> list[Partition]:
    found: list[Partition] = []
    topics, position = struct.unpack_from(">i", data, position)[0], position + 4
    for _ in range(topics):
        length = struct.unpack_from(">h", data, position)[0]
        topic = data[position + 2 : position + 2 + length].decode()
        position += 2 + length
        count = struct.unpack_from(">i", data, position)[0]
        found += [(topic, index) for index in struct.unpack_from(f">{count}i", data, position + 4)]
        position += 4 + 4 * count
    return found

"""The hash by which a group notices that one of the topics it subscribes to has changed.

Owns: the metadata hash of KIP-1101, byte for byte Kafka's, since it is stored with the group.  Its library is imported
at first use.

Counterpart in Kafka: ``Utils.computeTopicHash`` and ``computeGroupHash`` (hash4j's XXH3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct, pack

# The version of the layout that is hashed.
TOPIC_HASH_MAGIC = 0

_int32 = Struct("<i").pack


def topic_hash(topic_id: bytes, name: str, partition_racks: Sequence[Iterable[str]]) -> int:
    """The hash of a topic, signed 64 bits: changes when the topic, its partitions or the racks of its replicas do.

    ``partition_racks`` has for each partition the rack of every replica whose broker is known and has one, a rack as
    often as there are replicas in it.
    """
    parts = [
        bytes([TOPIC_HASH_MAGIC]),
        # Two little-endian halves.
        topic_id[7::-1],
        topic_id[:7:-1],
        _string(name),
        _int32(len(partition_racks)),
    ]
    encoded_racks: dict[tuple[str, ...], bytes] = {}
    for index, racks in enumerate(partition_racks):
        key = tuple(sorted(racks))
        encoded = encoded_racks.get(key)
        if encoded is None:
            encoded = encoded_racks[key] = b"".join(_int32(_length(rack)) + _string(rack) for rack in key)
        parts += (_int32(index), encoded)
    return _xxh3(b"".join(parts))


def group_metadata_hash(topic_hashes: Mapping[str, int]) -> int:
    """The hash of all topics that a group subscribes to, by name; 0 when it has none.  Topics that do not exist are
    left out by the caller.
    """
    if not topic_hashes:
        return 0
    return _xxh3(pack(f"<{len(topic_hashes)}q", *(topic_hashes[name] for name in sorted(topic_hashes))))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _string(text: str) -> bytes:
    encoded = text.encode("utf-16-le")
    return encoded + _int32(len(encoded) // 2)


def _xxh3(content: bytes) -> int:
    from xxhash import xxh3_64_digest

    return int.from_bytes(xxh3_64_digest(content), "big", signed=True)

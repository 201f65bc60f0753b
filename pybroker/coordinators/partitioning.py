"""Which partition of a coordinator's topic keeps the records of a key: a group id or a transactional id.

Owns: Kafka's hash, and a bounded memory of its results.  Pure; knows no topic and no leader.

Counterpart in Kafka: ``partitionFor`` of its coordinators, on ``String.hashCode``.
"""

from __future__ import annotations

from functools import lru_cache

from pybroker import limits


def java_string_hash(text: str) -> int:
    """``String.hashCode`` of Java, over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def computed_partition(key: str, partition_count: int) -> int:
    """The partition of ``key``.  As in Kafka, the absolute value of -2**31 counts as 0."""
    return abs(java_string_hash(key)) % (1 << 31) % partition_count


_remembered_partition = lru_cache(limits.COORDINATOR_KEYS_REMEMBERED)(computed_partition)


def partition_for(key: str, partition_count: int) -> int:
    """``computed_partition``, as a rule without computing it again."""
    if len(key) <= limits.REMEMBERED_COORDINATOR_KEY_CHARS:
        return _remembered_partition(key, partition_count)
    return computed_partition(key, partition_count)

"""Which partition of a coordinator's topic keeps the records of a key: a group id or a transactional id.

Owns: Kafka's hash, and a bounded memory of its results.  Pure; knows no leader.

Counterpart in Kafka: ``partitionFor`` of its coordinators, on ``String.hashCode``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from pybroker import limits

if TYPE_CHECKING:
    from pybroker.cluster.image.coordinator_table import CoordinatorType
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.config.broker import BrokerConfig


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


def partitioner(coordinator: CoordinatorType, config: BrokerConfig, metadata: MetadataCache) -> Callable[[str], int]:
    """What gives the partition of the coordinator's topic that keeps a key, led anywhere; the topic may be missing
    yet."""
    planned = coordinator.partition_count(config)

    def partition_of(key: str) -> int:
        topic = metadata.image.topics_by_name.get(coordinator.topic)
        return partition_for(key, planned if topic is None else len(topic.partitions))

    return partition_of

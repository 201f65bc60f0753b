"""The group coordinator of a broker, as its handlers and the composition root see it.

Owns: which partition of ``__consumer_offsets`` a group belongs to, checks that need no group's state, and turning
requests into operations on shards.  Owns no group: ``GroupShard`` does.

Every method that takes ``done`` calls it exactly once with the response, inside the call or later on the loop.
Requests and responses are the message classes of ``pybroker_protocol``; a handler has already resolved topic ids to
names and refused topics that do not exist.

Counterpart in Kafka: ``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pybroker.cluster.image import GROUP_METADATA_TOPIC, ClusterImage, ImageDelta
from pybroker.cluster.metadata_cache import MetadataCache
from pybroker.coordinators.group.settings import GroupSettings
from pybroker.coordinators.group.shard import GroupShard
from pybroker.coordinators.ports import PartitionReader, PartitionWriter
from pybroker.coordinators.runtime import CoordinatorRuntime
from pybroker.env import Env

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig

Done = Callable[[Any], None]


def java_string_hash(text: str) -> int:
    """``String.hashCode`` of Java, over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition that keeps the group's records.  As in Kafka, the absolute value of -2**31 counts as 0."""
    return abs(java_string_hash(group_id)) % (1 << 31) % partition_count


class GroupCoordinator:
    """One per broker; wired by ``server.py``."""

    def __init__(
        self, env: Env, config: BrokerConfig, metadata: MetadataCache, writer: PartitionWriter, reader: PartitionReader
    ) -> None:
        ...

    def on_leadership(self, gained: set[int], lost: set[int]) -> None:
        """Partitions of ``__consumer_offsets`` that this broker leads from now on, or does not lead any more."""

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """The high watermark of a led partition of ``__consumer_offsets`` advanced."""

    def close(self) -> None:
        """Answer everybody who waits and cancel all timers."""

"""The committed offsets of all groups of one shard.

Owns: the offsets that the log has for each group, topic and partition, those inside open transactions, and replaying
both.  Owns no rule of who may commit.

An offset is kept as the bytes of its record's value and read when it is asked for. A commit is then one dict entry, and
a hundred thousand of them take little memory. ``_by_prefix`` finds a topic's offsets by the record's key without its
partition, so that replaying a commit decodes nothing.

Invariants:
- A topic's entry exists as long as it has an offset.
- ``_by_group`` and ``_by_prefix`` hold the same ``TopicOffsets``.
- An offset in an open transaction is dropped once a later record gives its partition an offset. The end of that
  transaction could not make it current any more.

Counterpart in Kafka: ``OffsetMetadataManager.Offsets`` and its pending transactional offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from pybroker.coordinators.group.group_records import offset_key_prefix, pack_partition, read_offset_key_prefix
from pybroker.coordinators.result import Record

PARTITION_BYTES = 4


class TopicOffsets:
    """One group's offsets of one topic: ``values[partition]`` is the value of the record."""

    __slots__ = ("group_id", "key_prefix", "topic", "values")

    def __init__(self, group_id: str, topic: str, key_prefix: bytes) -> None:
        self.group_id = group_id
        self.topic = topic
        self.key_prefix = key_prefix
        self.values: dict[int, bytes] = {}

    def tombstone(self, partition: int) -> Record:
        """The record that removes the partition's offset."""
        return self.key_prefix + pack_partition(partition), None


class _Pending(NamedTuple):
    """An offset inside of an open transaction, with the offset of its record."""

    value: bytes
    record_offset: int


class OffsetStore:
    """Offsets by group and topic."""

    __slots__ = ("_by_group", "_by_prefix", "_keys_of_producer", "_pending", "_pending_keys_of_group")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, TopicOffsets]] = {}
        self._by_prefix: dict[bytes, TopicOffsets] = {}
        # By key, then by producer id.  Empty unless there are transactions; so are the two that follow from it.
        self._pending: dict[bytes, dict[int, _Pending]] = {}
        self._keys_of_producer: dict[int, dict[bytes, None]] = {}
        self._pending_keys_of_group: dict[str, int] = {}

    # --- asking ---------------------------------------------------------------------------------------------------

    def topics(self, group_id: str) -> list[TopicOffsets]:
        """All that the group has committed, by topic."""
        return list(self._by_group.get(group_id, {}).values())

    def topic(self, group_id: str, topic: str) -> TopicOffsets | None:
        """What the group has committed for the topic, None when nothing."""
        topics = self._by_group.get(group_id)
        return None if topics is None else topics.get(topic)

    def key_prefix(self, group_id: str, topic: str) -> bytes:
        """The prefix of the topic's keys, remembered once the group has committed to the topic."""
        offsets = self.topic(group_id, topic)
        return offset_key_prefix(group_id, topic) if offsets is None else offsets.key_prefix

    def of_topic(self, topic: str) -> Iterator[TopicOffsets]:
        """What all groups have committed for the topic."""
        for topics in self._by_group.values():
            if topic in topics:
                yield topics[topic]

    @property
    def has_open_transactions(self) -> bool:
        return bool(self._pending)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction is open that may change the offset."""
        if not self._pending:
            return False
        return self.key_prefix(group_id, topic) + pack_partition(partition) in self._pending

    def has_unstable(self, group_id: str) -> bool:
        """Whether a transaction is open that may change some offset of the group."""
        return group_id in self._pending_keys_of_group

    def unstable_keys(self, group_id: str) -> set[bytes]:
        """The keys of the group's offsets inside open transactions."""
        if group_id not in self._pending_keys_of_group:
            return set()
        return {key for key in self._pending if read_offset_key_prefix(key[:-PARTITION_BYTES])[0] == group_id}

    def unstable_keys_of_topics(self, topics: Collection[str]) -> set[bytes]:
        """The keys of all groups' offsets of these topics inside open transactions."""
        return {key for key in self._pending if read_offset_key_prefix(key[:-PARTITION_BYTES])[1] in topics}

    # --- replaying ------------------------------------------------------------------------------------------------

    def find(self, prefix: bytes) -> TopicOffsets | None:
        """The topic's offsets by the prefix of their keys."""
        return self._by_prefix.get(prefix)

    def add_topic(self, prefix: bytes) -> TopicOffsets:
        """Make space for the first offset under a prefix that ``find`` does not know."""
        group_id, topic = read_offset_key_prefix(prefix)
        topics = self._by_group.setdefault(group_id, {})
        offsets = topics[topic] = self._by_prefix[prefix] = TopicOffsets(group_id, topic, prefix)
        return offsets

    def remove(self, prefix: bytes, partition: int) -> None:
        """Apply a tombstone."""
        offsets = self._by_prefix.get(prefix)
        if offsets is not None and offsets.values.pop(partition, None) is not None and not offsets.values:
            self._drop(offsets)
        key = prefix + pack_partition(partition)
        for producer_id in list(self._pending.get(key, ())):
            self._drop_pending(key, producer_id)

    def _drop(self, offsets: TopicOffsets) -> None:
        del self._by_prefix[offsets.key_prefix]
        topics = self._by_group[offsets.group_id]
        del topics[offsets.topic]
        if not topics:
            del self._by_group[offsets.group_id]

    # --- transactions ---------------------------------------------------------------------------------------------

    def add_pending(self, producer_id: int, key: bytes, value: bytes, record_offset: int) -> None:
        """Remember an offset until its transaction ends."""
        self._keys_of_producer.setdefault(producer_id, {})[key] = None
        producers = self._pending.get(key)
        if producers is None:
            producers = self._pending[key] = {}
            group_id, _ = read_offset_key_prefix(key[:-PARTITION_BYTES])
            self._pending_keys_of_group[group_id] = self._pending_keys_of_group.get(group_id, 0) + 1
        producers[producer_id] = _Pending(value, record_offset)

    def supersede_pending(self, key: bytes, record_offset: int) -> None:
        """A later record gave the partition an offset."""
        producers = self._pending.get(key)
        if producers is not None:
            for producer_id in [each for each, pending in producers.items() if pending.record_offset < record_offset]:
                self._drop_pending(key, producer_id)

    def end_transaction(self, producer_id: int, committed: bool) -> list[tuple[bytes, bytes, int]]:
        """Forget the transaction; returns (key, value, record offset) of what it made current."""
        keys = list(self._keys_of_producer.get(producer_id, ()))
        ended = [(key, *self._drop_pending(key, producer_id)) for key in keys]
        return ended if committed else []

    def _drop_pending(self, key: bytes, producer_id: int) -> _Pending:
        keys, producers = self._keys_of_producer[producer_id], self._pending[key]
        del keys[key]
        if not keys:
            del self._keys_of_producer[producer_id]
        pending = producers.pop(producer_id)
        if not producers:
            del self._pending[key]
            group_id, _ = read_offset_key_prefix(key[:-PARTITION_BYTES])
            left = self._pending_keys_of_group[group_id] = self._pending_keys_of_group[group_id] - 1
            if not left:
                del self._pending_keys_of_group[group_id]
        return pending

"""Committed offsets that are lowered: those past the end of a log, because it was cut or has never come so far.

Owns: which offsets all groups have in some topics, and the records that lower them.  Does not own where a log ends.

Invariant: an offset is lowered only as long as it is the very one that was looked at, so that no later commit is lost.

Counterpart in Kafka: none; a consumer there falls back to ``auto.offset.reset``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from pybroker.coordinators.group.group_records import offset_key_prefix, pack_offset, pack_partition, read_offset
from pybroker.coordinators.group.offsets.offset_store import OffsetStore
from pybroker.coordinators.result import Result

NO_LEADER_EPOCH = -1


class HeldOffset(NamedTuple):
    """What a group has committed of a partition, and when; ``value`` is that of the record."""

    group_id: str
    topic: str
    partition: int
    offset: int
    committed_ms: int
    value: bytes


def offsets_in(offsets: OffsetStore, topics: Collection[str]) -> list[HeldOffset]:
    """What all groups have committed of these topics, whatever members they have."""
    held = []
    for name in topics:
        for committed in offsets.of_topic(name):
            for partition, value in committed.values.items():
                read = read_offset(value)
                held.append(
                    HeldOffset(committed.group_id, name, partition, read.offset, read.commit_timestamp_ms, value)
                )
    return held


def lower_offsets(offsets: OffsetStore, lowered: Sequence[tuple[HeldOffset, int]], now_ms: int) -> Result:
    """Commit the offset beside each of these, where it is committed still; the response is 0."""
    result = Result(0)
    for held, end in lowered:
        committed = offsets.topic(held.group_id, held.topic)
        if committed is not None and committed.values.get(held.partition) == held.value:
            before = read_offset(held.value)
            value = pack_offset(end, NO_LEADER_EPOCH, before.metadata, now_ms, before.topic_id)
            key = offset_key_prefix(held.group_id, held.topic) + pack_partition(held.partition)
            result.records.append((key, value))
    return result

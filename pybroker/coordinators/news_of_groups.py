"""Which of a group's offsets at a link's source are news here, and the commit by which they are taken over.

Owns: the comparison of an offset at the source with the one here and the one that was seen there before.  Pure.  Does
not own a look at the source (``carried_offsets``).

Invariant: a group is taken back only where its offset has gone back at the source since the last look.

Counterpart in Kafka: ``OffsetSyncStore`` and the checks of ``MirrorCheckpointTask.syncGroupOffset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

# A group's offset: the topic's name here, and the partition.
Key = tuple[str, int]


class SourceOffset(NamedTuple):
    """An offset of the source, or where what is here ends before it."""

    offset: int
    leader_epoch: int
    metadata: str | None


def is_news(at_source: int, here: int, seen: int | None) -> bool:
    """Whether an offset is taken over; ``here`` is -1 where none is, ``seen`` what was there at the last look.

    What goes on at the source takes no group back that has read further here; what was set back there does.
    """
    if here < 0 or at_source == here or seen is None:
        return at_source > here
    return at_source < seen or (at_source > here and at_source != seen)


def is_news_to_the_end(end: int, at_source: int, here: int, seen: int | None) -> bool:
    """Whether an offset is taken over as far as what is here goes, which ends before it."""
    is_set_back = seen is not None and at_source < seen
    return end > here or (is_set_back and end != here)


def commit_of(
    group_id: str, offsets: Mapping[Key, SourceOffset], topic_ids: Mapping[str, bytes]
) -> OffsetCommitRequest:
    """A commit of no member."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), found in offsets.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetCommitRequestTopic(name=name, topic_id=topic_ids[name], partitions=[])
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                committed_metadata=found.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=list(topics.values()),
    )

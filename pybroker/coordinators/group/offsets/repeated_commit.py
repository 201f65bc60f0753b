"""The OffsetCommit that a member sends over and over, in which nothing but the offsets changes.

Owns: ``RepeatedCommit``, what of such a request can be made once: the checks of its topics and metadata have passed,
its keys are encoded.  Owns no rule of who may commit (``offset_operations`` does).

Several of them that arrive together are one operation: their records are one batch, in order of arrival. They come from
one member in one generation, and an offset that is about to be committed changes nothing of what decides over the next
one. So what is decided for the first holds for all, as does a failure of the append.

Counterpart in Kafka: the batch that ``CoordinatorRuntime`` fills while it lingers.
"""

from __future__ import annotations

from collections.abc import Sequence

from pybroker.coordinators.group.group_records import offset_key_prefix, pack_offset, pack_partition
from pybroker.coordinators.result import Record
from pybroker_protocol.messages.offset_commit import OffsetCommitRequest

# (committed offset, committed leader epoch) of each partition, in the order of the request.
CommittedPositions = Sequence[tuple[int, int]]


class RepeatedCommit:
    """``request`` has names and ids of topics that exist, and was accepted as a whole; it asks for no retention."""

    __slots__ = ("_partitions", "api_version", "request")

    def __init__(self, request: OffsetCommitRequest, api_version: int) -> None:
        self.request = request
        self.api_version = api_version
        self._partitions: list[tuple[bytes, str, bytes]] = []
        for topic in request.topics:
            prefix = offset_key_prefix(request.group_id, topic.name)
            for partition in topic.partitions:
                key = prefix + pack_partition(partition.partition_index)
                self._partitions.append((key, partition.committed_metadata or "", topic.topic_id))

    def add_records(self, records: list[Record], positions: CommittedPositions, now_ms: int) -> None:
        """The records of one such request."""
        for (key, metadata, topic_id), (offset, leader_epoch) in zip(self._partitions, positions, strict=True):
            records.append((key, pack_offset(offset, leader_epoch, metadata, now_ms, topic_id)))

"""Which member of a consumer group has which partition.

Owns: the invariant that a partition has one owner, the member that has it or still has to give it back.

Counterpart in Kafka: ``currentPartitionEpoch`` of ``ConsumerGroup``, which names epochs instead of members.
"""

from __future__ import annotations

from pybroker.coordinators.group.consumer.consumer_member import Assigned, ConsumerMember


class PartitionOwners:
    """The owners' member ids, by topic id and partition."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: dict[bytes, dict[int, str]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionOwners) and self._owners == other._owners

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return sum(map(len, self._owners.values()))

    def of(self, topic_id: bytes, partition: int) -> str | None:
        """Who has the partition, or has still to give it back."""
        owners = self._owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    def take(self, member: ConsumerMember) -> None:
        """All that the member has, or has to give back, is its own."""
        for assigned in (member.assigned, member.pending_revocation):
            for topic_id, epochs in assigned.items():
                owners = self._owners.setdefault(topic_id, {})
                for partition in epochs:
                    owners[partition] = member.member_id

    def release(self, member: ConsumerMember) -> None:
        """What the member had is free."""
        for assigned in (member.assigned, member.pending_revocation):
            for topic_id in assigned:
                self._release_topic(topic_id, assigned, member.member_id)

    def _release_topic(self, topic_id: bytes, assigned: Assigned, member_id: str) -> None:
        owners = self._owners.get(topic_id)
        if owners is None:
            return
        for partition in assigned[topic_id]:
            # A static member's partitions are its successor's already when it goes.
            if owners.get(partition) == member_id:
                del owners[partition]
        if not owners:
            del self._owners[topic_id]

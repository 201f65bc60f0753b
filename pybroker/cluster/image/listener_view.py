"""The cluster as clients of one listener may see it.

Owns: which brokers such a client can reach, and what that makes of a partition's leader and replicas.
Owns no partition state: that comes from the image.

Invariants: what a view says never changes; ``MetadataCache`` makes new ones when a broker's registration or the
controller changes.

Counterpart in Kafka: the listener-dependent half of ``KRaftMetadataCache``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pybroker.cluster.image.cluster_image import NO_LEADER, BrokerRegistration, PartitionImage
from pybroker_protocol.errors import ErrorCode


class ReachableBroker(NamedTuple):
    """Where clients of the listener find a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


class ListenerView:
    """``live`` has the brokers that clients may be sent to, ``registered`` also those that are fenced."""

    __slots__ = ("_brokers", "live", "metadata_frames", "registered", "topic_fragments")

    def __init__(self, brokers: Mapping[int, BrokerRegistration], listener: str) -> None:
        self._brokers = brokers
        self.registered = tuple(
            ReachableBroker(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
            for broker_id, broker in sorted(brokers.items())
            if (endpoint := broker.endpoints.get(listener)) is not None
        )
        self.live = {broker.broker_id: broker for broker in self.registered if not broker.fenced}
        # Encoded parts of Metadata responses by version: what stands before and after the topics, and the topics by id.
        # The cache drops those of topics that change.
        self.metadata_frames: dict[int, tuple[bytes, bytes]] = {}
        self.topic_fragments: dict[int, dict[bytes, bytes]] = {}

    def leader(self, partition: PartitionImage) -> tuple[int, ErrorCode]:
        """(leader id, NONE), or -1 with the reason: no leader now, or none that this listener leads to."""
        leader = partition.leader
        if leader in self.live:
            return leader, ErrorCode.NONE
        if leader not in self._brokers:
            return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND

    def reachable(self, replicas: Iterable[int]) -> list[int]:
        """Those of the replicas that clients can be sent to."""
        return [broker_id for broker_id in replicas if broker_id in self.live]

    def offline(self, partition: PartitionImage) -> list[int]:
        """The replicas that clients cannot be sent to, and those in log dirs that do not work."""
        return [
            broker_id
            for broker_id in partition.replicas
            if broker_id not in self.live or not self._brokers[broker_id].has_online_dir(partition.directory(broker_id))
        ]

    def forget_topics(self, topic_ids: Iterable[bytes]) -> None:
        """Drop what was encoded of topics that have changed."""
        for topic_id in topic_ids:
            for fragments in self.topic_fragments.values():
                fragments.pop(topic_id, None)

"""Ending transactions in partitions that are led anywhere in the cluster.

Owns: which broker each partition's marker goes to, and the request to the others (WriteTxnMarkers).  Owns neither what
is written here (``transaction_markers``) nor trying again (the transaction coordinator).

Invariant: each partition is answered once: with what its leader says, or with a code that has the coordinator try
again, since writing a marker twice does no harm.

Kafka counterpart: TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.image.cluster_image import NO_LEADER
from pybroker.cluster.membership.peers import MARKERS
from pybroker.replication.gathered_requests import GatheredRequests
from pybroker.storage.results import indexes_by_topic
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.cluster.membership.peers import Peers
    from pybroker.replication.transaction_markers import TransactionMarkers
    from pybroker.storage.results import PartitionErrors, TopicPartition, TransactionMarker

_VERSION: Final = 2
_TIMEOUT_MS: Final = 30_000  # request.timeout.ms, as Kafka's channel has it


class ClusterMarkers:
    """The transaction coordinator's ``MarkerWriter`` where there are other brokers."""

    def __init__(self, metadata: MetadataCache, broker_id: int, here: TransactionMarkers, peers: Peers) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._here = here
        self._requests = GatheredRequests(peers, MARKERS, _request, _by_producer, _VERSION, _TIMEOUT_MS)

    def write(
        self, marker: TransactionMarker, partitions: Sequence[TopicPartition], done: Callable[[PartitionErrors], None]
    ) -> None:
        """See ``MarkerWriter.write``."""
        errors: PartitionErrors = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in dict.fromkeys(partitions):
            leader = self._metadata.leader(*key)
            if leader is None:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif leader == NO_LEADER:
                errors[key] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(leader, []).append(key)
        left = len(by_leader)
        if not left:
            done(errors)
            return

        def answered(part: PartitionErrors) -> None:
            nonlocal left
            errors.update(part)
            left -= 1
            if not left:
                done(errors)

        for leader, led in by_leader.items():
            if leader == self._broker_id:
                self._here.write(marker, led, answered)
            else:
                self._send(leader, marker, led, answered)

    def _send(
        self,
        leader: int,
        marker: TransactionMarker,
        partitions: list[TopicPartition],
        answered: Callable[[PartitionErrors], None],
    ) -> None:
        def replied(_: Any | None, topics: Any | None) -> None:
            reported: PartitionErrors = {
                (topic.name, partition.partition_index): partition.error_code
                for topic in topics or ()
                for partition in topic.partitions
            }
            # Of what was not answered nobody knows more than that it is to be tried again.
            answered({key: reported.get(key, ErrorCode.NETWORK_EXCEPTION) for key in partitions})

        # A response has the markers of one producer together.
        self._requests.ask(leader, marker.producer_id, _writable(marker, partitions), len(partitions), replied)


def _request(markers: list[WritableTxnMarker]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=markers)


def _by_producer(response: WriteTxnMarkersResponse) -> dict[Hashable, Any]:
    return {result.producer_id: result.topics for result in response.markers}


def _writable(marker: TransactionMarker, partitions: list[TopicPartition]) -> WritableTxnMarker:
    by_topic = indexes_by_topic(partitions)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )

"""Transactions of the source that are open where a mirrored topic begins to take writes: nobody would end them.

Owns: which they are, and the markers that abort them.  Does not own the markers' rules (``storage/rules``).

Invariant: only a transaction is ended that began in a leader epoch of the source's: those that begin here are their
coordinator's.  What was ended is not open any more, so that this may be done again, by whoever leads.

Counterpart in Kafka: the abort markers of KIP-1279's stop of a mirror.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pybroker.storage.results import TransactionMarker
from pybroker_protocol.record_codec import end_transaction_batch

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import TopicImage
    from pybroker.cluster.image.links import MirroredTopic
    from pybroker.replication.partition import Partition
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker.storage.results import AppendResult


def end_source_transactions(
    replicas: ReplicaManager, topic: TopicImage, mirror: MirroredTopic, index: int, retry: Callable[[], None]
) -> bool:
    """Abort what is open of the source's in a partition that is led here; False if its log cannot be had now.

    ``retry()`` is called later where a marker could not be written.
    """
    if index >= len(mirror.first_epochs):
        return True  # a partition that the topic got since
    partition = replicas.partition(topic.topic_id, index)
    if partition is None:
        return False
    log = partition.log
    for first_offset, producer_id in list(log.producers.ongoing_txns.items()):
        if log.leader_epochs.epoch_of(first_offset) < mirror.first_epochs[index]:
            _abort(replicas, partition, producer_id, retry)
    return True


def _abort(replicas: ReplicaManager, partition: Partition, producer_id: int, retry: Callable[[], None]) -> None:
    entry = partition.log.producers.producers[producer_id]
    marker = TransactionMarker(producer_id, entry.producer_epoch, max(entry.coordinator_epoch, 0), False, 0)
    batch = end_transaction_batch(
        commit=False,
        coordinator_epoch=marker.coordinator_epoch,
        producer_id=producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=replicas.env.clock.now_ms(),
    )

    def written(result: AppendResult) -> None:
        if result.error_code:
            retry()

    result = partition.end_transaction(batch, marker, written)
    if result is not None:
        written(result)

"""What producers of the source have left where a mirrored topic begins to take writes.

Owns: that their open transactions are aborted, which no coordinator would end, and that their ids and sequence numbers
say nothing of this cluster's producers.  Does not own the markers' rules, nor what a log forgets (``storage``).

Invariants: only a transaction is ended that began in a leader epoch of the source's: those that begin here are their
coordinator's.  What was ended is not open any more, so that this may be done again, by any leader.  It is done before
the leader's first append.

Counterpart in Kafka: the abort markers of KIP-1279's stop of a mirror.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pybroker.storage.results import TransactionMarker
from pybroker_protocol.record_codec import end_transaction_batch

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import TopicImage
    from pybroker.cluster.image.link_states import MirroredTopic
    from pybroker.env import Env
    from pybroker.replication.partition import Partition
    from pybroker.storage.results import AppendResult


class Replicas(Protocol):
    """The partitions that are led here: ``ReplicaManager``."""

    @property
    def env(self) -> Env: ...

    def partition(self, topic: bytes, index: int) -> Partition | None:
        """The partition; None if it is not led here, or its log cannot be had now."""
        ...


def begin_own_history(replicas: Replicas, topic: TopicImage, mirror: MirroredTopic, partition: Partition) -> None:
    """A partition of a topic that is, or was, mirrored is led here from now on, and nothing is appended to it yet.

    Where it takes writes, what the source's producers have left says nothing of ours, whose ids may be the same.
    """
    partition.partition_log.begin_own_history(mirror.first_epoch(partition.index))
    end_source_transactions(replicas, topic, mirror, partition.index, lambda: None)  # a later call tries again


def end_source_transactions(
    replicas: Replicas, topic: TopicImage, mirror: MirroredTopic, index: int, retry: Callable[[], None]
) -> bool:
    """Abort what is open of the source's in a partition that is led here; False if its log cannot be had now.

    ``retry()`` is called later where a marker could not be written.
    """
    first_epoch = mirror.first_epoch(index)
    if not first_epoch:
        return True  # it takes no writes, or the topic got it since
    partition = replicas.partition(topic.topic_id, index)
    if partition is None:
        return False
    log = partition.log
    for first_offset, producer_id in list(log.producers.ongoing_txns.items()):
        if log.leader_epochs.epoch_of(first_offset) < first_epoch:
            _abort(replicas, partition, producer_id, first_epoch, retry)
    return True


def _abort(
    replicas: Replicas, partition: Partition, producer_id: int, first_epoch: int, retry: Callable[[], None]
) -> None:
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
        partition.partition_log.begin_own_history(first_epoch)
        if result.error_code:
            retry()

    result = partition.end_transaction(batch, marker, written)
    partition.partition_log.begin_own_history(first_epoch)  # its producer has nothing open any more
    if result is not None:
        written(result)

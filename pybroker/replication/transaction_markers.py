"""Ending transactions in the partitions that are led here.

Owns: ``TransactionMarkers``, which appends the control batch that commits or aborts a producer's transaction to each
partition. The group coordinator does so for partitions of ``__consumer_offsets``, whose pending offsets end in the
order of the log. Owns neither the rules that refuse a marker (``storage.rules.producer_state``) nor trying again (the
transaction coordinator).

Markers into many partitions are written over several turns of the loop.  None is written to a topic that a link
mirrors: its transactions are those of the source, whose markers come with their records.

Kafka counterpart: KafkaApis.handleWriteTxnMarkersRequest, ReplicaManager.appendRecords.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.record_codec import end_transaction_batch

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Clock
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker.storage.results import PartitionErrors, TopicPartition, TransactionMarker

# Markers of one transaction that are written at once; more of them take a share of this length of every turn of the
# loop, because the first marker of a log makes its files.
MARKERS_AT_ONCE = 8
MARKER_SLICE_MS = 2

# end(partition of __consumer_offsets, marker, done(error code))
EndGroupTransaction = Callable[[int, "TransactionMarker", Callable[[int], None]], None]
# written(partition, error code)
Written = Callable[["TopicPartition", int], None]

# The transaction coordinator tries these again by the code that it knows from partitions.
_GROUP_COORDINATOR_NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


logger = logging.getLogger(__name__)


class TransactionMarkers:
    """One per broker; the transaction coordinator's ``MarkerWriter``, and what WriteTxnMarkers asks."""

    def __init__(self, clock: Clock, replicas: ReplicaManager, end_group_transaction: EndGroupTransaction) -> None:
        self._clock = clock
        self._replicas = replicas
        self._end_group_transaction = end_group_transaction
        # Arguments of ``_write_one`` for which this turn of the loop has no time left.
        self._waiting: deque[tuple[TransactionMarker, bytes, TopicPartition, Written]] = deque()
        self._next: Cancellable | None = None

    def close(self) -> None:
        """Write nothing any more, and answer no caller."""
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()

    def write(
        self, marker: TransactionMarker, partitions: Sequence[TopicPartition], done: Callable[[PartitionErrors], None]
    ) -> None:
        """Append the marker to each of the partitions; a partition that is named twice gets it once.

        ``done(errors)`` runs exactly once, inside the call or later on the loop, with one code for each partition.
        """
        errors: PartitionErrors = {}
        missing = dict.fromkeys(partitions)
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            errors = dict.fromkeys(missing, ErrorCode.INVALID_REQUEST)  # it would be a marker of nobody's transaction
        if errors or not missing:
            done(errors)
            return
        count = len(missing)

        def written(key: TopicPartition, error_code: int) -> None:
            if key not in errors:
                errors[key] = error_code
                if len(errors) == count:
                    done(errors)

        batch = end_transaction_batch(
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        if count <= MARKERS_AT_ONCE:
            for key in missing:
                self._try_one(marker, batch, key, written)
            return
        self._waiting.extend((marker, batch, key, written) for key in missing)
        if self._next is None:
            self._next = self._replicas.env.timers.call_soon(self._write_some)

    def _write_some(self) -> None:
        """Go on for a share of a turn of the loop: the first marker of a log makes its files."""
        end_ms = self._clock.monotonic_ms() + MARKER_SLICE_MS
        waiting = self._waiting
        while waiting:
            self._try_one(*waiting.popleft())
            if self._clock.monotonic_ms() >= end_ms:
                break
        self._next = self._replicas.env.timers.call_soon(self._write_some) if waiting else None

    def _try_one(self, marker: TransactionMarker, batch: bytes, key: TopicPartition, written: Written) -> None:
        """Write one; if that fails, the wait for all of them hears of it, and the others are written."""
        try:
            self._write_one(marker, batch, key, written)
        except Exception:
            logger.exception("the marker of producer %d in %s-%d failed", marker.producer_id, *key)
            with suppress(Exception):
                written(key, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _write_one(
        self,
        marker: TransactionMarker,
        batch: bytes,
        key: TopicPartition,
        written: Written,
    ) -> None:
        topic, index = key
        mirror = self._replicas.image.mirrors.get(topic)
        if mirror is not None and not mirror.is_writable:
            written(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return
        partition = self._replicas.partition(topic, index)
        if partition is None:
            written(key, self._replicas.error_of(topic, index))
            return
        if topic == GROUPS.topic:
            self._end_group_transaction(index, marker, lambda code: written(key, _of_partition(code)))
            return
        result = partition.end_transaction(batch, marker, lambda later: written(key, later.error_code))
        if result is not None:
            written(key, result.error_code)


def _of_partition(error_code: int) -> int:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error_code in _GROUP_COORDINATOR_NOT_READY else error_code

"""Sees the end of transactions through: markers into every partition, again and again until each has one.

Owns: which partitions still need the marker of which transaction, and when they are asked again.  Owns no state of a
transaction: the shard says what to send, and hears when all is written.

Invariant: ``completed`` is called once for each end that was handed over, unless the coordinator's partition is lost
meanwhile, or led on in a new leader epoch. Then its next leader sends the markers again.

Counterpart in Kafka: ``TransactionMarkerChannelManager`` and ``TransactionMarkerRequestCompletionHandler``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from pybroker.coordinators.transaction.transaction_metadata import TransactionMetadata
from pybroker.coordinators.transaction.transaction_ports import MarkerWriter
from pybroker.env import Cancellable, Env
from pybroker.storage.results import PartitionErrors, TopicPartition, TransactionMarker
from pybroker_protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

RETRY_MS = 100

# The transaction was ended there by another epoch (an administrator's, or a fence), or the partition never took any
# data of it, or mirrors another cluster's by now, as on the way back of a cluster link: to wait would keep the
# transactional id from ever being used again.
_FATAL = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Cluster(Protocol):
    """What the sender asks about the cluster."""

    def coordinator_epoch(self, partition: int) -> int | None:
        """The epoch by which this broker coordinates that partition; None when it does not."""
        ...

    def exists(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition, of any topic."""
        ...

    def is_mirrored(self, topic: str) -> bool:
        """Whether a topic is another cluster's, and takes no writes here."""
        ...


class MarkerSender:
    """``completed(partition, txn)`` is called when every partition of ``txn`` has its marker, or will never."""

    __slots__ = ("_cluster", "_completed", "_env", "_markers", "_timers")

    def __init__(
        self,
        env: Env,
        markers: MarkerWriter,
        cluster: Cluster,
        completed: Callable[[int, TransactionMetadata], None],
    ) -> None:
        self._env = env
        self._markers = markers
        self._cluster = cluster
        self._completed = completed
        self._timers: dict[int, Cancellable] = {}

    def send(self, partition: int, txn: TransactionMetadata) -> None:
        """Begin with a transaction whose end is committed to ``partition`` of the coordinator's topic."""
        epoch = self._cluster.coordinator_epoch(partition)
        if epoch is None:
            return
        if not txn.partitions:
            self._completed(partition, txn)
            return
        marker = TransactionMarker(txn.producer_id, txn.producer_epoch, epoch, txn.is_committing, txn.client_version)
        self._write(partition, txn, marker, sorted(txn.partitions), logging.INFO)

    def later(self, action: Callable[[], None]) -> None:
        """Run ``action`` after the pause between two attempts, unless the sender is closed by then."""

        def run() -> None:
            self._timers.pop(id(run), None)
            action()

        self._timers[id(run)] = self._env.timers.call_later(RETRY_MS, run)

    def close(self) -> None:
        """Send nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _write(
        self,
        partition: int,
        txn: TransactionMetadata,
        marker: TransactionMarker,
        missing: Sequence[TopicPartition],
        log_level: int,
    ) -> None:
        self._markers.write(marker, missing, partial(self._written, partition, txn, marker, log_level))

    def _written(
        self,
        partition: int,
        txn: TransactionMetadata,
        marker: TransactionMarker,
        log_level: int,
        errors: PartitionErrors,
    ) -> None:
        if self._cluster.coordinator_epoch(partition) != marker.coordinator_epoch:
            # Markers of the new epoch are on their way to the same partitions: the id must wait for those, or they
            # would end what its producer writes there next.
            return
        failed = [target for target, error in errors.items() if error]
        missing = [target for target in failed if self._needs_another(target, errors[target])]
        hopeless = set(failed).difference(missing)
        if hopeless:
            _report(logging.WARNING, "gave up on", txn, {target: errors[target] for target in hopeless})
        if missing:
            _report(log_level, "will send again", txn, {target: errors[target] for target in missing})
            self.later(partial(self._again, partition, txn, marker, missing))
        else:
            self._completed(partition, txn)

    def _needs_another(self, target: TopicPartition, error: int) -> bool:
        if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not self._cluster.is_mirrored(target[0]):
            return self._cluster.exists(target)  # what that broker knows is older, or newer, than what is known here
        return error not in _FATAL and self._cluster.exists(target)

    def _again(
        self, partition: int, txn: TransactionMetadata, marker: TransactionMarker, missing: Sequence[TopicPartition]
    ) -> None:
        if self._cluster.coordinator_epoch(partition) == marker.coordinator_epoch:
            self._write(partition, txn, marker, missing, logging.DEBUG)


def _report(log_level: int, what: str, txn: TransactionMetadata, errors: PartitionErrors) -> None:
    """One line, however many partitions; at a low level where it repeats what was said before."""
    (topic, index), error = min(errors.items())
    logger.log(
        log_level,
        "%s the markers of transactional id %s for %d partitions: error %d of %s-%d",
        what,
        txn.transactional_id,
        len(errors),
        error,
        topic,
        index,
    )

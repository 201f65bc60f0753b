"""What the transaction coordinator needs of the layers above it.

Owns: ``MarkerWriter``, by which the coordinator ends a transaction in the partitions that were part of it, and
``ProducerIdSource``.  Owns no implementation: the replication layer has one, tests have another.

Counterpart in Kafka: ``TransactionMarkerChannelManager`` and the ``WriteTxnMarkers`` request that it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pybroker.storage.results import PartitionErrors, TopicPartition, TransactionMarker

MarkersDone = Callable[[PartitionErrors], None]


class MarkerWriter(Protocol):
    """Writes markers to partitions, wherever they are led."""

    def write(self, marker: TransactionMarker, partitions: Sequence[TopicPartition], done: MarkersDone) -> None:
        """Append the marker to each of the partitions.

        ``done`` runs exactly once, inside this call or later on the loop, when every partition either has the marker
        in its leader's log or said why not.  A partition that does not exist any more answers
        UNKNOWN_TOPIC_OR_PARTITION.  Writing a marker a second time does no harm.
        """
        ...


class ProducerIdSource(Protocol):
    """Producer ids that nobody had before."""

    @property
    def first(self) -> int:
        """The first that may be in use: those below it, if there are any, may be another cluster's, too."""
        ...

    def next(self, done: Callable[[int | None], None]) -> None:
        """``done(producer_id)``, inside the call or later on the loop; ``done(None)`` when none could be had."""
        ...

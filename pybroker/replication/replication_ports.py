"""What replication needs of the coordinators beside it and of the controller, and what its parts need of each other.

Owns:
- ``ReplicatingBroker``, what fetchers and quotas see of ``ReplicaManager``.
- ``TransactionPartitions``, by which a partition asks whose transaction it belongs to.
- ``IsrChanger``, by which a leader asks for another ISR.
- ``Watcher``, by which a partition's followers hear that there is more.

Owns no implementation: the transaction coordinator, the channel to the controller and ``follower_watch`` have one each,
tests have others.

Counterpart in Kafka: ``AddPartitionsToTxnManager``, ``AlterPartitionManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from pybroker.storage.results import PartitionErrors, TopicPartition

if TYPE_CHECKING:
    from pybroker.cluster.decisions.operations import InSyncState
    from pybroker.cluster.image.cluster_image import ClusterImage
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Env
    from pybroker.rate_limited_log import RateLimitedLog


class ReplicatingBroker(Protocol):
    """A broker whose replicas are copied, and that copies others': ``ReplicaManager``."""

    broker_id: int
    own_epoch: Callable[[], int]

    @property
    def env(self) -> Env: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def rate_limited_log(self) -> RateLimitedLog: ...


class TransactionPartitions(Protocol):
    """The transaction coordinator, wherever it is."""

    def add_partitions_for(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        verify_only: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        """Add the partitions to the producer's open transaction, or ask whether they are in it (KIP-890).

        ``done`` runs exactly once, inside the call or later on the loop, with one of Kafka's error codes for each
        partition, 0 where it belongs to the transaction.
        """
        ...


class IsrChanger(Protocol):
    """The controller, wherever it is, as far as leaders ask it (AlterPartition)."""

    def alter_partition(
        self,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        new_isr: tuple[tuple[int, int], ...],
        done: Callable[[int, InSyncState | None], None],
    ) -> None:
        """Make ``new_isr`` (broker ids with their epochs, -1 where one is not known) the partition's ISR.

        The controller does so if both epochs are those that it has, and every replica may be in an ISR.  ``done`` runs
        exactly once, later on the loop: with 0 and the state that the partition has then, or with one of Kafka's error
        codes and None.  Any code but those that speak of the partition's state is taken for one that may pass, and is
        tried again.  So is REQUEST_TIMED_OUT, where it is not known whether it was done.
        """
        ...


class Watcher(Protocol):
    """What hears that there may be something to say of a partition that a follower fetches: ``FollowerWatch``."""

    def note(self, fetched: Any) -> None:
        """There may be something to tell, which no fetch has to end for."""
        ...

    def wake(self, fetched: Any) -> None:
        """There is more to read, or the partition is not led here any more."""
        ...

    def forget(self, fetched: Any) -> None:
        """The follower does not ask for the partition any more."""
        ...


class Watched(Protocol):
    """A partition of a follower's fetches: ``FetchPartition``."""

    @property
    def watch(self) -> Watcher | None: ...

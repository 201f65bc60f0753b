"""The throttled partitions of one fetcher: which of them are not fetched while the follower's quota is exceeded.

Owns: which of the fetcher's partitions are throttled and lag, which of those are held back, and the timer that lets
them go.  Does not own the quota (``replication_quota``), nor the fetches (``replica_fetcher``).

Invariants:
- Only a partition is held back that lacks something its leader had committed at its last answer, or was not answered
  yet.
- Where many partitions lag, those that were fetched longest ago come first.
- Nothing is held back without a timer, which looks again at least every ``replica.fetch.backoff.ms``, so that changed
  settings count.

Kafka counterpart: RemoteLeaderEndPoint.shouldFollowerThrottle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.env import Cancellable
    from pybroker.replication.followed_partition import FollowedPartition, PartitionKey
    from pybroker.replication.replication_ports import ReplicatingBroker
    from pybroker.replication.replication_quota import ReplicationQuota


class FollowerThrottle:
    """``hold`` takes a partition out of the fetches, ``resume`` puts it back."""

    def __init__(
        self,
        broker: ReplicatingBroker,
        quota: ReplicationQuota,
        hold: Callable[[FollowedPartition], None],
        resume: Callable[[FollowedPartition], None],
    ) -> None:
        self._broker = broker
        self._quota = quota
        self._hold = hold
        self._resume = resume
        self._lagging: dict[PartitionKey, FollowedPartition] = {}
        self._held: list[FollowedPartition] = []
        self._timer: Cancellable | None = None

    def close(self) -> None:
        """Hold back nothing more, and let nothing go."""
        self._lagging.clear()
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()

    def forget(self, partition: FollowedPartition) -> None:
        """The partition is not the fetcher's any more."""
        if self._lagging.get(partition.key) is partition:
            del self._lagging[partition.key]

    def note(self, partition: FollowedPartition) -> None:
        """The partition is to be fetched, from wherever it is now."""
        if self._lagging:
            self._lagging.pop(partition.key, None)
        if partition.lags and self._quota.throttles(partition.topic, partition.index):
            self._lagging[partition.key] = partition

    def fetched(self, partition: FollowedPartition, size: int) -> None:
        """So many bytes of the partition have come, and are appended."""
        if self._quota.throttles(partition.topic, partition.index):
            self._quota.record(size)
        self.note(partition)

    def hold_back(self) -> None:
        """Before a fetch: hold back what may not be fetched now."""
        if not self._lagging or not self._quota.is_exceeded:
            return
        for partition in list(self._lagging.values()):
            if partition.is_ready and self._quota.throttles(partition.topic, partition.index):
                self._hold(partition)
                self._held.append(partition)
        self._look_later()

    def _look_later(self) -> None:
        if self._held and self._timer is None:
            pause_ms = min(self._quota.wait_ms(), self._broker.config.get_int("replica.fetch.backoff.ms"))
            self._timer = self._broker.env.timers.call_later(max(pause_ms, 1), self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        held, self._held = self._held, []
        is_exceeded = self._quota.is_exceeded
        for partition in held:
            if partition.retired:
                continue
            if is_exceeded and self._quota.throttles(partition.topic, partition.index):
                self._held.append(partition)
            else:
                self._resume(partition)
        self._look_later()

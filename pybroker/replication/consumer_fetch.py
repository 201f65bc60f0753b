"""A consumer's fetch: up to the high watermark or the last stable offset, of the leader or of a replica in its rack.

Owns: ``ConsumerFetch``: what a consumer may read of a partition, and which changes of one end its wait.  Does not own
reading within one limit, in slices or from the disk (``fetch_operation``).

Invariants: while it waits it stands in ``waiting`` of each of its partitions, and in none afterwards.

Kafka counterpart: Partition.fetchRecords, DelayedFetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.replication.fetch_operation import FetchOperation
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.replication.fetch_session import FetchPartition
    from pybroker.replication.followed_partition import FollowedPartition
    from pybroker.replication.partition import Partition

_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_NOT_AVAILABLE = int(ErrorCode.OFFSET_NOT_AVAILABLE)


class ConsumerFetch(FetchOperation):
    """One request of a client that replicates nothing."""

    __slots__ = ()

    def try_complete(self, partition: Partition | FollowedPartition) -> None:
        """A partition of this operation has more to read, or changed its role: complete if that is enough."""
        if self._finished:
            return
        if self._reading:
            self._has_news = True
            return
        # Whatever is appended is more for a reader of everything, but not for one that stops at an open transaction,
        # nor for one that has read at another leader what is committed here only now.
        anything_will_do = self._min_bytes <= 1 and not self._read_committed and partition.followers is None
        if partition.gone or anything_will_do or self._is_enough():
            self.expire()

    def _upper_bound(self, partition: Partition | FollowedPartition) -> int:
        return partition.upper_bound(self._read_committed)

    def _see_changes(self, partitions: list[FetchPartition]) -> None:
        for fetched in partitions:
            if fetched.partition is not None:
                fetched.partition.waiting[self] = None

    def _wait(self, max_wait_ms: int) -> None:
        if not self._partitions:  # nothing will ever come
            self._finish()
            return
        self._see_changes(self._partitions)
        self._tick = self._replicas.purgatory.add(self, max_wait_ms)
        if self._has_news and (
            self._is_enough()
            or any(fetched.partition is not None and fetched.partition.gone for fetched in self._partitions)
        ):
            self.expire()

    def _leave_partitions(self) -> None:
        for fetched in self._partitions:
            if fetched.partition is not None:
                fetched.partition.waiting.pop(self, None)

    def _read(self, fetched: FetchPartition, bytes_left: int, min_one_batch: bool) -> int:
        partition = fetched.partition
        if partition is None or partition.gone:
            partition = self._replicas.resolve(fetched)
            if partition is None:
                return 0
        if fetched.current_leader_epoch >= 0 and fetched.current_leader_epoch != partition.leader_epoch:
            fetched.answer(partition.epoch_error(fetched.current_leader_epoch))
            return 0
        log = partition.log
        offset = fetched.fetch_offset
        if fetched.last_fetched_epoch >= 0 and self._diverges(fetched, partition):
            return 0
        if not log.log_start_offset <= offset <= log.log_end_offset:
            # A follower may be late: that the offset is out of range is its leader's to say.  Where a leader's log was
            # cut the next leader epoch has the consumer look where its position stands; it would begin anew without.
            is_late = offset > log.log_end_offset and (partition.is_followed or partition.was_cut)
            fetched.answer(_NOT_AVAILABLE if is_late else _OUT_OF_RANGE)
            return 0
        if self._rack and self._sends_elsewhere(fetched, partition):
            return 0
        upper = log.last_stable_offset if self._read_committed else log.high_watermark
        fetched.answer_from(log)
        fetched.aborted_transactions = [] if self._read_committed else None
        max_bytes = fetched.max_bytes if fetched.max_bytes < bytes_left else bytes_left
        if offset >= upper or (max_bytes <= 0 and not min_one_batch):
            return 0
        return self._read_log(fetched, log, max_bytes, upper, min_one_batch)

    def _sends_elsewhere(self, fetched: FetchPartition, partition: Partition | FollowedPartition) -> bool:
        """Whether the consumer is sent to a replica in its rack; then it is answered."""
        followers = partition.followers
        replica = -1 if followers is None else followers.preferred_replica(self._rack, fetched.fetch_offset)
        if replica < 0:
            return False
        fetched.answer_from(partition.log)
        fetched.aborted_transactions = None
        fetched.preferred_read_replica = replica
        return True

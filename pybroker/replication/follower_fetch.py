"""A follower's fetch, as the leader serves it: it reads to the log's end, and tells how far the follower is.

Owns: ``FollowerFetchOperation``, which is a ``FetchOperation`` but for what it may read, what it waits for, and that
its first look counts for the high watermark and the ISR.  Does not own what is made of that (``followers``), nor
whether the request is a follower's (``handlers.fetch``).

Invariants: an offset counts once, when the fetch comes, and only after the leader epoch was found to be the leader's
own, the sender to be a replica, and what it has to be a prefix of the log; the high watermark that it is told is the
one behind that.  A fetch that waits is looked at when the log's end moves, not when the high watermark does.

Kafka counterpart: Partition.fetchRecords and followerReplicaOrThrow, DelayedFetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker.replication.fetch import FetchOperation, Replicas
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.replication.fetch_session import FetchPartition
    from pybroker.replication.followed_partition import FollowedPartition
    from pybroker.replication.followers import Followers
    from pybroker.replication.partition import Partition


class FollowerFetchOperation(FetchOperation):
    """See the module's docstring."""

    __slots__ = ("_broker_epoch", "_broker_id", "_counts")

    def __init__(
        self,
        replicas: Replicas,
        partitions: list[FetchPartition],
        *,
        broker_id: int,
        broker_epoch: int,
        min_bytes: int,
        max_bytes: int,
        done: Callable[[], None],
    ) -> None:
        super().__init__(
            replicas, partitions, min_bytes=min_bytes, max_bytes=max_bytes, read_committed=False, done=done
        )
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._counts = True  # this is its first look

    def try_complete(self, waited_for: Partition | FollowedPartition | Followers) -> None:
        """The end of a partition's log has moved, or the partition changed its role: complete if that is enough."""
        if self._finished:
            return
        if self._reading:
            self._has_news = True
        elif waited_for.gone or self._is_enough():
            self.expire()

    def _after_reading(self, total: int, failed: bool, max_wait_ms: int) -> None:
        self._counts = False
        super()._after_reading(total, failed, max_wait_ms)

    def _wait(self, max_wait_ms: int) -> None:
        self._replicas.waiting_fetches.setdefault(self._broker_id, {})[self] = None
        super()._wait(max_wait_ms)

    def _leave(self) -> None:
        self._replicas.waiting_fetches.get(self._broker_id, {}).pop(self, None)
        super()._leave()

    def _waiting(self, partition: Partition | FollowedPartition) -> dict[Any, None]:
        followers = partition.followers
        return {} if followers is None else followers.waiting  # it is gone, or answered with an error

    def _upper_bound(self, partition: Partition | FollowedPartition) -> int:
        return partition.log.log_end_offset

    def _read(self, fetched: FetchPartition, bytes_left: int, min_one_batch: bool) -> int:
        partition = fetched.partition
        if partition is None or partition.gone:
            partition = self._replicas.resolve(fetched)
            if partition is None:
                return 0
        error_code = self._error(fetched, partition)
        if error_code:
            fetched.answer(error_code)
            return 0
        log = partition.log
        if fetched.last_fetched_epoch >= 0 and self._diverges(fetched, partition):
            return 0
        if not log.log_start_offset <= fetched.fetch_offset <= log.log_end_offset:
            fetched.answer(ErrorCode.OFFSET_OUT_OF_RANGE)
            return 0
        if self._counts and partition.followers is not None:
            partition.followers.on_fetch(
                self._broker_id, self._broker_epoch, fetched.fetch_offset, fetched.follower_start_offset
            )
        fetched.answer_from(log)
        fetched.aborted_transactions = None
        upper = log.log_end_offset
        max_bytes = min(fetched.max_bytes, bytes_left)
        if fetched.fetch_offset >= upper or (max_bytes <= 0 and not min_one_batch):
            return 0
        return self._read_log(fetched, partition, max_bytes, upper, min_one_batch)

    def _error(self, fetched: FetchPartition, partition: Partition | FollowedPartition) -> int:
        """Why the partition is not the sender's to fetch."""
        error_code = partition.epoch_error(fetched.current_leader_epoch)
        if error_code or (partition.followers is not None and partition.followers.knows(self._broker_id)):
            return error_code
        # The epoch is the leader's own, and the replica may be one that the leader has not heard of yet.
        return ErrorCode.UNKNOWN_LEADER_EPOCH if fetched.current_leader_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER

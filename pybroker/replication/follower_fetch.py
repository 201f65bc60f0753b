"""A follower's fetch, as the leader serves it: it reads to the log's end, and tells how far the follower is.

Owns: ``FollowerFetch``: which partitions it looks at, what it may read of one, what it waits for, and that its first
look counts for the high watermark and the ISR.  Does not own what is made of that (``followers``), reading within one
limit (``fetch_operation``), which partitions are due (``follower_watch``), nor whether the request is a follower's
(``handlers.fetch``).

Invariants:
- An offset counts once, when the fetch comes. Before that the leader epoch was found to be the leader's own, the sender
  to be a replica, and what it has to be a prefix of the log.
- The high watermark in its reply is the one behind that.
- A fetch that waits is looked at when the log's end moves, not when the high watermark does.
- The answer is made of both looks, at what was due when it came and when it ends.
- A partition stays due while the follower lacks something of it.

A throttled partition (KIP-73) of which the sender is not in sync is answered without records while the leader's quota
is exceeded.  A fetch that has nothing else waits until the quota allows more, at most as long as it wants to.

Kafka counterpart: Partition.fetchRecords and followerReplicaOrThrow, DelayedFetch, ReplicaManager.shouldLeaderThrottle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker import limits
from pybroker.replication.fetch_operation import FetchOperation, FetchSource
from pybroker.replication.followers import UNKNOWN_OFFSET
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pybroker.replication.fetch_session import FetchPartition
    from pybroker.replication.followed_partition import FollowedPartition
    from pybroker.replication.follower_watch import FollowerWatch
    from pybroker.replication.partition import Partition


class FollowerFetch(FetchOperation):
    """One request of another broker that replicates what it reads."""

    __slots__ = ("_broker_epoch", "_broker_id", "_counts", "_news", "_quota", "_watch")

    def __init__(
        self,
        replicas: FetchSource,
        watch: FollowerWatch,
        *,
        broker_epoch: int,
        min_bytes: int,
        max_bytes: int,
        done: Callable[[list[FetchPartition]], None],
    ) -> None:
        super().__init__(replicas, [], min_bytes, max_bytes, done)
        self._watch = watch
        self._broker_id = watch.broker_id
        self._broker_epoch = broker_epoch
        self._counts = True  # this is its first look
        self._news: list[FetchPartition] = []  # which that has found, where it waits
        quota = replicas.leader_quota
        self._quota = quota if quota.is_in_use else None  # what is throttled from now on is throttled in the next fetch

    def start(self, max_wait_ms: int) -> None:
        """Read what is due."""
        self._partitions = self._watch.take(self._counts)
        super().start(max_wait_ms)

    def try_complete(self, _: object) -> None:
        """The end of a partition's log has moved, or a partition changed its role: complete if that is enough."""
        # Without a quota whatever wakes the fetch is answered, a byte or a lost role: nothing has to be counted.
        if not self._finished and (
            (self._min_bytes <= 1 and self._quota is None) or self._has_lost_one() or self._is_enough()
        ):
            self.expire()

    def _has_lost_one(self) -> bool:
        return any(fetched.partition is not None and fetched.partition.gone for fetched in self._watch.due)

    def abandon(self) -> None:
        """The follower is gone: another fetch brings what was found."""
        super().abandon()
        for fetched in (*self._news, *self._partitions):
            self._watch.note(fetched)

    def _finish(self) -> None:
        if self._quota is not None:
            self._quota.record(sum(len(each.records) for each in self._partitions if self._is_throttled(each)))
        for fetched in self._partitions:
            if len(fetched.records):
                self._watch.served(fetched)
        if self._news:
            self._partitions = list(dict.fromkeys(self._news + self._partitions))
        super()._finish()

    def _wait(self, max_wait_ms: int) -> None:
        self._counts = False
        quota = self._quota
        if quota is not None and any(each.partition and self._must_wait(each.partition) for each in self._partitions):
            max_wait_ms = min(max_wait_ms, quota.wait_ms())
        self._news = [fetched for fetched in self._partitions if fetched.is_news]
        self._watch.waiting[self] = None
        self._tick = self._replicas.purgatory.add(self, max_wait_ms)
        if len(self._partitions) > limits.FETCH_PARTITIONS_AT_ONCE and (self._has_lost_one() or self._is_enough()):
            self.expire()  # what was read in an earlier turn has more by now

    def _leave_partitions(self) -> None:
        self._watch.waiting.pop(self, None)

    def _awaited(self) -> Iterable[FetchPartition]:
        return self._watch.due

    def _upper_bound(self, partition: Partition | FollowedPartition) -> int:
        is_left_out = self._quota is not None and self._must_wait(partition)
        return UNKNOWN_OFFSET if is_left_out else partition.log.log_end_offset

    def _must_wait(self, partition: Partition | FollowedPartition) -> bool:
        """Whether nothing may be read of the partition because it is throttled; who is in sync never waits."""
        quota, followers = self._quota, partition.followers
        if quota is None or not quota.throttles(partition.topic, partition.index):
            return False
        is_in_sync = followers is not None and followers.may_be_in_sync(self._broker_id)
        return not is_in_sync and quota.is_exceeded

    def _is_throttled(self, fetched: FetchPartition) -> bool:
        quota = self._quota
        return quota is not None and fetched.topic is not None and quota.throttles(fetched.topic, fetched.index)

    def _read(self, fetched: FetchPartition, bytes_left: int, min_one_batch: bool) -> int:
        size = self._look(fetched, bytes_left, min_one_batch)
        if size or fetched.error_code or fetched.diverging_epoch is not None or not self._is_settled(fetched):
            self._watch.note(fetched)
        return size

    def _is_settled(self, fetched: FetchPartition) -> bool:
        """Whether the follower has everything (if not, there was no space, or it is throttled), and is in sync."""
        partition = fetched.partition
        if partition is None or partition.followers is None or fetched.fetch_offset < partition.log.log_end_offset:
            return False
        return partition.followers.is_in_sync(self._broker_id)

    def _look(self, fetched: FetchPartition, bytes_left: int, min_one_batch: bool) -> int:
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
        followers = partition.followers
        if followers is not None:
            if fetched.watch is self._watch:
                followers.watched[self._broker_id] = fetched
            if self._counts:
                followers.on_fetch(
                    self._broker_id, self._broker_epoch, fetched.fetch_offset, fetched.follower_start_offset
                )
        fetched.answer_from(log)
        fetched.aborted_transactions = None
        upper = self._upper_bound(partition)
        max_bytes = min(fetched.max_bytes, bytes_left)
        if fetched.fetch_offset >= upper or (max_bytes <= 0 and not min_one_batch):
            return 0
        return self._read_log(fetched, log, max_bytes, upper, min_one_batch)

    def _error(self, fetched: FetchPartition, partition: Partition | FollowedPartition) -> int:
        """Why the partition is not the sender's to fetch."""
        error_code = partition.epoch_error(fetched.current_leader_epoch)
        if error_code or (partition.followers is not None and partition.followers.knows(self._broker_id)):
            return error_code
        # The epoch is the leader's own, and the replica may be one that the leader has not heard of yet.
        return ErrorCode.UNKNOWN_LEADER_EPOCH if fetched.current_leader_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER

"""A fetch: reading many partitions within one limit, and waiting until there is enough.

Owns: ``FetchOperation``: one request's reads, whether it waits for ``min_bytes``, and its cold reads. Does not own
which partitions are looked at, what may be read of one and what a wait is woken by. These are other rules for a
consumer (``consumer_fetch``) than for a follower (``follower_fetch``). Nor sessions (``fetch_session``), the wire or
the log.

Invariants:
- An operation completes exactly once.
- An operation of many partitions is read in slices, so that it delays no other request. What is appended meanwhile to a
  partition that was read already is not missed.
- Records of one partition are one view.
- The first partition with data gets at least one batch, whatever the limits are (KIP-74).

A waiting fetch completes when any of these holds:
- There is enough: ``min_bytes`` are there to be read, or a partition is behind by a segment.
- A partition of it is gone, another broker leads it, or its leader epoch changed.
- Its time is over.
- Its session's connection is gone; then nothing is answered.

Kafka counterpart: ReplicaManager.fetchMessages and DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from pybroker import limits
from pybroker.storage.log.cold_read import ColdRead
from pybroker.storage.results import ReadResult
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.env import Env
    from pybroker.replication.fetch_session import FetchPartition
    from pybroker.replication.followed_partition import FollowedPartition
    from pybroker.replication.partition import Partition
    from pybroker.replication.purgatory import Purgatory
    from pybroker.replication.replication_quota import ReplicationQuota
    from pybroker.storage.log.log import Log

# A slice of a long fetch has about this length.  The clock is looked at every few partitions: one that has to be opened
# and mapped, and another closed for it, takes 2 ms in a process with thousands of maps.
FETCH_PARTITIONS_PER_LOOK = 8
FETCH_SLICE_MS = 2

# Records up to so many bytes are copied in a long fetch.  Views of them would keep the maps of segments that were
# closed for others, and 10,000 maps that end with the reply, all in one turn, take 130 ms.
FETCH_COPIED_BYTES_MAX = 1 << 10

_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


class FetchSource(Protocol):
    """What a fetch asks of the partitions that are here: ``ReplicaManager``."""

    @property
    def env(self) -> Env: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def leader_quota(self) -> ReplicationQuota:
        """What followers are sent of throttled partitions."""
        ...

    def resolve(self, fetched: FetchPartition) -> Partition | FollowedPartition | None:
        """Bind a partition of a fetch to its partition here, or answer it with the error."""
        ...


class FetchOperation:
    """What the fetches of consumers and of followers share.

    ``done(partitions)`` is called when every partition of it is answered.
    """

    __slots__ = (
        "_abandoned",
        "_cold_reads",
        "_done",
        "_finished",
        "_has_news",
        "_max_bytes",
        "_min_bytes",
        "_partitions",
        "_rack",
        "_read_committed",
        "_reading",
        "_replicas",
        "_tick",
    )

    def __init__(
        self,
        replicas: FetchSource,
        partitions: list[FetchPartition],
        min_bytes: int,
        max_bytes: int,
        done: Callable[[list[FetchPartition]], None],
        read_committed: bool = False,
        rack: str = "",
    ) -> None:
        """``rack``: a consumer's that is to be sent to a replica there; none where it is to be served here."""
        self._replicas = replicas
        self._partitions = partitions
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._read_committed = read_committed
        self._done = done
        self._finished = False
        self._abandoned = False
        self._rack = rack
        self._reading = False  # in slices: the rest is read in later turns of the loop
        self._has_news = False  # since it was read, in a slice, a partition was appended to or changed its role
        self._cold_reads = 0
        self._tick = -1  # where it stands in the purgatory while it waits

    # --- what is another with a consumer than with a follower ------------------------------------------------------

    def _read(self, fetched: FetchPartition, bytes_left: int, min_one_batch: bool) -> int:
        """Read one partition into ``fetched``; the bytes read (of a cold read: those that it will bring)."""
        raise NotImplementedError

    def _awaited(self) -> Iterable[FetchPartition]:
        """The partitions that may have more to read."""
        return self._partitions

    def _upper_bound(self, partition: Partition | FollowedPartition) -> int:
        """Up to where it may read."""
        raise NotImplementedError

    def _see_changes(self, partitions: list[FetchPartition]) -> None:
        """These are read in a turn before the last one: what is appended to them from now on was not seen."""

    def _wait(self, max_wait_ms: int) -> None:
        """Stand where what is waited for is noticed, and in the purgatory."""
        raise NotImplementedError

    def _leave_partitions(self) -> None:
        """Stand nowhere any more where it would be looked at."""
        raise NotImplementedError

    # --- what is the same ------------------------------------------------------------------------------------------

    def start(self, max_wait_ms: int) -> None:
        """Read every partition in order; then wait when there is too little and the client wants to wait."""
        if len(self._partitions) <= limits.FETCH_PARTITIONS_AT_ONCE:
            total, failed = self._read_some(self._partitions, 0)
            self._after_reading(total, failed, max_wait_ms)
        else:
            self._reading = True
            self._read_slice(0, 0, False, max_wait_ms)

    def expire(self) -> None:
        """The wait is over, for whatever reason: answer with what is there."""
        if not self._finished:
            self._leave()
            self.start(max_wait_ms=0)

    def abandon(self) -> None:
        """The client is gone."""
        self._abandoned = True
        self._leave()
        for fetched in self._partitions:
            fetched.records = b""  # a session's partitions live on, and must pin no segment

    def _leave(self) -> None:
        """Wait no longer."""
        self._finished = True
        if self._tick >= 0:
            self._replicas.purgatory.remove(self, self._tick)
        self._leave_partitions()

    def _finish(self) -> None:
        if len(self._partitions) > limits.FETCH_PARTITIONS_AT_ONCE:
            self._leave()
        self._finished = True
        self._done(self._partitions)

    def _is_enough(self) -> bool:
        """Whether the log holds ``min_bytes``, over all partitions, or goes on in another segment.

        A read ends with its segment and cuts no batch, so that it may bring less than this counts; a wait would bring
        no more.
        """
        total = 0
        for fetched in self._awaited():
            partition = fetched.partition
            if partition is not None and not partition.gone:
                offset, upper = fetched.fetch_offset, self._upper_bound(partition)
                if offset < upper:
                    log = partition.log
                    if offset < log.active.base_offset and log.segments.floor(offset) < log.segments.floor(upper):
                        return True
                    total += min(log.bytes_between(offset, upper), fetched.max_bytes)
        return total >= max(self._min_bytes, 1)

    def _read_slice(self, start: int, total: int, failed: bool, max_wait_ms: int) -> None:
        """Read on from partition ``start`` for a share of a turn of the loop; the first touch of a log opens it."""
        if self._abandoned:
            return
        env = self._replicas.env
        end_ms = env.clock.monotonic_ms() + FETCH_SLICE_MS
        while start < len(self._partitions):
            some = self._partitions[start : start + FETCH_PARTITIONS_PER_LOOK]
            start += len(some)
            total, any_failed = self._read_some(some, total)
            failed = failed or any_failed
            if not self._finished:
                self._see_changes(some)
            if env.clock.monotonic_ms() >= end_ms:
                env.timers.call_soon(self._read_slice, start, total, failed, max_wait_ms)
                return
        self._reading = False
        self._after_reading(total, failed, max_wait_ms)

    def _after_reading(self, total: int, failed: bool, max_wait_ms: int) -> None:
        if self._cold_reads:
            self._finished = True
        elif failed or total >= self._min_bytes or max_wait_ms <= 0:
            self._finish()
        elif not total or not self._is_enough():
            self._wait(max_wait_ms)
        else:
            self._finish()

    def _read_some(self, partitions: list[FetchPartition], total: int) -> tuple[int, bool]:
        """Read partitions after ``total`` bytes of others; the bytes then, and whether any of them failed."""
        failed = False
        for fetched in partitions:
            total += self._read(fetched, self._max_bytes - total, total == 0)
            if fetched.error_code or fetched.diverging_epoch is not None or fetched.preferred_read_replica >= 0:
                failed = True
        return total, failed

    @staticmethod
    def _diverges(fetched: FetchPartition, partition: Partition | FollowedPartition) -> bool:
        """Whether what the client has does not end as this log does there; then it is answered, with where to look."""
        log = partition.log
        epoch, end_offset = log.end_offset_for_epoch(fetched.last_fetched_epoch, partition.leader_epoch)
        if end_offset < 0 or epoch < 0 or fetched.fetch_offset < log.log_start_offset:
            fetched.answer(_OUT_OF_RANGE)
            return True
        if epoch >= fetched.last_fetched_epoch and end_offset >= fetched.fetch_offset:
            return False
        fetched.answer_from(log)
        fetched.aborted_transactions = None
        fetched.diverging_epoch = epoch, end_offset
        return True

    def _read_log(self, fetched: FetchPartition, log: Log, max_bytes: int, upper: int, min_one_batch: bool) -> int:
        result = log.read(fetched.fetch_offset, max_bytes, upper, min_one_batch)
        if isinstance(result, ColdRead):
            self._cold_reads += 1
            result.start(lambda read: self._on_cold_read(fetched, log, read))
            return result.max_bytes
        self._take(fetched, log, result)
        return len(result.records)

    def _take(self, fetched: FetchPartition, log: Log, result: ReadResult) -> None:
        fetched.error_code = result.error_code
        fetched.records = result.records
        if self._reading and result.records.nbytes <= FETCH_COPIED_BYTES_MAX:
            fetched.records = bytes(result.records)
        if self._read_committed and len(result.records):
            aborted = log.aborted_transactions_of(fetched.fetch_offset, result.records)
            if aborted is None:
                fetched.answer(_STORAGE_ERROR)
            else:
                fetched.aborted_transactions = [(entry.producer_id, entry.first_offset) for entry in aborted]

    def _on_cold_read(self, fetched: FetchPartition, log: Log, read: ReadResult) -> None:
        if self._abandoned:
            return  # its session's partitions may be in a later fetch by now
        self._take(fetched, log, read)
        self._cold_reads -= 1
        if self._cold_reads == 0 and not self._reading:
            self._finish()

"""One partition on this broker: its leader epoch, its high watermark, and who waits for it.

Owns: the partition's role, the rule by which the high watermark moves, the fetches parked on it, and what clients are
told of its offsets and may delete.
Does not own bytes (``storage.log``), the wire or time.

Invariants: the high watermark never moves back while the leader stays, never passes the log's end, and is all that a
consumer sees.  With one replica it is the end of the log as soon as the bytes are written, or synced where
acknowledgements wait for that.

Kafka counterpart: kafka.cluster.Partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pybroker.storage.append_run import append_run
from pybroker.storage.results import TimestampOffset
from pybroker.storage.timestamp_lookups import TimestampLookup
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.replication.fetch import FetchOperation
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker.storage.log import Log
    from pybroker.storage.results import AppendResult, TransactionMarker

AppendDone = Callable[["AppendResult"], None]

# The timestamps of ListOffsets that are none.
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The offset of DeleteRecords that is none.
TO_HIGH_WATERMARK = -1


class Partition:
    """A partition that this broker leads."""

    __slots__ = (
        "gone",
        "high_watermark_listener",
        "index",
        "leader_epoch",
        "log",
        "marked",
        "replica_manager",
        "topic",
        "topic_id",
        "waiting",
    )

    def __init__(
        self, replica_manager: ReplicaManager, topic: str, topic_id: bytes, index: int, leader_epoch: int, log: Log
    ) -> None:
        self.replica_manager = replica_manager
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self.log = log
        self.gone = False  # deleted, or led by another broker: look it up again
        self.marked = False  # appended to in this turn, its waiting fetches are not looked at yet
        self.waiting: dict[FetchOperation, None] = {}
        self.high_watermark_listener: Callable[[int, int], None] | None = None

    def append_as_leader(self, records: memoryview, produce_version: int, done: AppendDone) -> AppendResult | None:
        """Append one batch of a client.  The result now, or None and ``done(result)`` later on the loop.

        ``records`` is a writable view; its bytes must stay as they are until the result is there.
        """
        result = self.log.append_as_leader(records, self.leader_epoch, produce_version, self._then(done))
        if result is not None:
            self.on_appended()
        return result

    def append_run(self, batches: Sequence[memoryview], produce_version: int) -> list[int]:
        """Append the batches of a client as far as they are plain (``storage.append_run``): their base offsets."""
        base_offsets = append_run(self.log, batches, self.leader_epoch, produce_version)
        if base_offsets:
            self.on_appended()
        return base_offsets

    def append_internal(self, records: bytes, done: AppendDone) -> AppendResult | None:
        """Append a batch that the broker itself built (coordinators)."""
        result = self.log.append_internal(records, self.leader_epoch, self._then(done))
        if result is not None:
            self.on_appended()
        return result

    def append_end_transaction(self, batch: bytes, marker: TransactionMarker, done: AppendDone) -> AppendResult | None:
        """Append the control batch of a marker; see ``Log.append_end_transaction``."""
        result = self.log.append_end_transaction(
            batch, marker.coordinator_epoch, marker.transaction_version, self.leader_epoch, self._then(done)
        )
        if result is not None:
            self.on_appended()
        return result

    def _then(self, done: AppendDone) -> AppendDone:
        def written(result: AppendResult) -> None:
            self.on_appended()
            done(result)

        return written

    def on_appended(self) -> None:
        """The log's end may have moved: so does the high watermark, and whoever waits is looked at after this turn."""
        log = self.log
        # Where acknowledgements wait for a sync, nobody reads what a power failure may take back.
        end_offset = log.recovery_point if log.acks_wait_for_syncs else log.log_end_offset
        if end_offset > log.high_watermark:
            log.update_high_watermark(end_offset)
            if self.waiting and not self.marked:
                self.replica_manager.mark(self)
            if self.high_watermark_listener is not None:
                self.high_watermark_listener(self.index, log.high_watermark)

    def upper_bound(self, read_committed: bool) -> int:
        """The offset that a consumer's fetch stops at."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def epoch_error(self, leader_epoch: int) -> int:
        """What a client is told that takes ``leader_epoch`` (-1: any) for the current one (KIP-320); 0 if it is."""
        if leader_epoch in (-1, self.leader_epoch):
            return 0
        is_old = leader_epoch < self.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH

    def offset_for(self, timestamp: int, read_committed: bool) -> TimestampOffset | TimestampLookup:
        """ListOffsets, also for the special timestamps; offset -1 where there is none, or the disk does not say.

        What takes longer is a lookup, to be started; what it finds is to be ``shown``.
        """
        log = self.log
        if timestamp == LATEST:
            return TimestampOffset(-1, self.upper_bound(read_committed), self.leader_epoch)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return TimestampOffset(-1, log.log_start_offset, self._epoch_of_start())
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return TimestampOffset(-1, -1, -1)
        found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        return found if isinstance(found, TimestampLookup) else self.shown(found, read_committed)

    def shown(self, found: TimestampOffset | None, read_committed: bool) -> TimestampOffset:
        """What a search by timestamp has found, if it may be read."""
        if found is None or found.offset >= self.upper_bound(read_committed):
            return TimestampOffset(-1, -1, -1)
        return found

    def _epoch_of_start(self) -> int:
        """The epoch of the first offset; the next one written, if there is none yet, will be of the leader's own."""
        log = self.log
        if log.log_start_offset == log.log_end_offset:
            return self.leader_epoch
        return log.leader_epochs.epoch_of(log.log_start_offset)

    def delete_records(self, offset: int) -> int:
        """DeleteRecords: begin the log at ``offset``, -1 meaning the high watermark; an error code (KIP-107)."""
        log = self.log
        if "delete" not in log.config.cleanup_policy:
            return ErrorCode.POLICY_VIOLATION
        if offset == TO_HIGH_WATERMARK:
            offset = log.high_watermark
        return log.increment_log_start_offset(offset) if offset >= 0 else ErrorCode.OFFSET_OUT_OF_RANGE

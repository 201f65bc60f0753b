"""One partition on this broker: its leader epoch, its high watermark, and who waits for it.

Owns: the partition's role, who may append when (leader, replicas in sync), the rule by which the high watermark moves,
and when a batch is acknowledged. Owns what is parked on the partition, and what clients get of its offsets and may
delete. Does not own bytes, nor the rules for records and producers (``storage.log.log``), the wire or time.

Invariants: the high watermark never moves back while the leader stays, never passes the log's end, and is all that a
consumer sees. With one replica it is the end of the log as soon as the bytes are written, or synced where
acknowledgements wait for that (``advance_high_watermark``). With several it follows from what its followers have
(``followers``), and a new leader begins with the one that it had as a follower. Whatever ends after the partition has
another role, an append that a thread was at, moves nothing here. Clients' batches come in by ``append`` or, many with
one write, by ``append_run``; a rule for who may append is asked by ``_refusal``, once, for both.

Kafka counterpart: kafka.cluster.Partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pybroker.replication.delayed_produce import DelayedProduce
from pybroker.storage.log.timestamp_lookup import TimestampLookup
from pybroker.storage.results import NONE, AppendResult, TimestampOffset
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import PartitionImage
    from pybroker.replication.followers import Followers
    from pybroker.replication.purgatory import Purgatory
    from pybroker.storage.log.log import Log
    from pybroker.storage.log.partition_log import PartitionLog
    from pybroker.storage.log.timestamp_lookup import Found
    from pybroker.storage.results import TransactionMarker

AppendDone = Callable[[AppendResult], None]

# requiredAcks of a producer that wants every replica in sync to have its batch.
ACKS_ALL = -1

# How long the marker of a transaction waits for the replicas in sync.  Kafka: request.timeout.ms.
MARKER_TIMEOUT_MS = 30_000

# The timestamps of ListOffsets that are none.
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The offset of DeleteRecords that is none.
TO_HIGH_WATERMARK = -1

_REFUSALS: dict[int, str] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "This broker does not lead the partition any more",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas",
}

_NOT_AVAILABLE = TimestampOffset(-1, -1, -1, ErrorCode.OFFSET_NOT_AVAILABLE)


def epoch_error(current: int, leader_epoch: int) -> int:
    """The error for a client that takes ``leader_epoch`` (-1: any) for the ``current`` one (KIP-320); 0 if it is."""
    if leader_epoch in (-1, current):
        return 0
    return ErrorCode.FENCED_LEADER_EPOCH if leader_epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def offset_to_the_end(log: Log, leader_epoch: int, timestamp: int) -> TimestampOffset | TimestampLookup:
    """ListOffsets for who may read to the log's end, at whichever replica; offset -1 where there is none."""
    if timestamp == LATEST:
        return TimestampOffset(-1, log.log_end_offset, leader_epoch)
    found = _fixed_offset(log, leader_epoch, timestamp) or _search(log, timestamp)
    return TimestampOffset(-1, -1, -1) if found is None else found


def _fixed_offset(log: Log, leader_epoch: int, timestamp: int) -> TimestampOffset | None:
    """The answer to a special timestamp that is the same for all who ask; ``None`` for others.

    The epoch is that of the log's first offset; the next one written, if there is none yet, will be of the leader's.
    """
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        is_empty = log.log_start_offset == log.log_end_offset
        epoch = leader_epoch if is_empty else log.leader_epochs.epoch_of(log.log_start_offset)
        return TimestampOffset(-1, log.log_start_offset, epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return TimestampOffset(-1, -1, -1)
    return None


def _search(log: Log, timestamp: int) -> Found:
    return log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)


def advance_high_watermark(log: Log) -> bool:
    """Move the high watermark of the only replica, also of a log that was just opened; whether it moved."""
    # Where acknowledgements wait for a sync, nobody reads what a power failure may take back.
    end_offset = log.committed_end
    if end_offset <= log.high_watermark:
        return False
    log.update_high_watermark(end_offset)
    return True


class DelayedOperation(Protocol):
    """Something that waits for a partition, in its ``waiting``: a fetch, a produce.  Kafka: DelayedOperation."""

    def try_complete(self, partition: Partition) -> None:
        """The high watermark has moved, or the partition has changed its role: complete if that is enough."""
        ...


class PartitionOwner(Protocol):
    """The owner of all partitions: ``ReplicaManager``."""

    @property
    def purgatory(self) -> Purgatory: ...

    def mark(self, waited_for: Partition) -> None:
        """The partition has more to read: look at what waits for it once, after this turn of the loop."""
        ...

    def followers_of(self, partition: Partition, state: PartitionImage) -> Followers:
        """What its leader is to know of its followers."""
        ...

    def on_former_append(self, log: Log) -> None:
        """An append of a partition that had another role, or leader epoch, when it began has ended."""
        ...


class Partition:
    """A partition that this broker leads."""

    is_followed = False

    __slots__ = (
        "_is_alone",
        "followers",
        "gone",
        "high_watermark_listener",
        "index",
        "leader_epoch",
        "marked",
        "partition_log",
        "replica_manager",
        "topic",
        "topic_id",
        "waiting",
        "was_cut",
    )

    def __init__(
        self,
        replica_manager: PartitionOwner,
        topic: str,
        topic_id: bytes,
        index: int,
        state: PartitionImage,
        partition_log: PartitionLog,
    ) -> None:
        self.replica_manager = replica_manager
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = state.leader_epoch
        self.partition_log = partition_log
        self.followers: Followers | None = None  # there are none where this is the only replica
        self._is_alone = True  # it leads, and no other replica has a word
        self.gone = False  # deleted, or led by another broker: look it up again
        self.was_cut = False  # by its source, so that another leader epoch is to begin; see ``MirroredPartition``
        self.marked = False  # appended to in this turn, its waiting fetches are not looked at yet
        self.waiting: dict[DelayedOperation, None] = {}
        self.high_watermark_listener: Callable[[int, int], None] | None = None
        if len(state.replicas) > 1:
            self._begin_with_followers(state)

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def log(self) -> Log:
        """Its open log."""
        return self.partition_log.opened or self.partition_log.open()

    def on_state(self, state: PartitionImage) -> None:
        """The image has the partition so, under the leader epoch that it had: who is in sync may be others."""
        if len(state.replicas) == 1:
            self._end_followers()
            self._is_alone = True
        elif self.followers is None:
            self._begin_with_followers(state)
        else:
            self.followers.on_state(state)
        self.on_appended()

    def _begin_with_followers(self, state: PartitionImage) -> None:
        self._is_alone = False
        self.followers = self.replica_manager.followers_of(self, state)

    def _end_followers(self) -> None:
        followers, self.followers = self.followers, None
        if followers is not None:
            followers.retire()

    def retire(self) -> None:
        """It has another role, or epoch, from now on; who waits for it is answered."""
        self.gone, self._is_alone = True, False
        self._end_followers()

    # --- appending -------------------------------------------------------------------------------------------------

    def append(
        self, records: memoryview, required_acks: int, timeout_ms: int, produce_version: int, done: AppendDone
    ) -> AppendResult | None:
        """Append one batch of a client.  The result now, or None and ``done(result)`` later on the loop.

        With ``required_acks`` 0 or 1 the result is there when the batch is written, with ``ACKS_ALL`` when the high
        watermark has passed it, or after ``timeout_ms``.  With one replica that is at once.  Its error code may be one
        of the log's, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, or one of ``DelayedProduce``.  ``records`` is a
        writable view; its bytes must stay as they are until the result is there.
        """
        error_code = self._refusal(required_acks)
        if error_code:
            return self.refuse(records, error_code, _REFUSALS[error_code])

        def written(result: AppendResult) -> None:
            self.on_appended()
            if required_acks == ACKS_ALL and result.last_offset >= self.log.high_watermark:
                self._delay(result, timeout_ms, done)
            else:
                done(result)

        log = self.partition_log.opened or self.partition_log.open()  # see ``on_appended``
        result = log.append_as_leader(records, self.leader_epoch, produce_version, written)
        if result is not None:
            self.on_appended()
            if required_acks == ACKS_ALL and result.last_offset >= log.high_watermark:
                self._delay(result, timeout_ms, done)
                return None
        return result

    def append_run(self, batches: Sequence[memoryview], required_acks: int, produce_version: int) -> list[int]:
        """Append the batches of a client as far as they are plain (``storage.log.append_run``): their base offsets.

        What is not appended, be it refused or not plain, may be given to ``append``, which says what is the matter.
        Where there are other replicas, ``await_run`` says when they are acknowledged with ``ACKS_ALL``.
        """
        if self._refusal(required_acks):
            return []
        log = self.partition_log.opened or self.partition_log.open()  # see ``on_appended``
        base_offsets = log.append_run(batches, self.leader_epoch, produce_version)
        if base_offsets:
            self.on_appended()
        return base_offsets

    def await_run(self, base_offset: int, timeout_ms: int, done: AppendDone) -> None:
        """``done(result)`` once what ``append_run`` has just appended from ``base_offset`` on is acknowledged.

        As of one batch that ``append`` was given with ``ACKS_ALL``; now, if nothing has to be waited for.
        """
        log = self.log
        result = AppendResult(NONE, base_offset, log.log_end_offset - 1, -1, log.log_start_offset, self.leader_epoch)
        if result.last_offset >= log.high_watermark:
            self._delay(result, timeout_ms, done)
        else:
            done(result)

    def append_internal(self, records: bytes, done: AppendDone) -> AppendResult | None:
        """Append a batch that the broker itself built (coordinators); refused as one with ``ACKS_ALL`` is."""
        error_code = self._refusal(ACKS_ALL)
        if error_code:
            return self.log.failure(error_code, _REFUSALS[error_code])
        log = self.partition_log.opened or self.partition_log.open()  # see ``on_appended``
        result = log.append_internal(records, self.leader_epoch, self._then(done))
        if result is not None:
            self.on_appended()
        return result

    def append_end_transaction(self, batch: bytes, marker: TransactionMarker, done: AppendDone) -> AppendResult | None:
        """Append the control batch of a marker (see ``Log.append_end_transaction``); refused as ``append_internal``."""
        error_code = self._refusal(ACKS_ALL)
        if error_code:
            return self.log.failure(error_code, _REFUSALS[error_code])
        result = self.log.append_end_transaction(
            batch, marker.coordinator_epoch, marker.transaction_version, self.leader_epoch, self._then(done)
        )
        if result is not None:
            self.on_appended()
        return result

    def end_transaction(self, batch: bytes, marker: TransactionMarker, done: AppendDone) -> AppendResult | None:
        """Append the control batch of a marker; complete when the replicas in sync have it."""

        def written(result: AppendResult) -> None:
            if result.last_offset >= self.log.high_watermark:
                self._delay(result, MARKER_TIMEOUT_MS, done)
            else:
                done(result)

        result = self.append_end_transaction(batch, marker, written)
        if result is None or result.last_offset < self.log.high_watermark:
            return result
        self._delay(result, MARKER_TIMEOUT_MS, done)
        return None

    def refuse(self, records: memoryview, error_code: int, message: str) -> AppendResult:
        """Refuse a client's batch for a reason that passes, and with it what the client has sent behind it."""
        self.log.note_refusal(records, error_code)
        return self.log.failure(error_code, message)

    def _refusal(self, required_acks: int) -> int:
        """Why no batch may be appended now, whatever is in it; 0 if one may."""
        if self.gone:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        followers = self.followers
        if followers is not None and required_acks == ACKS_ALL and followers.is_under_min_isr(self.log):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return 0

    def _delay(self, result: AppendResult, timeout_ms: int, done: AppendDone) -> None:
        """Have the producer wait for the high watermark; the result of a failure, whose offsets are -1, never does."""
        delayed = DelayedProduce(self, self.replica_manager.purgatory, result, done)
        self.waiting[delayed] = None
        delayed.start(timeout_ms)
        if self.gone:
            delayed.try_complete(self)  # its role ended while a thread wrote the batch: nobody will look at it again

    def acknowledgement(self, last_offset: int) -> int | None:
        """The error code that a batch up to ``last_offset`` is acknowledged with, 0 for none; None: not yet."""
        if self.gone:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if last_offset >= self.log.high_watermark:
            return None
        followers = self.followers
        if followers is not None and followers.may_be_under_min_isr(self.log):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return 0

    def stop_waiting(self, operation: DelayedOperation) -> None:
        """The operation waits no longer."""
        self.waiting.pop(operation, None)

    def _then(self, done: AppendDone) -> AppendDone:
        def written(result: AppendResult) -> None:
            self.on_appended()
            done(result)

        return written

    def on_appended(self) -> None:
        """The log's end may have moved: so does the high watermark, and waiting operations are looked at after this
        turn."""
        log = self.partition_log.opened or self.partition_log.open()  # ``log``, without the call: this is a hot path
        if advance_high_watermark(log) if self._is_alone else self._advance(log):
            if self.waiting and not self.marked:
                self.replica_manager.mark(self)
            if self.high_watermark_listener is not None:
                self.high_watermark_listener(self.index, log.high_watermark)

    def on_cut(self) -> None:
        """The log was cut in this leader epoch, which is done for a mirrored partition's source alone."""
        if self.followers is not None:
            self.followers.on_cut(self.log.log_end_offset)
        self.on_appended()

    def _advance(self, log: Log) -> bool:
        if self.followers is not None:
            return self.followers.advance_high_watermark(log)
        self.replica_manager.on_former_append(log)
        return False

    # --- what clients get ------------------------------------------------------------------------------------------

    def upper_bound(self, read_committed: bool) -> int:
        """The offset that a consumer's fetch stops at."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def epoch_error(self, leader_epoch: int) -> int:
        """See ``epoch_error``."""
        return epoch_error(self.leader_epoch, leader_epoch)

    def offset_for(self, timestamp: int, read_committed: bool) -> TimestampOffset | TimestampLookup:
        """ListOffsets, also for the special timestamps; offset -1 where there is none, or the disk does not say.

        What takes longer is a lookup, to be started; what it finds is to be ``shown``.  OFFSET_NOT_AVAILABLE while a
        new leader does not know how far the last one has come (KIP-207).
        """
        log = self.log
        if timestamp == LATEST:
            if self._may_have_shown_more():
                return _NOT_AVAILABLE
            return TimestampOffset(-1, self.upper_bound(read_committed), self.leader_epoch)
        fixed = _fixed_offset(log, self.leader_epoch, timestamp)
        if fixed is not None:
            return fixed
        found = _search(log, timestamp)
        return found if isinstance(found, TimestampLookup) else self.shown(found, read_committed)

    def shown(self, found: TimestampOffset | None, read_committed: bool) -> TimestampOffset:
        """What a search by timestamp has found, if it may be read."""
        if found is None or found.offset >= self.upper_bound(read_committed):
            return _NOT_AVAILABLE if self._may_have_shown_more() else TimestampOffset(-1, -1, -1)
        return found

    def _may_have_shown_more(self) -> bool:
        return self.followers is not None and self.followers.is_behind_its_start

    def delete_records(self, offset: int) -> int:
        """DeleteRecords: begin the log at ``offset``, -1 meaning the high watermark; an error code (KIP-107)."""
        log = self.log
        if "delete" not in log.config.cleanup_policy:
            return ErrorCode.POLICY_VIOLATION
        if offset == TO_HIGH_WATERMARK:
            offset = log.high_watermark
        if offset < 0:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        error_code = log.increment_log_start_offset(offset)
        if self.followers is not None:
            self.followers.tell_more()
        return error_code

    def low_watermark(self) -> int:
        """Where the last of the live replicas begins."""
        start_offset = self.log.log_start_offset
        return start_offset if self.followers is None else min(start_offset, self.followers.low_watermark(start_offset))

    def when_deleted_everywhere(self, offset: int, timeout_ms: int, done: Callable[[int], None]) -> bool:
        """Whether all live replicas begin at ``offset`` or later; if not, ``done(error code)`` when they do."""
        if self.low_watermark() >= offset:
            return True
        from pybroker.replication.delayed_delete import DelayedDelete

        delayed = DelayedDelete(self, self.replica_manager.purgatory, offset, done)
        self.waiting[delayed] = None
        delayed.start(timeout_ms)
        return False

    def look_at_waiting(self) -> None:
        """Waiting operations are looked at after this turn."""
        if self.waiting and not self.marked:
            self.replica_manager.mark(self)

    def look_at_waited_for(self) -> None:
        """A broker is another than before: a replica that the high watermark waited for may be waited for no longer."""
        if self.waiting:
            self.on_appended()
            self.look_at_waiting()

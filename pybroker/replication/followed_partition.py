"""A partition that another broker leads, as this one has it: what is asked for it, and what becomes of the answer.

Owns: where the next fetch begins and which epoch wrote what stands before it. Owns what the leader's records, high
watermark and log start do to the log, and where the log is cut when it diverges. Does not own when that is asked, nor
of whom (``replica_fetcher``), the log's bytes, or the wire.

Invariants:
- The log is touched only while nothing is in flight in it, so after whatever this broker had begun when it was the
  leader.
- The high watermark is what a leader has said, never past the log's end, and goes back only where the log is cut below
  it.
- Records are appended with the leader's offsets and epochs.
- Nothing stays of a log whose cleaner may have taken records for the sake of later ones that are cut.

Where acknowledgements wait for syncs (``acks_wait_for_syncs``) the next fetch, which tells the leader that everything
before it is here, waits for the sync.  After a cut it does so everywhere.

Kafka counterpart: PartitionFetchState, ReplicaFetcherThread.processPartitionData, and
AbstractFetcherThread.getOffsetTruncationState and fetchOffsetAndTruncate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pybroker import cluster_limits
from pybroker.replication.partition import epoch_error
from pybroker.storage.results import KAFKA_STORAGE_ERROR, LACKS_MARKER, NONE
from pybroker_protocol.records import HEADER, HEADER_BYTES

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import PartitionImage
    from pybroker.env import Cancellable
    from pybroker.storage.log.log import Log
    from pybroker.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

# A partition of a fetcher: topic id and index.
PartitionKey = tuple[bytes, int]


class Question(NamedTuple):
    """What the leader is asked; ``last_fetched_epoch`` is that of the record before the offset, -1 for none."""

    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


class FollowedPartition:
    """One for each leader epoch that this broker follows.

    Consumers may read it up to its high watermark (KIP-392); ``mark`` has those looked at who wait for that.
    """

    is_followed = True
    followers = None
    was_cut = False

    __slots__ = (
        "_mark",
        "asked",
        "index",
        "is_ready",
        "lags",
        "leader",
        "leader_epoch",
        "marked",
        "on_caught_up",
        "partition_log",
        "pause",
        "pause_ms",
        "retired",
        "topic",
        "topic_id",
        "waiting",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        state: PartitionImage,
        partition_log: PartitionLog,
        mark: Callable[[FollowedPartition], None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_log = partition_log
        self._mark = mark
        self.waiting: dict[Any, None] = {}  # fetches of consumers
        self.marked = False
        # Of its fetcher:
        self.asked: Question | None = None  # as the session has it
        self.is_ready = False  # it may be fetched: nothing has to end before
        self.lags = True  # it lacks what its leader has committed, as far as that is known
        self.on_caught_up: Callable[[], None] | None = None  # called once, when it does not
        self.retired = False  # it has another role, leader or epoch by now
        self.pause: Cancellable | None = None
        self.pause_ms = cluster_limits.REPLICA_FETCH_PAUSE_MIN_MS

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def key(self) -> PartitionKey:
        return self.topic_id, self.index

    @property
    def log(self) -> Log:
        """Its open log."""
        return self.partition_log.opened or self.partition_log.open()

    def retire(self) -> None:
        """It is not followed any more, or not so: what ends later for its sake does nothing."""
        self.retired = True
        self.is_ready = False
        if self.pause is not None:
            self.pause.cancel()
        self._look_at_waiting()

    # --- what consumers get ----------------------------------------------------------------------------------------

    @property
    def gone(self) -> bool:
        """Whether it has to be looked up again."""
        return self.retired

    def upper_bound(self, read_committed: bool) -> int:
        """The offset that a consumer's fetch stops at."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def epoch_error(self, leader_epoch: int) -> int:
        """See ``epoch_error``."""
        return epoch_error(self.leader_epoch, leader_epoch)

    def _look_at_waiting(self) -> None:
        if self.waiting and not self.marked:
            self._mark(self)

    # --- what the leader is asked ----------------------------------------------------------------------------------

    def question(self) -> Question:
        """What is to be asked now."""
        log = self.log
        return Question(log.log_end_offset, self.leader_epoch, log.leader_epochs.latest_epoch, log.log_start_offset)

    @property
    def has_to_sync(self) -> bool:
        """Whether the leader must not hear yet of what is written here, or nothing be written behind a cut.

        What a power failure brings back of what was cut off would pass for committed: the high watermark is that of
        what has been written in its place.
        """
        log = self.log
        return log.flushes.cut_unsynced or (log.acks_wait_for_syncs and log.recovery_point < log.log_end_offset)

    # --- what the leader says --------------------------------------------------------------------------------------

    def append(self, records: bytes | bytearray | memoryview, high_watermark: int, log_start_offset: int) -> int:
        """Append what was fetched, and follow the leader's offsets; one of Kafka's error codes."""
        log, error_code = self.log, NONE
        view = memoryview(records)
        if len(view) >= HEADER_BYTES:
            self._begin_inside_of_batch(view)
            error_code = log.append_as_follower(view).error_code
            if error_code == LACKS_MARKER:
                error_code = NONE
                self._begin_anew(log_start_offset, "it lacks the end of a transaction, which the leader's cleaner took")
        elif log.refuses:
            error_code = KAFKA_STORAGE_ERROR
        if not log.refuses:
            self.lags = high_watermark > log.log_end_offset
            committed = min(high_watermark, log.log_end_offset)
            if committed > log.high_watermark:
                log.update_high_watermark(committed)
                self._look_at_waiting()
            if log_start_offset > log.log_start_offset:
                log.increment_log_start_offset(log_start_offset)
            if not self.lags and (caught_up := self.on_caught_up) is not None:
                self.on_caught_up = None
                caught_up()
        return error_code

    def _begin_inside_of_batch(self, records: memoryview) -> None:
        """An empty log that begins at an offset inside of the leader's first batch begins with that batch."""
        log, (base_offset, *_) = self.log, HEADER.unpack_from(records)
        if log.log_start_offset == log.log_end_offset > base_offset:
            log.truncate_fully_and_start_at(base_offset)

    def truncate_to_divergence(self, epoch: int, end_offset: int) -> bool:
        """The leader's log has ``epoch`` up to ``end_offset`` where this one goes on: cut it; whether it was cut.

        One that has nothing of that epoch is cut to what comes before it, and the leader is asked again (KIP-101).
        """
        log = self.log
        log_end_offset = log.log_end_offset
        own_epoch, own_end_offset = log.leader_epochs.end_offset_for(epoch, log_end_offset)
        if own_epoch < 0:
            offset = end_offset
        elif own_epoch != epoch:
            offset = own_end_offset
        else:
            offset = min(own_end_offset, end_offset)
        return self._truncate(min(offset, log_end_offset))

    def _truncate(self, offset: int) -> bool:
        log = self.log
        if offset >= log.log_end_offset:
            return False
        level = logging.WARNING if offset < log.high_watermark else logging.INFO
        logger.log(
            level,
            "%s is cut from offset %d to %d in leader epoch %d; its high watermark was %d",
            self,
            log.log_end_offset,
            offset,
            self.leader_epoch,
            log.high_watermark,
        )
        if log.config.compact and offset < min(log.high_watermark, log.active.base_offset):
            self._begin_anew(log.log_start_offset, "what is cut may have had its cleaner take what comes before it")
            return True
        log.truncate_to(offset)
        return log.log_end_offset == offset

    def truncate_to_end_of_leader(self, leader_end_offset: int) -> bool:
        """The leader's log does not know our offsets: cut what goes past its end; whether there was any."""
        return self._truncate(leader_end_offset)

    def begin_at_start_of_leader(self, leader_start_offset: int) -> bool:
        """If the leader's log begins past our end: begin anew there; whether it does."""
        is_past = leader_start_offset > self.log.log_end_offset
        if is_past:
            self._begin_anew(leader_start_offset, "its leader's log begins there")
        return is_past

    def _begin_anew(self, offset: int, why: str) -> None:
        logger.warning("%s begins anew at offset %d: %s", self, offset, why)
        self.log.truncate_fully_and_start_at(offset)

"""One partition's open log: segments in Kafka's file format, with offsets, leader epochs and producers.

Owns nothing but the names under which the layers above find what can be done with a log.  What is done by a module
beside this one, on the log's state (``log_state``), is described there.  Does not own replication's decisions: the
Partition above moves the high watermark, says when to truncate, and is the leader or a follower.  Does not own whether
it is open: ``partition_log``.

Invariant: errors of a client or of the disk are results, never exceptions.

Kafka: UnifiedLog.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pybroker.storage.log import leader_append, log_reader, retention, truncation
from pybroker.storage.log.append_run import append_run
from pybroker.storage.log.follower_append import append_as_follower
from pybroker.storage.log.log_rolling import roll
from pybroker.storage.log.log_state import LogState
from pybroker.storage.log.placing import note_refusal
from pybroker.storage.log.producer_snapshot import delete_snapshots, write_snapshot
from pybroker.storage.results import KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE

if TYPE_CHECKING:
    from pybroker.storage.log.timestamp_lookup import Found


class Log(LogState):
    """What can be done with an open log.  Everything runs on the broker's loop.

    An operation that is a function of another module takes the log as its first parameter.
    """

    __slots__ = ()

    # A leader's batches: one of a client's, several plain ones with one write, one of the broker's own, a marker.
    append_as_leader = leader_append.append_as_leader
    append_run = append_run
    append_internal = leader_append.append_internal
    append_end_transaction = leader_append.append_end_transaction
    note_refusal = note_refusal

    # A follower's.
    append_as_follower = append_as_follower

    # Reads.
    read = log_reader.read
    bytes_between = log_reader.bytes_between
    aborted_transactions = log_reader.aborted_transactions
    aborted_transactions_of = log_reader.aborted_transactions_of

    def offset_for_timestamp(self, timestamp: int) -> Found:
        """ListOffsets: the first record whose timestamp is at least ``timestamp``, ``None`` if there is none."""
        from pybroker.storage.log.timestamp_search import offset_for_timestamp

        return offset_for_timestamp(self, timestamp)

    def offset_of_max_timestamp(self) -> Found:
        """ListOffsets: the first record that has the log's largest timestamp, ``None`` in an empty log (KIP-734)."""
        from pybroker.storage.log.timestamp_search import offset_of_max_timestamp

        return offset_of_max_timestamp(self)

    def end_offset_for_epoch(self, requested_epoch: int, current_leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the requested epoch or the largest known one below it; (-1, -1) if unknown (KIP-101).

        The leader's current epoch ends at the log's end, also while nothing has been appended in it.
        """
        if requested_epoch == current_leader_epoch >= 0:
            return requested_epoch, self.log_end_offset
        latest_epoch = self.leader_epochs.latest_epoch
        if latest_epoch < requested_epoch < current_leader_epoch:
            # Of an empty log that never had an epoch, nothing of the requested one is left.
            return requested_epoch if latest_epoch < 0 else latest_epoch, self.log_end_offset
        return self.leader_epochs.end_offset_for(requested_epoch, self.log_end_offset)

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, for DescribeLogDirs and ``retention.bytes``."""
        return self.segments.total_bytes()

    # Cutting ----------------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, done: Callable[[], None] | None = None) -> None:
        """Drop everything at and past ``offset``, which is where a batch begins; ``done`` runs after (now, if it can).

        A follower does so where its leader says that they diverge.  Nothing happens if the log ends before ``offset``.
        """
        self._when_idle(lambda: truncation.truncate_log(self, offset), "truncation", done)

    def truncate_fully_and_start_at(self, offset: int, done: Callable[[], None] | None = None) -> None:
        """Drop everything; the log is empty and its next offset is ``offset``."""
        self._when_idle(lambda: truncation.truncate_fully(self, offset), "truncation", done)

    def _when_idle(self, action: Callable[[], None], what: str, done: Callable[[], None] | None) -> None:
        def act() -> None:
            self.guarded(action, what)
            if done is not None:
                done()

        self.queue.when_idle(act)

    def increment_log_start_offset(self, offset: int) -> int:
        """DeleteRecords, and what a leader says: forget what lies below ``offset``.  Returns an error code.

        More than the high watermark is refused.  A follower asks with each answer, and passes over that: what the
        leader no longer has it may have to keep until it knows that it is committed.

        The segments that lie wholly below go at the next retention check, as in Kafka.
        """
        if offset > self.high_watermark:
            return OFFSET_OUT_OF_RANGE
        if self.refusal:
            return KAFKA_STORAGE_ERROR
        if offset > self.log_start_offset:
            self.advance_start(offset)
        return NONE

    def apply_retention(self) -> int:
        """Drop the segments that ``retention.ms``, ``retention.bytes`` or the log start offset let go; how many."""
        cleaner = self.environment.cleaner
        if not self.is_idle or self.refusal or not self.on_disk or (cleaner and cleaner.is_cleaning(self.path)):
            return 0
        return self.guarded(lambda: retention.apply_retention(self), "retention") or 0

    def roll(self) -> None:
        """Begin a new segment at the log's end, if the active one holds anything; raises OSError."""
        roll(self, self.next_offset)

    def close_cleanly(self, sync: bool) -> None:
        """Write everything, and a snapshot of the producers, so that the next start need not look.  Raises OSError.

        Without ``sync`` the caller syncs the whole file system, before it says anywhere that this log is whole.
        """
        self.active.seal()
        self.flushes.flush_now(sync)
        write_snapshot(self.path, self.log_end_offset, self.producers.producers, sync=False)
        delete_snapshots(self.path, below=self.segments[0].base_offset)

"""Appending a leader's batches on a follower: offsets and epochs are the leader's, and every CRC is checked.

Batches that follow one another are written at once, as far as nothing has to be done in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage.files.offset_index import offset_max_of
from pybroker.storage.log.log_rolling import maybe_roll
from pybroker.storage.results import CORRUPT_MESSAGE, LACKS_MARKER, NONE, AppendResult
from pybroker_protocol.checksum import crc32c
from pybroker_protocol.records import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL_FLAG,
    CRC,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    OFFSET_MAX,
    PARTITION_LEADER_EPOCH,
    PRODUCER_ID,
    RECORDS_COUNT,
    HeaderFields,
)

if TYPE_CHECKING:
    from pybroker.storage.files.segment import Placed
    from pybroker.storage.log.log_state import LogState


def append_as_follower(log: LogState, records: memoryview) -> AppendResult:
    """Append the leader's batches as they are, with their offsets and epochs.

    Nothing is appended from the first batch on that is corrupt or does not lie past the log's end, or that shows that
    this log lacks a marker (``LACKS_MARKER``). The result's ``last_offset`` says how far it went (-1: nowhere).
    """
    if log.refusal:
        return log.storage_error()
    assert not log.queue.busy, "a follower's writes are made on the loop"
    run, position, first, last, epoch = _Run(log), 0, -1, -1, -1
    next_offset, refused = log.next_offset, None
    while position + HEADER_BYTES <= len(records):
        header = HEADER.unpack_from(records, position)
        base_offset, length, leader_epoch = header[BASE_OFFSET], header[BATCH_LENGTH], header[PARTITION_LEADER_EPOCH]
        size = length + LOG_OVERHEAD
        batch = records[position : position + size]
        if len(batch) != size or size < HEADER_BYTES:
            break  # A leader may cut the last batch; the next fetch brings it whole.
        if (
            base_offset < next_offset
            or base_offset + header[LAST_OFFSET_DELTA] > OFFSET_MAX
            or crc32c(batch[ATTRIBUTES_AT:]) != header[CRC]
            or header[MAGIC] != 2
        ):
            refused = AppendResult(CORRUPT_MESSAGE, -1, -1, -1, log.log_start_offset, epoch)
            break
        if header[RECORDS_COUNT] == 0 and header[ATTRIBUTES] & CONTROL_FLAG:
            refused = run.write(records[position - run.size : position]) or _lacked_marker(log, header)
            if refused is not None:
                break
        if not run.takes(batch, header):
            refused = run.write(records[position - run.size : position]) or _make_place(log, header, size)
            if refused is not None:
                break
        run.add(batch, header)
        first, last, epoch = (
            (first if first >= 0 else base_offset),
            base_offset + header[LAST_OFFSET_DELTA],
            leader_epoch,
        )
        next_offset = last + 1
        position += size
    failed = run.write(records[position - run.size : position])
    if failed is None and refused is None:
        return AppendResult(NONE, first, last, -1, log.log_start_offset, epoch)
    refused = failed or refused
    assert refused is not None
    written = log.log_end_offset > first >= 0
    refused.base_offset, refused.last_offset = (first, log.log_end_offset - 1) if written else (-1, -1)
    return refused


def _lacked_marker(log: LogState, emptied: HeaderFields) -> AppendResult | None:
    """The refusal of a marker that the leader's cleaner has emptied, where a transaction of its producer is open here.

    All of the producer's transactions before it have ended, and the leader has nothing of them any more.  This replica
    was away for longer than ``delete.retention.ms``: it has records of one whose own marker it never got.
    """
    entry = log.producers.producers.get(emptied[PRODUCER_ID])
    if entry is None or entry.current_txn_first_offset < 0:
        return None
    return AppendResult(LACKS_MARKER, -1, -1, -1, log.log_start_offset, -1)


class _Run:
    """Batches that are written at once: they follow one another in one segment and one leader epoch."""

    __slots__ = ("_batches", "_end_offset", "_log", "_placed", "size")

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._begin()

    def _begin(self) -> None:
        self._placed: list[Placed] = []
        self._batches: list[tuple[memoryview, HeaderFields]] = []  # those of producers that are remembered
        self._end_offset = self._log.log_end_offset
        self.size = 0

    def takes(self, batch: memoryview, header: HeaderFields) -> bool:
        """Whether a batch may be written behind those that are there, or as the first where nothing is in its way."""
        log, segment = self._log, self._log.active
        position = segment.size + self.size
        if (
            header[BASE_OFFSET] != self._end_offset
            or header[PARTITION_LEADER_EPOCH] > log.leader_epochs.latest_epoch
            or segment.must_roll(
                len(batch), header[BASE_OFFSET] + header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP], position
            )
        ):
            return False
        # A segment's first batch says how long it is used, and its indexes may be full with this one.
        return not self._placed or (segment.size > 0 and segment.has_index_capacity(len(self._placed) + 1))

    def add(self, batch: memoryview, header: HeaderFields) -> None:
        """The batch is written with the others; ``takes`` has agreed, or there are none."""
        base_offset, size = header[BASE_OFFSET], len(batch)
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        self._placed.append((self._log.active.size + self.size, size, base_offset, last_offset, header[MAX_TIMESTAMP]))
        if header[PRODUCER_ID] >= 0:
            self._batches.append((batch, header))
        self._end_offset = last_offset + 1
        self.size += size

    def write(self, records: memoryview) -> AppendResult | None:
        """Write what was added, which ``records`` has, and begin anew; why it could not be."""
        log = self._log
        if self._placed:
            try:
                log.active.append(records, self._placed)
            except OSError as error:
                log.write_failed(error, self.size)
                self._begin()
                return log.storage_error()
            log.appended(self._end_offset)
            for batch, header in self._batches:
                log.note_producer(header, header[BASE_OFFSET], batch)
            log.write_back_if_due()
        self._begin()
        return None


def _make_place(log: LogState, header: HeaderFields, size: int) -> AppendResult | None:
    """Have what a batch needs that cannot be written behind the last one; why that is impossible."""
    base_offset, last_offset = header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
    if log.active.must_roll(size, last_offset, header[MAX_TIMESTAMP]):
        # Kafka names a segment after its first offset, which in a compacted log may lie past the log's end.  A recovery
        # would take what is missing there for lost.
        had_files, end_offset = log.on_disk, log.log_end_offset
        refused = maybe_roll(log, 0, end_offset if last_offset <= offset_max_of(end_offset) else base_offset)
        if refused is None and not had_files and last_offset > log.active.offset_end:
            refused = maybe_roll(log, 0, base_offset)  # the first segment begins at the log's start
        if refused is not None:
            return refused
    if base_offset != log.log_end_offset:
        log.active.forget_tail()
    if header[PARTITION_LEADER_EPOCH] > log.leader_epochs.latest_epoch:
        # The leader may have cleaned away the epoch's first batches.  It may have begun here, then, and no earlier, and
        # whoever has a former epoch's records in their place has to cut them: Kafka begins it at the batch, and would
        # keep them.
        log.assign_epoch(header[PARTITION_LEADER_EPOCH], log.log_end_offset)
    return None

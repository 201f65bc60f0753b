"""Appending a leader's batches: one that a producer sent, or one that the broker built.

Owns the order in which a batch meets the rules (what it has to be, its producer's sequence). Also owns what becomes of
one that cannot be placed now, and who writes it. Small ones are written here and now, large ones and those behind them
by a writer thread. Does not own the rules (``rules/``), places and the write (``placing``), the writes in flight
(``append_queue``) or several batches of which each is plain (``append_run``).

Invariants: batches take their offsets in the order in which they came, whatever one of them has to wait for; what is
refused has changed nothing.

Kafka: UnifiedLog.appendAsLeader.
"""

from __future__ import annotations

from pybroker.storage.log.append_queue import OnComplete, PendingAppend
from pybroker.storage.log.log_rolling import maybe_roll
from pybroker.storage.log.log_state import LogState
from pybroker.storage.log.placing import check_sequence, note_refusal, place, write_failed
from pybroker.storage.results import KAFKA_STORAGE_ERROR, NONE, RECORD_LIST_TOO_LARGE, AppendResult
from pybroker.storage.rules.maximum_timestamp import true_header
from pybroker.storage.rules.producer_state import BatchFields, BatchMetadata, FormerState, SequenceError
from pybroker.storage.rules.validator import TIMESTAMP_TOO_LATE, Rejection, stamp_log_append_time, validate
from pybroker.storage_limits import INLINE_WRITE_BYTES_MAX
from pybroker_protocol.records import (
    ATTRIBUTES,
    CONTROL_FLAG,
    HEADER,
    LAST_OFFSET_DELTA,
    OFFSET_MAX,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORDS_COUNT,
    BatchHeader,
    HeaderFields,
)


class LeaderAppend:
    """One batch on its way into the log that something keeps from it: what goes together until it is there."""

    __slots__ = ("header", "leader_epoch", "log_append_time_ms", "on_complete", "records")

    def __init__(
        self,
        records: memoryview,
        header: HeaderFields,
        leader_epoch: int,
        log_append_time_ms: int,
        on_complete: OnComplete,
    ) -> None:
        self.records = records
        self.header = header
        self.leader_epoch = leader_epoch
        self.log_append_time_ms = log_append_time_ms
        self.on_complete = on_complete

    def keep_bytes(self) -> None:
        """Who gave a large batch keeps its bytes until it is completed; a small one's are copied."""
        if len(self.records) <= INLINE_WRITE_BYTES_MAX:
            self.records = memoryview(bytearray(self.records))

    def append_to(self, log: LogState, in_turn: bool) -> AppendResult | None:
        """Append it now; ``in_turn`` if what came before it is appended."""
        return _append(
            log, self.records, self.header, self.leader_epoch, self.log_append_time_ms, self.on_complete, in_turn
        )


def append_as_leader(
    log: LogState, records: memoryview, leader_epoch: int, produce_version: int, on_complete: OnComplete
) -> AppendResult | None:
    """Append one batch of a producer; its bytes must be writable and are patched in place.

    Returns the result now, or ``None``. Then ``on_complete(AppendResult)`` runs on the loop later, and a buffer of more
    than ``INLINE_WRITE_BYTES_MAX`` must stay as it is until then (a smaller one is copied if need be).
    """
    if log.refusal:
        return log.storage_error()
    now_ms = log.environment.now_ms()
    rules = log.rules
    header = validate(records, rules, now_ms, produce_version)
    if isinstance(header, Rejection):
        if header is not TIMESTAMP_TOO_LATE:
            return log.rejected(header)
        append = LeaderAppend(records, HEADER.unpack_from(records), leader_epoch, -1, on_complete)
        return _append_after_decoding(log, append)
    if rules.needs_records:
        return _append_after_decoding(log, LeaderAppend(records, header, leader_epoch, -1, on_complete))
    if rules.log_append_time:
        header = stamp_log_append_time(records, header, now_ms)
        return _append(log, records, header, leader_epoch, now_ms, on_complete)
    its_header = true_header(records, header, rules, now_ms)
    if its_header is None:
        return _append_after_decoding(log, LeaderAppend(records, header, leader_epoch, -1, on_complete))
    return _append(log, records, its_header, leader_epoch, -1, on_complete)


def _append_after_decoding(log: LogState, append: LeaderAppend) -> AppendResult | None:
    """Append a batch whose records have to be looked at, or rewritten; a large one is decoded in the thread."""
    from pybroker.storage.rules.record_validator import prepare_at_once, prepare_records

    rules, now_ms = log.rules, log.environment.now_ms()

    def go_on(prepared: tuple[memoryview, HeaderFields] | Rejection, in_turn: bool) -> AppendResult | None:
        if log.refusal:
            return log.storage_error()
        if isinstance(prepared, Rejection):
            return log.rejected(prepared)
        append.records, append.header = prepared
        if rules.log_append_time:
            append.header = stamp_log_append_time(append.records, append.header, now_ms)
            append.log_append_time_ms = now_ms
        return append.append_to(log, in_turn)

    prepared_at_once = prepare_at_once(append.records, append.header, rules, now_ms)
    if prepared_at_once is not None:
        return go_on(prepared_at_once, in_turn=False)
    append.keep_bytes()
    log.queue.run_in_thread(
        prepare_records(append.records, append.header, rules, now_ms),
        lambda prepared: go_on(prepared, in_turn=True),
        append.on_complete,
    )
    return None


def append_internal(
    log: LogState, records: bytes | bytearray | memoryview, leader_epoch: int, on_complete: OnComplete
) -> AppendResult | None:
    """Append one batch that the broker itself built, control batches too; otherwise as ``append_as_leader``."""
    if log.refusal:
        return log.storage_error()
    if isinstance(records, bytes):
        records = bytearray(records)
    view = memoryview(records)
    return _append(log, view, HEADER.unpack_from(view), leader_epoch, -1, on_complete)


def append_end_transaction(
    log: LogState,
    marker: bytes,
    coordinator_epoch: int,
    transaction_version: int,
    leader_epoch: int,
    on_complete: OnComplete,
) -> AppendResult | None:
    """Append the control batch that ends a producer's transaction; otherwise as ``append_as_leader``.

    INVALID_PRODUCER_EPOCH for a marker that comes late, TRANSACTION_COORDINATOR_FENCED for one of a former
    coordinator.  It is decided, and written, when nothing is in flight: failed writes could not be distinguished from
    the open transaction that they belong to.
    """
    view = memoryview(bytearray(marker))
    header = HEADER.unpack_from(view)

    def append() -> AppendResult | None:
        if log.refusal:
            return log.storage_error()
        refused = log.producers.check_marker(
            header[PRODUCER_ID], header[PRODUCER_EPOCH], coordinator_epoch, transaction_version
        )
        if refused is not None:
            return log.failure(refused.error_code, refused.message)
        return _append(log, view, header, leader_epoch, -1, on_complete, in_turn=True)

    def append_later() -> None:
        result = append()
        if result is not None:
            on_complete(result)

    if not log.queue.busy:
        return append()
    log.queue.when_idle(append_later)
    return None


def _append(
    log: LogState,
    records: memoryview,
    header: HeaderFields,
    leader_epoch: int,
    log_append_time_ms: int,
    on_complete: OnComplete,
    in_turn: bool = False,
) -> AppendResult | None:
    """Append behind everything that came before, which its sequence number goes by as well as its offset."""
    queue = log.queue
    if queue.others_wait and not in_turn:
        _append_when_idle(log, LeaderAppend(records, header, leader_epoch, log_append_time_ms, on_complete))
        return None
    formers: list[FormerState] = []
    if not queue.busy:
        placed = place(log, records, header, leader_epoch, log.active.size, log.next_offset, formers)
    elif queue.broken or header[ATTRIBUTES] & CONTROL_FLAG:
        placed = None
    else:
        placed = place(log, records, header, leader_epoch, queue.end_position, log.next_offset, formers)
    if placed is None:
        return _without_place(log, LeaderAppend(records, header, leader_epoch, log_append_time_ms, on_complete))
    _, size, base_offset, last_offset, _ = placed
    if leader_epoch > log.leader_epochs.latest_epoch:
        log.assign_epoch(leader_epoch, base_offset)
    result = AppendResult(NONE, base_offset, last_offset, log_append_time_ms, log.log_start_offset, leader_epoch)
    segment = log.active
    try:
        if size > INLINE_WRITE_BYTES_MAX or queue.busy:
            queue.append_in_thread(PendingAppend(records, placed, formers, result, on_complete))
            return None
        segment.append(records, (placed,))
    except OSError as error:
        write_failed(log, formers, error, size)
        return log.storage_error()
    log.appended(last_offset + 1)
    log.directory.writers.note_small_append()
    if header[ATTRIBUTES] & CONTROL_FLAG:
        log.note_producer(header, base_offset, records)
    if last_offset >= log.sync_at_offset or segment.size >= segment.write_back_at:
        return log.acknowledge(result, on_complete)
    return result


def _without_place(log: LogState, append: LeaderAppend) -> AppendResult | None:
    """Do what has to be done first, and append then; or answer a batch that its producer may not append now."""
    outcome = check_sequence(log, append.header)
    if log.queue.busy and not isinstance(outcome, SequenceError):
        # The original of a repeated batch may be in flight still, and may fail: decide when that is known.
        _append_when_idle(log, append)
        return None
    if outcome is not None:
        return _answer_check(log, append, outcome)
    if log.next_offset + append.header[LAST_OFFSET_DELTA] > OFFSET_MAX:
        return _without_offsets(log, append)
    refused = maybe_roll(log, len(append.records), log.next_offset)
    if refused is None:
        return append.append_to(log, in_turn=True)
    if refused.error_code == KAFKA_STORAGE_ERROR:
        note_refusal(log, append.records, refused.error_code)
    return refused


def _without_offsets(log: LogState, append: LeaderAppend) -> AppendResult:
    """There are no more offsets for a batch, and there never will be: Kafka fails on it with UNKNOWN_SERVER_ERROR."""
    left, count = OFFSET_MAX + 1 - log.next_offset, append.header[RECORDS_COUNT]
    return log.failure(
        RECORD_LIST_TOO_LARGE,
        f"The record batch of {count} records would pass the last offset that there is: the log has {left} left",
    )


def _append_when_idle(log: LogState, append: LeaderAppend) -> None:
    """Queue an append that cannot join the writes in flight (it rolls the segment, or others wait already)."""
    append.keep_bytes()

    def append_now() -> None:
        result = log.storage_error() if log.refusal else append.append_to(log, in_turn=True)
        if result is not None:
            append.on_complete(result)

    log.queue.when_idle(append_now)


def _answer_check(log: LogState, append: LeaderAppend, outcome: BatchFields | SequenceError) -> AppendResult | None:
    """Refuse a batch out of sequence; answer a repeated one with the original's offsets."""
    if isinstance(outcome, SequenceError):
        batch, now_ms = BatchHeader._make(append.header), log.environment.now_ms()
        refused = log.producers.answer_behind(
            outcome, batch.producer_id, batch.producer_epoch, batch.base_sequence, now_ms
        )
        return log.failure(refused.error_code, refused.message)
    original = BatchMetadata._make(outcome)
    timestamp = original.max_timestamp if log.rules.log_append_time else -1
    result = AppendResult(
        NONE, original.base_offset, original.last_offset, timestamp, log.log_start_offset, append.leader_epoch
    )
    if result.last_offset >= max(log.sync_at_offset, log.recovery_point):
        # The original's sync has not ended yet, or a process that died had only written it.
        log.flushes.acknowledge(result.last_offset + 1, result, append.on_complete)
        return None
    return result

"""Appending a leader's batches: one that a producer sent, or one that the broker built.

Owns the order in which a batch meets the rules (what it has to be, its producer's sequence, its place), and how it is
written: small ones here and now, large ones and those behind them by a writer thread.  Does not own the rules
(``rules/``), the writes in flight (``append_queue``) or the plain case of several small batches (``append_run``), which
asks the same rules.

Invariants: batches take their offsets in the order in which they came, whatever one of them has to wait for; what is
refused has changed nothing.

Kafka: UnifiedLog.appendAsLeader.
"""

from __future__ import annotations

from struct import Struct

from pybroker.limits import INLINE_WRITE_BYTES_MAX
from pybroker.storage.log.append_queue import OnComplete
from pybroker.storage.log.log_rolling import make_room
from pybroker.storage.log.log_state import LogState
from pybroker.storage.results import NONE, AppendResult
from pybroker.storage.rules.producer_state import BatchMetadata, SequenceError
from pybroker.storage.rules.validator import TIMESTAMP_TOO_LATE, Rejection, stamp_log_append_time, validate
from pybroker_protocol.records import CONTROL_FLAG, HEADER, LOG_OVERHEAD, TRANSACTIONAL_FLAG, HeaderFields

# Base offset, length (as it was), leader epoch: they lie outside the CRC.
patch_into = Struct(">qii").pack_into


def append_as_leader(
    log: LogState, records: memoryview, leader_epoch: int, produce_version: int, on_complete: OnComplete
) -> AppendResult | None:
    """Append one batch of a producer; its bytes must be writable and are patched in place.

    Returns the result now, or ``None``: then ``on_complete(AppendResult)`` runs on the loop later, and a buffer of
    more than ``INLINE_WRITE_BYTES_MAX`` must stay as it is until then (a smaller one is copied if need be).
    """
    if log.refusal:
        return log.storage_error()
    now_ms = log.environment.now_ms()
    rules = log.rules
    header = validate(records, rules, now_ms, produce_version)
    if isinstance(header, Rejection):
        if header is TIMESTAMP_TOO_LATE:
            return _append_after_decoding(log, records, HEADER.unpack_from(records), leader_epoch, on_complete)
        return log.rejected(header)
    log_append_time_ms = -1
    if rules.needs_records:
        return _append_after_decoding(log, records, header, leader_epoch, on_complete)
    if rules.log_append_time:
        log_append_time_ms = now_ms
        header = stamp_log_append_time(records, header, now_ms)
    return _append(log, records, header, leader_epoch, log_append_time_ms, on_complete)


def _append_after_decoding(
    log: LogState, records: memoryview, header: HeaderFields, leader_epoch: int, on_complete: OnComplete
) -> AppendResult | None:
    """Append a batch whose records have to be looked at, or rewritten; a large one is decoded in the thread."""
    from pybroker.storage.rules.record_validator import prepare_at_once, prepare_records

    rules, now_ms = log.rules, log.environment.now_ms()
    log_append_time_ms = now_ms if rules.log_append_time else -1

    def append(prepared: tuple[memoryview, HeaderFields] | Rejection, in_turn: bool) -> AppendResult | None:
        if log.refusal:
            return log.storage_error()
        if isinstance(prepared, Rejection):
            return log.rejected(prepared)
        batch, fields = prepared
        if rules.log_append_time:
            fields = stamp_log_append_time(batch, fields, now_ms)
        place = _append_in_turn if in_turn else _append
        return place(log, batch, fields, leader_epoch, log_append_time_ms, on_complete)

    prepared_at_once = prepare_at_once(records, header, rules, now_ms)
    if prepared_at_once is not None:
        return append(prepared_at_once, in_turn=False)
    kept = records if len(records) > INLINE_WRITE_BYTES_MAX else memoryview(bytearray(records))
    log.queue.run_in_thread(
        prepare_records(kept, header, rules, now_ms),
        lambda prepared: append(prepared, in_turn=True),
        on_complete,
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
    coordinator.  It is decided, and written, when nothing is in flight: failed writes could not be told apart from
    the open transaction that they belong to.
    """
    view = memoryview(bytearray(marker))
    header = HEADER.unpack_from(view)

    def append() -> AppendResult | None:
        if log.refusal:
            return log.storage_error()
        refused = log.producers.check_marker(header[9], header[10], coordinator_epoch, transaction_version)
        if refused is not None:
            return log.failure(refused.error_code, refused.message)
        return _append_in_turn(log, view, header, leader_epoch, -1, on_complete)

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
) -> AppendResult | None:
    """Append behind everything that came before, which its sequence number goes by as well as its offset."""
    if log.queue.others_wait:
        _append_when_idle(log, records, header, leader_epoch, log_append_time_ms, on_complete)
        return None
    return _append_in_turn(log, records, header, leader_epoch, log_append_time_ms, on_complete)


def _append_in_turn(
    log: LogState,
    records: memoryview,
    header: HeaderFields,
    leader_epoch: int,
    log_append_time_ms: int,
    on_complete: OnComplete,
) -> AppendResult | None:
    _, length, _, _, _, attributes, last_offset_delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
    size = length + LOG_OVERHEAD
    if producer_id >= 0 and sequence >= 0:
        transactional = attributes & TRANSACTIONAL_FLAG
        verdict = log.producers.check(producer_id, epoch, sequence, last_offset_delta, transactional)
        if verdict is not None:
            return _answer_verdict(log, verdict, records, header, leader_epoch, log_append_time_ms, on_complete)
    elif producer_id >= 0 and not attributes & CONTROL_FLAG:
        unwanted = log.producers.check_unsequenced(producer_id, epoch, attributes & TRANSACTIONAL_FLAG)
        if unwanted is not None:
            return log.failure(unwanted.error_code, unwanted.message)
    queue = log.queue
    segment = log.active
    base_offset = log.next_offset
    last_offset = base_offset + last_offset_delta
    if queue.busy:
        if queue.must_wait(segment, size, last_offset, max_timestamp):
            _append_when_idle(log, records, header, leader_epoch, log_append_time_ms, on_complete)
            return None
    elif segment.must_roll(size, last_offset, max_timestamp):
        refused = make_room(log, size, base_offset)
        if refused is not None:
            _not_begun(log, producer_id, epoch, sequence)
            return refused
        segment = log.active
    if leader_epoch > log.leader_epochs.latest_epoch:
        log.assign_epoch(leader_epoch, base_offset)
    patch_into(records, 0, base_offset, length, leader_epoch)
    result = AppendResult(NONE, base_offset, last_offset, log_append_time_ms, log.log_start_offset, leader_epoch)
    try:
        if size > INLINE_WRITE_BYTES_MAX or queue.busy:
            queue.append_in_thread(records, header, size, result, on_complete)
            return None
        segment.append(records, size, base_offset, last_offset, max_timestamp)
        log.directory.writers.note_small_append()
    except OSError as error:
        log.write_failed(error)
        _not_begun(log, producer_id, epoch, sequence)
        return log.storage_error()
    log.appended(last_offset + 1)
    if producer_id >= 0:
        log.note_producer(header, base_offset, records)
    if last_offset >= log.sync_at_offset or segment.size >= segment.write_back_at:
        return log.acknowledge(result, on_complete)
    return result


def _not_begun(log: LogState, producer_id: int, epoch: int, sequence: int) -> None:
    if producer_id >= 0 and sequence >= 0:
        log.producers.not_begun(producer_id, epoch, sequence)


def _append_when_idle(
    log: LogState,
    records: memoryview,
    header: HeaderFields,
    leader_epoch: int,
    log_append_time_ms: int,
    on_complete: OnComplete,
) -> None:
    """Queue an append that cannot join the writes in flight (it rolls the segment, or others wait already)."""
    kept = records if len(records) > INLINE_WRITE_BYTES_MAX else memoryview(bytearray(records))

    def append() -> None:
        result = log.storage_error()
        if not log.refusal:
            appended = _append_in_turn(log, kept, header, leader_epoch, log_append_time_ms, on_complete)
            if appended is None:
                return
            result = appended
        on_complete(result)

    log.queue.when_idle(append)


def _answer_verdict(
    log: LogState,
    verdict: BatchMetadata | SequenceError,
    records: memoryview,
    header: HeaderFields,
    leader_epoch: int,
    log_append_time_ms: int,
    on_complete: OnComplete,
) -> AppendResult | None:
    """Refuse a batch out of sequence; answer a repeated one with the original's offsets."""
    if isinstance(verdict, SequenceError):
        return log.failure(verdict.error_code, verdict.message)
    if log.queue.busy:
        # The original may be in flight still, and may fail: decide when that is known.
        _append_when_idle(log, records, header, leader_epoch, log_append_time_ms, on_complete)
        return None
    timestamp = verdict[4] if log.rules.log_append_time else -1
    result = AppendResult(NONE, verdict[2], verdict[3], timestamp, log.log_start_offset, leader_epoch)
    result.is_duplicate = True
    if result.last_offset >= max(log.sync_at_offset, log.recovery_point):
        # The original's sync has not ended yet, or a process that died had only written it.
        log.flushes.acknowledge(result.last_offset + 1, result, on_complete)
        return None
    return result

"""Where a leader's batches go: each gets its place, then those that have theirs are written.

Owns what every batch of a leader's goes through, whether a client's or the broker's own, on the loop or on a writer
thread. That is its place in the active segment, its offset and leader epoch in its bytes, its producer's state and the
write. It is also how all of that is undone where the disk does not take it. Does not own which batch may be appended
(``leader_append`` and ``append_run`` ask the rules before) nor what makes space for one.

Invariant: a batch that has its place changes what is readable only once it is written; ``write_failed`` gives the
log's producers the state that they had before.

Kafka: LogValidator's offsets and UnifiedLog.append.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from pybroker.storage.results import INVALID_TXN_STATE
from pybroker.storage.rules.producer_state import SequenceError
from pybroker_protocol.records import (
    CONTROL_FLAG,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    HeaderFields,
    read_batch_header,
)

if TYPE_CHECKING:
    from pybroker.storage.files.segment import Placed
    from pybroker.storage.log.log_state import LogState
    from pybroker.storage.rules.producer_state import BatchFields, FormerState

# Base offset, length (as it was), leader epoch: they lie outside the CRC.
patch_into = Struct(">qii").pack_into


def place(
    log: LogState,
    records: memoryview,
    header: HeaderFields,
    leader_epoch: int,
    position: int,
    base_offset: int,
    formers: list[FormerState],
) -> Placed | None:
    """Give a batch the place at ``position`` and ``base_offset``; None where something is in the way: nothing changes.

    In the way is that it is not next in its producer's sequence (``check_sequence``), or has no space in the active
    segment.  Its bytes are patched.  A data batch's producer is taken to have written it:  ``formers`` says what was
    before.  A marker's is not, as what it ends cannot be taken back:  ``LogState.note_producer`` follows its write.

    The segment's bounds are looked at before ``must_roll`` is called. A call less is 4 % of what a small batch that
    comes alone costs a fast path, as much as this function is.
    """
    _, length, _, _, _, attributes, last_offset_delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
    size = length + LOG_OVERHEAD
    last_offset = base_offset + last_offset_delta
    segment = log.active
    if (
        position + size > segment.size_end or max_timestamp > segment.time_end or last_offset > segment.offset_end
    ) and segment.must_roll(size, last_offset, max_timestamp, position):
        return None
    if producer_id >= 0 and not attributes & CONTROL_FLAG:
        producers, transactional = log.producers, attributes & TRANSACTIONAL_FLAG
        if sequence >= 0:
            if producers.check(producer_id, epoch, sequence, last_offset_delta, transactional) is not None:
                return None
        elif producers.check_unsequenced(producer_id, epoch, transactional) is not None:
            return None
        formers.append(
            producers.update(producer_id, epoch, sequence, base_offset, last_offset, max_timestamp, transactional)
        )
    patch_into(records, 0, base_offset, length, leader_epoch)
    return position, size, base_offset, last_offset, max_timestamp


def check_sequence(log: LogState, header: HeaderFields) -> BatchFields | SequenceError | None:
    """Why the producer of a batch may not append it now, or the batch that it repeats; None if it may.

    That it waits for a batch which was refused is another question (``ProducerStateManager.answer_behind``).
    """
    batch = BatchHeader._make(header)
    producer_id, epoch, transactional = batch.producer_id, batch.producer_epoch, batch.is_transactional
    if producer_id < 0 or batch.is_control:
        return None
    if batch.base_sequence < 0:
        return log.producers.check_unsequenced(producer_id, epoch, transactional)
    return log.producers.check(producer_id, epoch, batch.base_sequence, batch.last_offset_delta, transactional)


def note_refusal(log: LogState, records: memoryview, error_code: int) -> None:
    """A producer's batch is not appended for a reason that has nothing to do with it, and that passes.

    If it was the producer's next, what comes behind it is refused with the same error until it is there.  The first
    batch of a transaction may be the next, too, though its transaction is not verified yet.
    """
    if len(records) < HEADER_BYTES:
        return
    batch = read_batch_header(records)
    if batch.magic != CURRENT_MAGIC or batch.producer_id < 0 or batch.base_sequence < 0 or batch.is_control:
        return
    outcome = check_sequence(log, batch)
    if outcome is None or (isinstance(outcome, SequenceError) and outcome.error_code == INVALID_TXN_STATE):
        log.producers.refused.note(batch.producer_id, batch.producer_epoch, batch.base_sequence, error_code)


def write_failed(log: LogState, formers: Sequence[FormerState], error: OSError, size: int) -> None:
    """The disk did not take batches of ``size`` bytes that were placed last, with nothing in flight."""
    log.producers.take_back(formers)
    log.write_failed(error, size)

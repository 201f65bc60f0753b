"""Several small batches for one log, appended with one write: what a producer with requests in flight sends.

Owns nothing of a log: it is the plain case of ``Log.append_as_leader``, and leaves every other one to it.  A batch is
plain that passes ``validate``, whose records are in order where they are to be looked at, is not transactional, is next
in its producer's sequence, has its place in the active segment, and is answered without a sync.

Invariant: the batches that were appended are a prefix of those that were given, and look in the log, in its producer
state and in its indexes as if ``append_as_leader`` had appended them one by one; of the others nothing was changed.

Measured by ``bench/produce_path.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pybroker.limits import INLINE_WRITE_BYTES_MAX
from pybroker.storage.files import os_file
from pybroker.storage.log.leader_append import patch_into as _patch_into
from pybroker.storage.rules.validator import AppendRules, Rejection, validate
from pybroker_protocol.records import COMPRESSION_MASK, LOG_OVERHEAD, TRANSACTIONAL_FLAG, HeaderFields

if TYPE_CHECKING:
    from pybroker.storage.log.log_state import LogState
    from pybroker.storage.rules.producer_state import ProducerStateEntry

# (position, length, base offset, last offset, max timestamp)
_Placed = tuple[int, int, int, int, int]


def append_run(log: LogState, batches: Sequence[memoryview], leader_epoch: int, produce_version: int) -> list[int]:
    """Append the batches as far as they are plain; gives back their base offsets, none if not even the first is.

    The bytes of every batch must be writable; they are patched in place.  What is not appended may be given to
    ``append_as_leader``, which says what is the matter with it.
    """
    rules, segment = log.rules, log.active
    if not _takes_plain_ones(log, leader_epoch) or not segment.has_index_room(len(batches)):
        return []
    now_ms = log.environment.now_ms()
    producers = log.producers
    position, next_offset = segment.size, log.next_offset
    bytes_end = position + INLINE_WRITE_BYTES_MAX
    sync_at_offset = log.sync_at_offset
    placed: list[_Placed] = []
    formers: list[tuple[int, ProducerStateEntry | None]] = []
    for records in batches:
        header = validate(records, rules, now_ms, produce_version)
        if isinstance(header, Rejection):
            break
        if rules.needs_records:
            looked_at = _looked_at(records, header, rules, now_ms)
            if looked_at is None:
                break
            header = looked_at
        _, length, _, _, _, attributes, last_offset_delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        size = length + LOG_OVERHEAD
        last_offset = next_offset + last_offset_delta
        if (
            attributes & TRANSACTIONAL_FLAG
            or position + size > bytes_end
            or last_offset >= sync_at_offset
            or segment.must_roll(size, last_offset, max_timestamp, position)
        ):
            break
        if producer_id >= 0:
            if producers.check(producer_id, epoch, sequence, last_offset_delta, 0) is not None:
                break
            former = producers.update(producer_id, epoch, sequence, next_offset, last_offset, max_timestamp, False)
            formers.append((producer_id, former))
        _patch_into(records, 0, next_offset, length, leader_epoch)
        placed.append((position, size, next_offset, last_offset, max_timestamp))
        next_offset = last_offset + 1
        position += size
    if not placed:
        return []
    start = segment.size
    data = batches[0] if len(placed) == 1 else b"".join(batches[: len(placed)])
    try:
        if os_file.pwrite(segment.fd, data, start) != position - start:
            os_file.write_fully(segment.fd, data, start)
    except OSError as error:
        for producer_id, former in reversed(formers):
            producers.restore(producer_id, former)
        _unpatch(batches, placed)
        log.write_failed(error)
        return []
    account = segment.account
    for place in placed:
        account(*place)
    log.appended(next_offset)
    log.directory.writers.note_small_append()
    if position >= segment.write_back_at:
        log.write_back_if_due()
    return [place[2] for place in placed]


def _takes_plain_ones(log: LogState, leader_epoch: int) -> bool:
    queue, segment = log.queue, log.active
    return not (
        log.refusal
        or queue.busy
        or queue.others_wait
        or log.rules.log_append_time
        or leader_epoch > log.leader_epochs.latest_epoch
        or segment.first_timestamp < 0
        or segment.fd < 0
    )


def _looked_at(records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int) -> HeaderFields | None:
    """The header of a batch whose records are in order, quickly looked at, and stay as they are."""
    from pybroker.storage.rules.record_validator import prepare_at_once

    if rules.codec not in {-1, header[5] & COMPRESSION_MASK}:
        return None
    prepared = prepare_at_once(records, header, rules, now_ms)
    return prepared[1] if isinstance(prepared, tuple) else None


def _unpatch(batches: Sequence[memoryview], placed: Sequence[_Placed]) -> None:
    """Give the batches back the base offset that a producer sends, so that they pass ``validate`` again."""
    for records, (_, size, *_) in zip(batches, placed, strict=False):
        _patch_into(records, 0, 0, size - LOG_OVERHEAD, -1)

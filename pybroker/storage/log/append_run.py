"""Several small batches for one log, appended with one write: what a producer with requests in flight sends.

Owns nothing of a log: it is the plain case of ``Log.append_as_leader``, and leaves every other one to it. A batch is
plain that passes ``validate``, whose records are in order where they are to be looked at, and that is not
transactional. It also has to get its place at once (``placing``), and to be answered without a sync.

Invariant: the batches that were appended are a prefix of those that were given. They look in the log, in its producer
state and in its indexes as if ``append_as_leader`` had appended them one by one. Of the others nothing was changed.

Measured by ``bench/produce_path.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pybroker.storage.log.placing import patch_into, place, write_failed
from pybroker.storage.rules.maximum_timestamp import true_header
from pybroker.storage.rules.validator import AppendRules, Rejection, validate
from pybroker.storage_limits import INLINE_WRITE_BYTES_MAX
from pybroker_protocol.records import (
    ATTRIBUTES,
    COMPRESSION_MASK,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    HeaderFields,
)

if TYPE_CHECKING:
    from pybroker.storage.files.segment import Placed
    from pybroker.storage.log.log_state import LogState
    from pybroker.storage.rules.producer_state import FormerState


def append_run(log: LogState, batches: Sequence[memoryview], leader_epoch: int, produce_version: int) -> list[int]:
    """Append the batches as far as they are plain; gives back their base offsets, none if not even the first is.

    The bytes of every batch must be writable; they are patched in place.  What is not appended may be given to
    ``append_as_leader``, which says what is the matter with it.
    """
    rules, segment = log.rules, log.active
    queue = log.queue
    if (
        log.refusal
        or queue.busy
        or queue.others_wait
        or rules.log_append_time
        or leader_epoch > log.leader_epochs.latest_epoch
        or segment.first_timestamp < 0
        or segment.fd < 0
        or not segment.has_index_capacity(len(batches))
    ):
        return []
    now_ms = log.environment.now_ms()
    position, next_offset = segment.size, log.next_offset
    bytes_end = position + INLINE_WRITE_BYTES_MAX
    sync_at_offset = log.sync_at_offset
    base_offsets: list[int] = []
    placed: list[Placed] = []
    formers: list[FormerState] = []
    for records in batches:
        header = validate(records, rules, now_ms, produce_version)
        if isinstance(header, Rejection):
            break
        its_header = None if rules.needs_records else true_header(records, header, rules, now_ms)
        if its_header is None:
            its_header = _looked_at(records, header, rules, now_ms)
            if its_header is None:
                break
        header = its_header
        if (
            header[ATTRIBUTES] & TRANSACTIONAL_FLAG
            or position + len(records) > bytes_end
            or next_offset + header[LAST_OFFSET_DELTA] >= sync_at_offset
        ):
            break
        its_place = place(log, records, header, leader_epoch, position, next_offset, formers)
        if its_place is None:
            break
        placed.append(its_place)
        base_offsets.append(next_offset)
        _, size, _, last_offset, _ = its_place
        next_offset = last_offset + 1
        position += size
    if not placed:
        return base_offsets
    data = batches[0] if len(placed) == 1 else b"".join(batches[: len(placed)])
    try:
        segment.append(data, placed)
    except OSError as error:
        write_failed(log, formers, error, len(data))
        _unpatch(batches, placed)
        return []
    log.appended(next_offset)
    log.directory.writers.note_small_append()
    if position >= segment.write_back_at:
        log.write_back_if_due()
    return base_offsets


def _looked_at(records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int) -> HeaderFields | None:
    """The header of a batch whose records are in order, quickly looked at, and stay as they are."""
    from pybroker.storage.rules.record_validator import prepare_at_once

    if rules.codec not in {-1, header[ATTRIBUTES] & COMPRESSION_MASK}:
        return None
    prepared = prepare_at_once(records, header, rules, now_ms)
    return prepared[1] if isinstance(prepared, tuple) else None


def _unpatch(batches: Sequence[memoryview], placed: Sequence[Placed]) -> None:
    """Give the batches back the base offset that a producer sends, so that they pass ``validate`` again."""
    for records, (_, size, *_) in zip(batches, placed, strict=False):
        patch_into(records, 0, 0, size - LOG_OVERHEAD, -1)

"""Appending a leader's batches on a follower: offsets and epochs are the leader's, and every CRC is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

from pybroker.storage.results import CORRUPT_MESSAGE, NONE, AppendResult
from pybroker_protocol.records import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LOG_OVERHEAD

if TYPE_CHECKING:
    from pybroker.storage.log import Log


def append_batches(log: Log, records: memoryview) -> AppendResult:
    """See ``Log.append_as_follower``."""
    assert not log.queue.busy, "a follower's writes are made on the loop"
    position, first, last, epoch = 0, -1, -1, -1
    while position + HEADER_BYTES <= len(records):
        header = HEADER.unpack_from(records, position)
        base_offset, length, leader_epoch = header[0], header[1], header[2]
        size = length + LOG_OVERHEAD
        batch = records[position : position + size]
        if len(batch) != size or size < HEADER_BYTES:
            break  # A leader may cut the last batch; the next fetch brings it whole.
        if base_offset < log.next_offset or crc32c(batch[ATTRIBUTES_AT:]) != header[4] or header[3] != 2:
            return AppendResult(CORRUPT_MESSAGE, first, last, -1, log.log_start_offset, epoch)
        last_offset = base_offset + header[6]
        refused = log.append_stored(batch, header, base_offset, last_offset)
        if refused is not None:
            refused.base_offset, refused.last_offset = first, last
            return refused
        first, last, epoch = (first if first >= 0 else base_offset), last_offset, leader_epoch
        position += size
    return AppendResult(NONE, first, last, -1, log.log_start_offset, epoch)

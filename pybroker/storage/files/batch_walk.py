"""Walking over batches, header by header, wherever they are read from.

Owns what a walk needs of a header and when it has to stop; does not own the bytes: ``header_at`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from pybroker_protocol.records import HEADER_BYTES, LOG_OVERHEAD

WALK = Struct(">qi11xi")  # base offset, length, (leader epoch, magic, crc, attributes), last offset delta
walk_from = WALK.unpack_from

HeaderAt = Callable[[int], tuple[int, int, int]]


def walk_to_offset(header_at: HeaderAt, position: int, end: int, offset: int) -> int:
    """The position of the first batch from ``position`` on that reaches ``offset``; ``end`` if none, -1 if corrupt."""
    while position + WALK.size <= end:
        base_offset, length, last_offset_delta = header_at(position)
        if base_offset + last_offset_delta >= offset:
            return position
        if length < HEADER_BYTES - LOG_OVERHEAD:
            return -1
        position += LOG_OVERHEAD + length
    return end


def walk_to_limit(header_at: HeaderAt, position: int, end: int, limit: int) -> int:
    """The last batch boundary at or after ``position`` that is not past ``limit``; -1 if corrupt."""
    while position + WALK.size <= end:
        length = header_at(position)[1]
        if length < HEADER_BYTES - LOG_OVERHEAD:
            return -1
        following = position + LOG_OVERHEAD + length
        if following > limit:
            return position
        position = following
    return position

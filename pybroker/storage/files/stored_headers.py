"""The headers of the batches of a segment that is known to be whole.

Owns the walk over them, by reads of the file: no map is made of a segment that is read here alone.  A file that
may be damaged is ``segment_scan``'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker_protocol.records import BATCH_LENGTH, HEADER, HEADER_BYTES, LOG_OVERHEAD, HeaderFields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.storage.files.segment_file import SegmentFile


def stored_headers(segment: SegmentFile, position: int, end: int | None = None) -> Iterator[tuple[int, HeaderFields]]:
    """(position, header) of the batches from ``position`` to ``end``, or the segment's, by reads of the file."""
    end = segment.size if end is None else end
    while position + HEADER_BYTES <= end:
        header = HEADER.unpack(os_file.pread(segment.fd, HEADER_BYTES, position))
        if (
            header[BATCH_LENGTH] < HEADER_BYTES - LOG_OVERHEAD
            or position + LOG_OVERHEAD + header[BATCH_LENGTH] > segment.size
        ):
            return
        yield position, header
        position += LOG_OVERHEAD + header[BATCH_LENGTH]

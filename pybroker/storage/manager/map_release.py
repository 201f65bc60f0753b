"""What was read through the maps of logs is not to count as the broker's memory for good.

Owns when pages are let go of: once ``MAPPED_BYTES_MAX`` are mapped beside what the process had mapped at its start, its
libraries.  What is appended and read on the way goes soon, and what is read of old segments when no reader goes on
with it.  Owns no map (``segment_file``).

Invariants:
- The page cache keeps what is let go of, so a reader pays for a fault and never for the disk.
- One turn of the loop looks at a few segments.

Kafka: none; it has the kernel send from the page cache, and maps its indexes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pybroker import storage_limits
from pybroker.storage.files import os_process

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env
    from pybroker.storage.files.segment_cache import OpenSegment, SegmentCache

# How often it lets go of segments that no read has used since.  To let go of all at each look takes a tenth from
# bulk readers, who map the same pages anew.
UNREAD_CHECK_INTERVAL_MS = 2_000

# To take so much out of the process's memory holds the loop for up to a millisecond.
RELEASED_BYTES_PER_TURN = 32 << 20


class MapRelease:
    """Keeps the resident part of the maps of a broker's open segments small."""

    def __init__(self, env: Env, segments: SegmentCache) -> None:
        self._env = env
        self._segments = segments
        self._allowed_bytes = 0
        self._unread_at_ms = 0
        self._rest: Cancellable | None = None

    def start(self) -> bool:
        """What is mapped now is not the logs'. Returns whether the system tells how much that is; else there is nothing
        to do.
        """
        resident_bytes = os_process.resident_file_bytes()
        self._allowed_bytes = resident_bytes + storage_limits.MAPPED_BYTES_MAX
        return resident_bytes > 0

    def stop(self) -> None:
        """Let go of nothing more."""
        if self._rest is not None:
            self._rest.cancel()

    def look(self) -> None:
        """Let go of what was read, if it is much."""
        if self._rest is not None or os_process.resident_file_bytes() <= self._allowed_bytes:
            return
        now_ms = self._env.clock.monotonic_ms()
        of_unread = now_ms >= self._unread_at_ms
        if of_unread:
            self._unread_at_ms = now_ms + UNREAD_CHECK_INTERVAL_MS
        self._release(_pieces(list(self._segments), of_unread))

    def _release(self, pieces: Iterator[tuple[OpenSegment, int, int]]) -> None:
        self._rest = None
        for count, (segment, start, end) in enumerate(pieces, 1):
            segment.release_pages(start, end)
            if count == storage_limits.PARTITIONS_PER_TURN or end - start == RELEASED_BYTES_PER_TURN:
                self._rest = self._env.timers.call_soon(self._release, pieces)
                return


def _pieces(segments: list[OpenSegment], of_unread: bool) -> Iterator[tuple[OpenSegment, int, int]]:
    """What to let go of, in pieces for a turn; an empty one for a segment that keeps all, because it was looked at."""
    most = RELEASED_BYTES_PER_TURN
    for segment in segments:
        start, end = segment.written_lately()
        if of_unread and (unread := segment.unread_lately())[1]:
            start, end = unread
        for at in range(start, end, most) if start < end else (start,):
            yield segment, at, min(at + most, end)

"""The segments of one log in order of their base offsets.  Kafka's LogSegments.

Invariant: base offsets rise strictly; the last segment is the active one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from pybroker.storage.files.segment import Segment


class SegmentList:
    """A sorted list of segments."""

    __slots__ = ("_base_offsets", "_segments")

    def __init__(self) -> None:
        self._base_offsets: list[int] = []
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, i: int) -> Segment:
        return self._segments[i]

    def add(self, segment: Segment) -> None:
        """Add a segment, usually past the others."""
        i = bisect_left(self._base_offsets, segment.base_offset)
        self._base_offsets.insert(i, segment.base_offset)
        self._segments.insert(i, segment)

    def remove(self, segment: Segment) -> None:
        """Take a segment out."""
        i = self._segments.index(segment)
        del self._base_offsets[i], self._segments[i]

    def replace(self, former: list[Segment], segment: Segment) -> None:
        """Put ``segment`` in the place of neighbours of which the first begins where it does."""
        i = self._segments.index(former[0])
        assert self._segments[i : i + len(former)] == former, "not neighbours"
        self._segments[i : i + len(former)] = [segment]
        self._base_offsets[i : i + len(former)] = [segment.base_offset]

    def floor(self, offset: int) -> int:
        """The index of the segment whose range ``offset`` falls into; 0 for what lies before the first."""
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def end_offset(self, i: int, log_end_offset: int) -> int:
        """Where segment ``i`` ends: the next one's base offset, or the end of the log."""
        return self._base_offsets[i + 1] if i + 1 < len(self._base_offsets) else log_end_offset

    def total_bytes(self) -> int:
        """The bytes of all data files."""
        return sum(segment.size for segment in self._segments)

"""How many segments may hold descriptors and maps, and which of them let go first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol


class OpenSegment(Protocol):
    """What the cache knows of a segment."""

    referenced: bool  # since the hand came by, or its pages were looked at
    pins: int  # how many use its descriptor in a thread: meanwhile it stays open

    def close(self) -> None:
        """Let go of the descriptor and the map."""

    def written_lately(self) -> tuple[int, int]:
        """Which bytes were appended since the last time."""

    def unread_lately(self) -> tuple[int, int]:
        """Which bytes were not used since the last time."""

    def release_pages(self, start: int, end: int) -> None:
        """What was read of them through the map is no more this process's memory."""


class SegmentCache:
    """Bounds how many segments hold descriptors and maps: past the bound, the ones not used lately are closed.

    The policy is CLOCK: a use sets ``referenced``, the hand clears it and closes what it finds cleared.
    """

    __slots__ = ("_hand", "_open", "now_ms", "open_max")

    def __init__(self, open_max: int, now_ms: Callable[[], int]) -> None:
        self.open_max = open_max
        self.now_ms = now_ms
        self._open: dict[OpenSegment, None] = {}
        self._hand: list[OpenSegment] = []

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenSegment]:
        return iter(self._open)

    def admit(self, segment: OpenSegment) -> None:
        """Called when a segment opens its file."""
        segment.referenced = True
        self._open[segment] = None
        if len(self._open) > self.open_max:
            self._evict(keep=segment)

    def forget(self, segment: OpenSegment) -> None:
        """Called when a segment closed its file."""
        self._open.pop(segment, None)

    def _evict(self, keep: OpenSegment) -> None:
        for _ in range(2 * len(self._open)):
            if not self._hand:
                self._hand = list(reversed(self._open))  # taken from its end: what was opened first goes first
            candidate = self._hand.pop()
            if candidate is keep or candidate.pins or candidate not in self._open:
                continue
            if candidate.referenced:
                candidate.referenced = False
            else:
                candidate.close()
                if len(self._open) <= self.open_max:  # it may be more after many were pinned
                    return

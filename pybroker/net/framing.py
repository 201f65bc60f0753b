"""Where frames begin and end in received bytes.

Owns: which frames there are, what is missing of one, which length is refused, and how large a buffer for the rest of
one has to be.  It gets bytes and positions, reads no socket and keeps nothing of what it saw.  Does not own what stands
in a frame (``requests``), nor whether there is space for it (``receive_budget``).

A frame is its length in four bytes, and so many bytes.

Kafka counterpart: NetworkReceive.
"""

from __future__ import annotations

import struct

from pybroker import limits

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 0x7FFF_FFFF  # more cannot be said
# Where that begins, in a frame without its length, in which requests that repeat are alike: behind the correlation id.
PREFIX_AT = 8
_LENGTH = struct.Struct(">i").unpack_from


class FrameRefused(Exception):
    """A length that is negative, or more than is served."""


class Framing:
    """``frame_bytes_max`` is the longest frame that is served, without its own length."""

    __slots__ = ("frame_bytes_max",)

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max

    def end_of_frame(self, view: memoryview, pos: int, end: int) -> int:
        """Where the frame ends that begins at ``pos``; 0 while it is not whole in ``view[pos:end]``.

        Raises ``FrameRefused``.
        """
        if end - pos < LENGTH_BYTES:
            return 0
        size: int = _LENGTH(view, pos)[0]
        if not 0 <= size <= self.frame_bytes_max:
            raise FrameRefused(f"a frame of {size} bytes (at most {self.frame_bytes_max} are served)")
        stop = pos + LENGTH_BYTES + size
        return stop if stop <= end else 0

    def can_be_judged(self, view: memoryview, pos: int, end: int) -> bool:
        """Whether the first frame of ``view[pos:end]`` is whole, or refused: nothing more of it needs to be read."""
        unserved = end - pos
        return unserved >= LENGTH_BYTES and not unserved - LENGTH_BYTES < _LENGTH(view, pos)[0] <= self.frame_bytes_max


def frame_bytes(view: memoryview, pos: int, end: int) -> int:
    """The length of the first frame of ``view[pos:end]`` with its own, as far as that is known."""
    return LENGTH_BYTES + int(_LENGTH(view, pos)[0]) if end - pos >= LENGTH_BYTES else LENGTH_BYTES


def buffer_size_for(view: memoryview, pos: int, end: int) -> int:
    """Bytes of a buffer for the first frame of ``view[pos:end]``, of which no more than that is here.

    Twice what is here, never the length that the peer declares, unless that is less.
    """
    unserved = end - pos
    doubled = max(2 * unserved, limits.FRAME_BUFFER_MIN_BYTES)
    if unserved >= LENGTH_BYTES:
        whole = frame_bytes(view, pos, end)
        if unserved < whole < doubled:
            return whole
    return doubled

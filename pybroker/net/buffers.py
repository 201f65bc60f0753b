"""Receive buffers: pooled, reused, counted.

Owns: ``ReceiveBuffer``, which is bytes that were received, and who still looks at them. Owns ``BufferPool``, too (the
free ones, by capacity, of which there are eight to each power of two, and the count of bytes in use).

Invariants:
- A buffer goes back to the pool only when it has no holder (``holds`` is 0). So a view of a request stays valid for as
  long as its holder keeps it.
- The pool keeps at most ``limits.BUFFER_POOL_BYTES`` free, and none that was not needed between two calls of
  ``forget_unused``.
"""

from __future__ import annotations

from collections.abc import Callable

from pybroker import limits


class ReceiveBuffer:
    """One block of received bytes.  ``hold`` and ``release`` count who still needs its contents."""

    __slots__ = ("capacity", "holds", "pool", "view")

    def __init__(self, pool: BufferPool, capacity: int) -> None:
        self.pool = pool
        self.capacity = capacity
        self.view = memoryview(bytearray(capacity))
        self.holds = 1

    def hold(self) -> None:
        """Keep the contents until one more ``release``."""
        self.holds += 1

    def release(self) -> None:
        """Let go; the last one hands the buffer back to the pool."""
        self.holds -= 1
        assert self.holds >= 0, "a receive buffer was released twice"
        if self.holds == 0:
            self.pool.give_back(self)


class BufferPool:
    """Free buffers by size; fresh memory costs page faults, reused memory does not.

    ``on_freed()`` is called when a buffer is not in use any more.
    """

    __slots__ = ("_free", "_unused", "bytes_free", "bytes_in_use", "on_freed")

    def __init__(self) -> None:
        self._free: dict[int, list[ReceiveBuffer]] = {}
        self._unused: dict[int, list[ReceiveBuffer]] = {}  # free since before the last ``forget_unused``
        self.bytes_free = 0
        self.bytes_in_use = 0
        self.on_freed: Callable[[], None] = lambda: None

    def take(self, bytes_min: int) -> ReceiveBuffer:
        """A buffer of at least ``bytes_min`` bytes, held once by the caller.  Its contents are arbitrary."""
        capacity = _size_class(bytes_min)
        self.bytes_in_use += capacity
        free = self._free.get(capacity) or self._unused.get(capacity)
        if free:
            self.bytes_free -= capacity
            buffer = free.pop()
            buffer.holds = 1
            return buffer
        return ReceiveBuffer(self, capacity)

    def give_back(self, buffer: ReceiveBuffer) -> None:
        """Called by the buffer when it has no holder any more."""
        self.bytes_in_use -= buffer.capacity
        if self.bytes_free + buffer.capacity <= limits.BUFFER_POOL_BYTES:
            self.bytes_free += buffer.capacity
            self._free.setdefault(buffer.capacity, []).append(buffer)
        self.on_freed()

    def forget_unused(self) -> None:
        """Let go of what was free at the last call and was not taken since."""
        self.bytes_free -= sum(capacity * len(buffers) for capacity, buffers in self._unused.items())
        self._unused, self._free = self._free, {}


def _size_class(size: int) -> int:
    """Sizes step by an eighth of the power of two below, so that a 1 MiB batch with its header wastes little."""
    size = max(size, limits.FRAME_BUFFER_MIN_BYTES)
    step = 1 << max(size.bit_length() - 4, 0)
    return (size + step - 1) & ~(step - 1)

"""The one account of received bytes, and who may receive more of them when it is full.

Owns: how many bytes are received and not done with, wherever they are: in receive buffers of connections, requests that
handlers hold, copies of batches that wait for the disk. Owns which connection reads on into an unfinished frame, too.
Does not own the buffers (``buffers``) nor a connection's frames (``connection``).

The rule. A frame that outgrows a connection's first small buffer is counted with its whole length, so that a connection
that may read on can finish. No memory is taken for what has not come. Where that does not fit:
- It waits, unread, in its peer's socket.  Small requests that come whole need no place, and are served as ever.
- Large frames (``limits.LARGE_FRAME_BYTES``) have three quarters of the account at most; the last is kept for others.
- Space goes to the host that keeps the fewest bytes here, and of its frames to the one that lacks the fewest. To have
  waited counts as well, so that the largest has its turn. So honest progress goes first, and a host that reconnects, or
  comes with many connections, gains nothing.
- A frame for which no space can come, or has not for long, is received beyond the account, as the only one of its kind.
- All that may read on and bring less than ``SLOW_FRAME_BYTES_PER_S`` are closed, largest first, till none waits.

Invariants:
- Bytes counted are at most ``bytes_max``, one frame of each kind, and a small buffer of each connection.
- No connection is closed while none waits, nor for a delay that is the account's or the broker's own.

A new way to keep bytes of a request has to count them here (``count_copy``).

Kafka counterpart: SimpleMemoryPool and ``queued.max.request.bytes``, which knows no order and waits for slow frames.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pybroker import limits

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env
    from pybroker.net.buffers import BufferPool, ReceiveBuffer

# One buffer per loop that every idle connection reads into.  64 KiB reads cost four times the CPU of 1 MiB reads.
RECEIVE_BUFFER_BYTES = 1 << 20

# While the budget is full, a connection that may read on and brings less than this over ``limits.SLOW_FRAME_MS`` is
# closed: low enough for a thousand peers that share the broker, high enough for places to come free by what is
# finished.
SLOW_FRAME_BYTES_PER_S = 32 << 10

# Places go to small frames first, but after so long the largest of its kind goes before any that has just come.
FRAME_WAIT_MAX_MS = 20_000


class Receiver(Protocol):
    """What receives bytes: a connection."""

    @property
    def peer_host(self) -> str: ...

    @property
    def unserved_bytes(self) -> int:
        """What is received of the next frame, and of those behind it."""
        ...

    def holds_whole_frame(self) -> bool:
        """Whether its bytes hold a frame that only waits to be started, or refused: nothing more is read."""
        ...

    def read_again(self) -> None:
        """There is space for what it waits for."""
        ...

    def give_up(self, reason: str) -> None:
        """It has to go, and what it sent."""
        ...


class HeldCopy:
    """Bytes of a request that a handler has copied: they count until each ``hold``, and the first, is released."""

    __slots__ = ("_budget", "_holds", "_size")

    def __init__(self, budget: ReceiveBudget, size: int) -> None:
        self._budget = budget
        self._size = size
        self._holds = 1

    def hold(self) -> None:
        """Have them count until one more ``release``."""
        self._holds += 1

    def release(self) -> None:
        """Done with them."""
        self._holds -= 1
        assert self._holds >= 0, "a copy was released twice"
        if not self._holds:
            self._budget.uncount(self._size)


class _Wait(NamedTuple):
    """What a connection waits for, and since when."""

    growth_bytes: int
    rest_bytes: int
    is_large: bool
    since_ms: int


class _Kept(NamedTuple):
    """What a connection counts for: its buffer, or the frame that is coming into it."""

    counted_bytes: int
    capacity: int
    is_large: bool
    is_coming: bool


_NOTHING = _Kept(0, 0, False, False)


class _Progress(NamedTuple):
    """What a connection that may read on had at a time."""

    at_ms: int
    unserved_bytes: int


class ReceiveBudget:
    __slots__ = (
        "_coming",
        "_coming_bytes",
        "_copied_bytes",
        "_env",
        "_frame_bytes_max",
        "_kept",
        "_kept_by_host",
        "_large_bytes",
        "_large_bytes_max",
        "_look_due_ms",
        "_look_timer",
        "_progress",
        "_serving_soon",
        "_waiting",
        "bytes_max",
        "is_tight",
        "pipelined_bytes_max",
        "pool",
    )

    def __init__(self, pool: BufferPool, bytes_max: int, frame_bytes_max: int, env: Env) -> None:
        self.pool = pool
        self.bytes_max = bytes_max
        # No further Produce is begun behind one that waits when this much is here: who comes next would wait for all.
        self.pipelined_bytes_max = bytes_max // 4 + RECEIVE_BUFFER_BYTES
        self.is_tight = False  # what is read for a new frame has to be little: there may be no space for its rest
        self._frame_bytes_max = frame_bytes_max
        self._env = env
        self._copied_bytes = 0
        self._large_bytes_max = bytes_max - bytes_max // 4
        self._kept: dict[Receiver, _Kept] = {}
        self._kept_by_host: Counter[str] = Counter()
        self._coming_bytes = 0  # counted, and not received yet
        self._large_bytes = 0
        self._coming = [0, 0]  # frames, small and large
        self._waiting: dict[Receiver, _Wait] = {}
        self._progress: dict[Receiver, _Progress] = {}
        self._serving_soon = False
        self._look_timer: Cancellable | None = None
        self._look_due_ms = 0
        pool.on_freed = self._changed

    def close(self) -> None:
        """Look after no connection any more."""
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None

    # --- the account -----------------------------------------------------------------------------------------------

    @property
    def bytes_counted(self) -> int:
        """All received bytes that are not done with, and those that are coming."""
        return self.pool.bytes_in_use + self._copied_bytes + self._coming_bytes

    def take_shared(self) -> ReceiveBuffer:
        """A buffer that all connections read into."""
        buffer = self.pool.take(RECEIVE_BUFFER_BYTES)
        self._changed()
        return buffer

    def take(self, connection: Receiver, size: int, is_large: bool) -> ReceiveBuffer:
        """A buffer for the connection's unserved bytes, instead of the one that it may have: that is let go of."""
        buffer = self.pool.take(size)
        before = self._kept.get(connection, _NOTHING)
        counted_bytes = max(before.counted_bytes, buffer.capacity) if before.is_coming else buffer.capacity
        self._keep(connection, _Kept(counted_bytes, buffer.capacity, is_large, before.is_coming))
        return buffer

    def count_copy(self, size: int) -> HeldCopy:
        """Bytes of a request that are copied and kept."""
        self._copied_bytes += size
        self._changed()
        return HeldCopy(self, size)

    def uncount(self, size: int) -> None:
        """Called by a copy that is done with."""
        self._copied_bytes -= size
        self._changed()

    def _keep(self, connection: Receiver, kept: _Kept) -> None:
        """Count the connection's bytes anew."""
        before = self._kept.pop(connection, _NOTHING)
        if kept.capacity:
            self._kept[connection] = kept
        for sign, entry in ((-1, before), (1, kept)):
            self._coming_bytes += sign * (entry.counted_bytes - entry.capacity)
            self._large_bytes += sign * entry.counted_bytes if entry.is_large else 0
            self._coming[entry.is_large] += sign if entry.is_coming else 0
            self._kept_by_host[connection.peer_host] += sign * entry.counted_bytes
        if not self._kept_by_host[connection.peer_host]:
            del self._kept_by_host[connection.peer_host]
        self._changed()

    def _changed(self) -> None:
        # Tight before the last quarter: what a read brings of a large frame has no place in that.
        least_bytes = RECEIVE_BUFFER_BYTES + limits.LARGE_FRAME_BYTES
        self.is_tight = self.bytes_counted + least_bytes > self._large_bytes_max
        if self._waiting and not self._serving_soon:
            self._serving_soon = True
            self._env.timers.call_soon(self._serve_waiting)

    # --- who may read on -------------------------------------------------------------------------------------------

    def may_take(self, size: int, is_large: bool) -> bool:
        """Whether so many bytes more fit, and no connection waits for them."""
        return not self._waiting and self._has_capacity_for(size, is_large)

    def may_read_on(self, connection: Receiver, frame_bytes: int, rest_bytes: int, is_large: bool) -> bool:
        """Whether a connection may receive the rest of a frame that is longer than what its buffer has space for.

        If not, ``connection.read_again()`` is called when it may.
        """
        kept = self._kept[connection]
        growth_bytes = frame_bytes - kept.counted_bytes
        if growth_bytes > 0:
            if self._waiting or not self._has_capacity_for(growth_bytes, is_large):
                self._wait(connection, _Wait(growth_bytes, rest_bytes, is_large, self._env.clock.monotonic_ms()))
                return False
            self._let_come(connection, growth_bytes, is_large)
        return True

    def on_frame_whole(self, connection: Receiver) -> None:
        """The connection's frame is whole, or served: nothing is coming, and it is not slow."""
        self._progress.pop(connection, None)
        kept = self._kept.get(connection, _NOTHING)
        if kept.is_coming:
            self._keep(connection, _Kept(kept.capacity, kept.capacity, kept.is_large, False))

    def on_buffer_released(self, connection: Receiver) -> None:
        """The connection keeps no bytes any more."""
        self._progress.pop(connection, None)
        self._waiting.pop(connection, None)
        self._keep(connection, _NOTHING)

    def _has_capacity_for(self, size: int, is_large: bool) -> bool:
        if not self._coming[is_large] and size > self._large_bytes_max - RECEIVE_BUFFER_BYTES:
            return True  # there may never be space for it
        if is_large:
            return self.bytes_counted + size <= self._large_bytes_max
        # What a large frame was allowed beyond its share is not taken from those for whom the rest is kept.
        beyond = max(self._large_bytes - self._large_bytes_max, 0)
        return self.bytes_counted - beyond + size <= self.bytes_max

    def _let_come(self, connection: Receiver, growth_bytes: int, is_large: bool) -> None:
        kept = self._kept[connection]
        self._keep(connection, _Kept(kept.counted_bytes + growth_bytes, kept.capacity, is_large, True))

    def _wait(self, connection: Receiver, wait: _Wait) -> None:
        self._progress.pop(connection, None)
        self._waiting.setdefault(connection, wait)
        self._changed()
        if self._look_timer is None:
            self._progress.clear()
            self._look_later()

    def _serve_waiting(self) -> None:
        """Let those that wait read on, as far as there is space, in the order of the rule."""
        self._serving_soon = False
        now_ms = self._env.clock.monotonic_ms()
        is_over = [False, False]
        for connection, wait in sorted(self._waiting.items(), key=lambda entry: self._order(entry, now_ms)):
            if is_over[wait.is_large]:
                continue
            if self._has_capacity_for(wait.growth_bytes, wait.is_large) or self._goes_beyond(wait, now_ms):
                del self._waiting[connection]
                self._let_come(connection, wait.growth_bytes, wait.is_large)
                connection.read_again()
            else:
                is_over[wait.is_large] = True
        if not self._waiting:
            self.close()

    def _goes_beyond(self, wait: _Wait, now_ms: int) -> bool:
        """Whether the first that waits is received beyond the account: no space can come, or others take it all."""
        if self._coming[wait.is_large]:
            return False
        held_bytes = self.bytes_counted - sum(kept.counted_bytes for kept in self._kept.values())
        is_stuck = not any(self._coming) and held_bytes <= RECEIVE_BUFFER_BYTES
        is_overdue = wait.is_large and now_ms - wait.since_ms >= FRAME_WAIT_MAX_MS
        return is_stuck or (is_overdue and self.bytes_counted <= self.bytes_max)

    def _order(self, entry: tuple[Receiver, _Wait], now_ms: int) -> tuple[int, int]:
        connection, wait = entry
        # By the budget's 64ths, so that a few bytes more do not outweigh a frame that is nearly done.
        share = self._kept_by_host.get(connection.peer_host, 0) * 64 // self.bytes_max
        longest_bytes = self._frame_bytes_max if wait.is_large else limits.LARGE_FRAME_BYTES
        return share, wait.rest_bytes - (now_ms - wait.since_ms) * longest_bytes // FRAME_WAIT_MAX_MS

    # --- who is slow -----------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        self._look_due_ms = self._env.clock.monotonic_ms() + limits.SHORTAGE_LOOK_MS
        self._look_timer = self._env.timers.call_later(limits.SHORTAGE_LOOK_MS, self._look)

    def _look(self) -> None:
        """Connections wait: close those that may read on and bring too little, the largest first, as far as needed."""
        self._look_timer = None
        if self._env.clock.monotonic_ms() - self._look_due_ms > limits.SHORTAGE_LOOK_MS:
            self._progress.clear()  # the loop was held: what came meanwhile is not read yet
        slow = sorted(self._slow(), key=lambda connection: self._kept[connection].counted_bytes, reverse=True)
        for connection in slow:
            if not self._waiting:
                break
            connection.give_up("received bytes fill the budget, and it does not finish its frame")
            self._serve_waiting()
        if self._waiting:
            self._look_later()

    def _slow(self) -> list[Receiver]:
        now_ms = self._env.clock.monotonic_ms()
        slow = []
        for connection, kept in self._kept.items():
            if not kept.is_coming or connection.holds_whole_frame():
                continue
            unserved_bytes = connection.unserved_bytes
            before = self._progress.get(connection)
            if before is None or unserved_bytes < before.unserved_bytes:
                self._progress[connection] = _Progress(now_ms, unserved_bytes)
                continue
            waited_ms = now_ms - before.at_ms
            if waited_ms >= limits.SLOW_FRAME_MS:
                if (unserved_bytes - before.unserved_bytes) * 1_000 < SLOW_FRAME_BYTES_PER_S * waited_ms:
                    slow.append(connection)
                else:
                    self._progress[connection] = _Progress(now_ms, unserved_bytes)
        return slow

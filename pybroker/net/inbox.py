"""The received bytes of one connection that are not served yet.

Owns: the buffer that they lie in, which bytes of it they are, and how it grows.  Does not own where frames end
(``framing``), how many bytes all connections may keep (``receive_budget``), nor the reading (``connection``).

Invariant: an idle connection owns no buffer, and reads into the one that all share. Only unserved bytes move to a
buffer of its own, which grows as bytes arrive and is never sized by the length that the peer declares.

Fewer wake-ups while a large frame is unfinished (``SO_RCVLOWAT``) were measured and gave nothing.

Kafka counterpart: NetworkReceive and MemoryPool in KafkaChannel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker import limits
from pybroker.net.framing import Framing, buffer_size_for, frame_bytes

if TYPE_CHECKING:
    from pybroker.net.buffers import ReceiveBuffer
    from pybroker.net.receive_budget import ReceiveBudget, Receiver

OWN_BUFFER_BYTES = 64 << 10  # frames of so many are read into a buffer of their own


class Inbox:
    """``buffer`` is None while nothing is kept.  ``receiver`` is the connection, as the budget knows it.

    ``framing`` is another one once the sender has proved that it is a broker.
    """

    __slots__ = ("_budget", "_end", "_pos", "buffer", "frame_bytes_expected", "framing")

    def __init__(self, framing: Framing, budget: ReceiveBudget) -> None:
        self.buffer: ReceiveBuffer | None = None
        self.framing = framing
        self._budget = budget
        self._pos = 0
        self._end = 0
        self.frame_bytes_expected = 0  # the next frame is likely to be so long, as the last ones were long

    @property
    def unserved_bytes(self) -> int:
        """What is kept of the next frame, and of those behind it."""
        return self._end - self._pos

    def holds_whole_frame(self) -> bool:
        """Whether the kept bytes hold a frame that only waits to be started, or refused: nothing more is read."""
        return self.buffer is not None and self.framing.can_be_judged(self.buffer.view, self._pos, self._end)

    # --- receiving -------------------------------------------------------------------------------------------------

    def space(self, receiver: Receiver, shared: ReceiveBuffer) -> memoryview:
        """Where to read to."""
        own, budget = self.buffer, self._budget
        if own is None:
            expected = self.frame_bytes_expected
            if not expected or not budget.may_take(expected, expected > limits.LARGE_FRAME_BYTES):
                return shared.view[: limits.FRAME_BUFFER_MIN_BYTES] if budget.is_tight else shared.view
            # After a large frame the next one is read straight into a buffer of its own, cut to the same length so
            # that a read never crosses into the frame behind it and nothing has to be moved.
            self.buffer = budget.take(receiver, expected, expected > limits.LARGE_FRAME_BYTES)
            self._pos = self._end = 0
            return self.buffer.view[:expected]
        whole = frame_bytes(own.view, self._pos, self._end)
        if whole >= OWN_BUFFER_BYTES:
            return own.view[self._end : min(own.capacity, self._pos + whole)]
        return own.view[self._end :]

    def received(self, nbytes: int) -> None:
        """So many bytes were read to ``space``, which was behind what is kept."""
        self._end += nbytes

    def expect(self, frame_bytes_served: int) -> None:
        """The next frame is likely to be of so many bytes, as the last ones were."""
        self.frame_bytes_expected = frame_bytes_served if frame_bytes_served >= OWN_BUFFER_BYTES else 0

    def keep(self, receiver: Receiver, shared: ReceiveBuffer, pos: int, end: int) -> None:
        """Move unserved bytes out of the shared buffer into one of our own."""
        unserved, budget = end - pos, self._budget
        is_large = frame_bytes(shared.view, pos, end) > limits.LARGE_FRAME_BYTES
        size = buffer_size_for(shared.view, pos, end)
        # They are here already, and have to be kept; it is what comes that needs space.
        self.buffer = own = budget.take(receiver, size if budget.may_take(size, is_large) else unserved, is_large)
        own.view[:unserved] = shared.view[pos:end]
        self._pos = 0
        self._end = unserved

    def adopt(self, receiver: Receiver, received: bytes) -> None:
        """Keep bytes that were received elsewhere, where nothing is kept yet."""
        is_large = frame_bytes(memoryview(received), 0, len(received)) > limits.LARGE_FRAME_BYTES
        self.buffer = own = self._budget.take(receiver, len(received), is_large)
        own.view[: len(received)] = received
        self._pos, self._end = 0, len(received)

    def may_read_on(self, receiver: Receiver) -> bool:
        """Whether to read more: not while a whole frame is here, nor while there is no space for the rest of one.

        Makes that space, in a larger buffer if need be; if the budget has us wait for it, the receiver hears of it
        later.
        """
        own, budget = self.buffer, self._budget
        if own is None:
            return True
        if self.holds_whole_frame():
            budget.on_frame_whole(receiver)
            return False
        pos, end = self._pos, self._end
        whole = frame_bytes(own.view, pos, end)
        if end < own.capacity and (not pos or pos + whole <= own.capacity):
            return True
        unserved = end - pos
        size = buffer_size_for(own.view, pos, end)
        is_large = whole > limits.LARGE_FRAME_BYTES
        if not budget.may_read_on(receiver, whole, whole - unserved, is_large):
            return False
        self.buffer = bigger = budget.take(receiver, size, is_large)
        bigger.view[:unserved] = own.view[pos:end]
        own.release()
        self._pos = 0
        self._end = unserved
        return True

    # --- serving ---------------------------------------------------------------------------------------------------

    @property
    def unserved(self) -> tuple[int, int]:
        """Where the kept bytes begin and end in ``buffer``."""
        return self._pos, self._end

    def served(self, receiver: Receiver, pos: int) -> None:
        """Everything up to ``pos`` is served."""
        before, self._pos = self._pos, pos
        if pos == self._end:
            self.release(receiver)
        elif pos > before:
            self._budget.on_frame_whole(receiver)

    def release(self, receiver: Receiver) -> None:
        """Keep nothing any more."""
        if self.buffer is not None:
            self.buffer.release()
            self.buffer = None
            self._budget.on_buffer_released(receiver)

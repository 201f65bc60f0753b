"""One connection to another broker: bytes in, frames out.

Owns: the received bytes that make no whole frame yet, and the transport.  Does not own what a frame means, nor when a
connection is made (``peer_link``).

Invariants:
- A connection between two replies owns no buffer, and one for a long reply grows as bytes arrive.
- What a frame's receiver keeps of it beyond the call it has to copy.
- ``on_lost`` is the last call, and it comes exactly once after ``on_connected``.

Kafka counterpart: KafkaChannel and NetworkReceive, as its clients use them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from pybroker import limits
from pybroker.net.framing import LENGTH_BYTES, FrameRefused, Framing, buffer_size_for, frame_bytes

if TYPE_CHECKING:
    from pybroker.net.buffers import BufferPool, ReceiveBuffer

# The first buffer of a reply is as long as the last reply was, up to this: followers' fetches are 10 MB.
PEER_BUFFER_KEPT_BYTES = 12 << 20


class PeerConnectionUser(Protocol):
    """Who made the connection."""

    def on_connected(self, connection: PeerConnection) -> None: ...

    def on_frame(self, connection: PeerConnection, frame: memoryview) -> None:
        """A reply without its length; the view dies when this returns."""
        ...

    def on_may_write(self, connection: PeerConnection) -> None:
        """The peer takes bytes again."""
        ...

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        """Nothing further will be sent or received."""
        ...


class PeerConnection(asyncio.BufferedProtocol):
    """``may_write`` is False while the peer takes too little.

    ``framing`` may change between two frames: how long they may be.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_next_buffer_bytes",
        "_pool",
        "_pos",
        "_reason",
        "_transport",
        "_user",
        "framing",
        "may_write",
    )

    def __init__(self, user: PeerConnectionUser, framing: Framing, pool: BufferPool) -> None:
        self._user: PeerConnectionUser | None = user
        self.framing = framing
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._buffer: ReceiveBuffer | None = None
        self._pos = self._end = 0
        self._next_buffer_bytes = (
            limits.FRAME_BUFFER_MIN_BYTES
        )  # of the next reply's buffer: it is likely to be as long as the last
        self._reason = ""
        self.may_write = True

    def send(self, frame: bytes) -> None:
        """Hand a request to the transport."""
        if self._transport is not None:
            self._transport.write(frame)

    def abort(self, reason: str) -> None:
        """Break the connection; ``on_lost`` comes later, with this reason."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    # --- the transport's callbacks -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not subclass asyncio's
        self._transport.set_write_buffer_limits(high=limits.UNSENT_BYTES)
        assert self._user is not None
        self._user.on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._buffer is None:
            self._buffer = self._pool.take(self._next_buffer_bytes)
            self._pos = self._end = 0
        return self._buffer.view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        buffer, user = self._buffer, self._user
        assert buffer is not None
        self._end = end = self._end + nbytes
        view = buffer.view
        try:
            while user is not None and not self._reason and (stop := self.framing.end_of_frame(view, self._pos, end)):
                frame = view[self._pos + LENGTH_BYTES : stop]
                self._next_buffer_bytes = min(stop - self._pos, PEER_BUFFER_KEPT_BYTES)
                self._pos = stop
                user.on_frame(self, frame)
                user = self._user
        except FrameRefused as error:
            self.abort(str(error))
        if self._user is not None:
            self._grow(buffer)

    def pause_writing(self) -> None:
        self.may_write = False

    def resume_writing(self) -> None:
        self.may_write = True
        if self._user is not None:
            self._user.on_may_write(self)

    def eof_received(self) -> bool:
        self._reason = self._reason or "it closed the connection"
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        user, self._user, self._transport = self._user, None, None
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None
        if user is not None:
            user.on_lost(self, self._reason or (str(exc) if exc is not None else "it closed the connection"))

    # --- received bytes ----------------------------------------------------------------------------------------------

    def _grow(self, buffer: ReceiveBuffer) -> None:
        """Keep the beginning of the next reply, in a larger buffer if its rest needs one; give back what is empty."""
        pos, end = self._pos, self._end
        if pos == end:
            buffer.release()
            self._buffer = None
            return
        whole = frame_bytes(buffer.view, pos, end)
        if end < buffer.capacity and (not pos or pos + whole <= buffer.capacity):
            return
        unserved = end - pos
        self._buffer = bigger = self._pool.take(buffer_size_for(buffer.view, pos, end))
        bigger.view[:unserved] = buffer.view[pos:end]
        buffer.release()
        self._pos, self._end = 0, unserved

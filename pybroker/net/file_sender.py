"""Replies with long records: the kernel sends them from the page cache, and the process copies none of their bytes.

Owns: the parts of a connection's replies that its socket has not taken yet, once one of them is a long view of a mapped
file.  Owns when its peer counts as taking none.  Does not own what a part is (``outbox``), the map nor the file's
descriptor (``SendableMap``).  A connection with TLS has none, because its bytes are encrypted first.

Invariants
- Bytes leave in the order in which they were handed over.  Nothing goes this way while the transport has something
  unsent, and nothing goes by the transport while parts wait here.
- A view whose file cannot be sent from any more is copied as ever.

A connection that takes long replies alone gets copies as ever.  The processor that copies them has nothing else to do,
and what it has copied lies in the caches for the reader.  Over loopback such a reader took 1.2 to 1.4 times as much.
With eight of them the copies fill the one processor of the loop, and without them it has a third of it left.

What is written to is a second descriptor of the socket, because the loop refuses to wait for one that a transport has.
It is there only while parts wait.

Kafka counterpart: PlaintextTransportLayer.transferFrom.  ``python -m bench.bulk_send`` says what it saves.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from pybroker import limits

if TYPE_CHECKING:
    from collections.abc import Sequence

# Shorter parts are copied: what a call for each costs would outweigh the copy.
FILE_BYTES_MIN = 64 << 10
# A connection that took so many in a row is alone.
LONE_REPLIES = 8
# What one connection sends before others have their turn.
SENT_AT_ONCE_BYTES = 4 << 20
# What Linux has; elsewhere nothing goes this way, because it was measured nowhere else.
_MORE_COMES = getattr(socket, "MSG_MORE", 0)
_RESUMED_BYTES = limits.UNSENT_BYTES // 4


class LongReplies:
    """Which connection takes the long replies of late, over all connections."""

    __slots__ = ("_in_a_row", "_last")

    def __init__(self) -> None:
        self._last: object = None
        self._in_a_row = 0

    def is_taken_alone(self, by: object) -> bool:
        """Whether the one that is about to be sent, and those before it, are all of one connection."""
        self._in_a_row = self._in_a_row + 1 if by is self._last else 0
        self._last = by
        return self._in_a_row >= LONE_REPLIES

    def forget(self, taker: object) -> None:
        """It is gone."""
        if self._last is taker:
            self._last = None


class SendableMap(Protocol):
    """A mapped file that a socket can take bytes from."""

    def position_of(self, view: memoryview) -> int:
        """Where a view of the map begins in the file; -1 where the file cannot be sent from."""
        ...

    def send(self, socket_fd: int, position: int, length: int) -> int:
        """How many of these bytes the socket took, and -1 where the file cannot be sent from any more.

        Raises BlockingIOError for none, and OSError.
        """
        ...


class Writer(Protocol):
    """The connection whose replies they are."""

    def pause_writing(self) -> None:
        """Its peer takes no replies."""
        ...

    def resume_writing(self) -> None:
        """It takes them again."""
        ...


class _Part(NamedTuple):
    view: memoryview
    file: SendableMap | None  # of which it is a long view, that begins at ``position``
    position: int


def file_sender_of(transport: asyncio.Transport, writer: Writer, long_replies: LongReplies) -> FileSender | None:
    """One for the connection, or None where its bytes do not go to a socket as they are."""
    if not _MORE_COMES or getattr(transport, "encrypts", False):
        return None
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0 or found.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    return FileSender(transport, found, writer, long_replies)


class FileSender:
    """``unsent_bytes``: of the parts that wait here."""

    __slots__ = (
        "_is_paused",
        "_long_replies",
        "_loop",
        "_parts",
        "_socket",
        "_theirs",
        "_transport",
        "_waits",
        "_writer",
        "unsent_bytes",
    )

    def __init__(self, transport: asyncio.Transport, theirs: Any, writer: Writer, long_replies: LongReplies) -> None:
        self._transport = transport
        self._theirs = theirs  # the transport's socket
        self._writer = writer
        self._long_replies = long_replies
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: socket.socket | None = None
        self._parts: deque[_Part] = deque()
        self._waits = self._is_paused = False
        self.unsent_bytes = 0

    def takes(self, parts: Sequence[Any]) -> bool:
        """Whether these parts go this way, and they are sent as far as the socket takes them."""
        if not self.unsent_bytes:
            if not any(_is_of_a_file(part) for part in parts) or self._transport.get_write_buffer_size():
                return False
            if self._long_replies.is_taken_alone(self):
                return False
            try:
                self._open()
            except OSError:  # no descriptor is free
                return False
        for part in parts:
            self._parts.append(_part_of(part))
            self.unsent_bytes += len(part)
        if self._waits:
            self._tell_writer()
        else:
            self._send()
        return True

    def hand_over(self) -> None:
        """What is left goes by the transport, before that is closed."""
        rest = [part.view for part in self._parts]
        self.clear()
        if rest:
            self._transport.writelines(rest)

    def clear(self) -> None:
        """Forget what is left."""
        self._long_replies.forget(self)
        self._parts.clear()
        self.unsent_bytes = 0
        self._close()

    def _open(self) -> None:
        theirs = self._theirs
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(theirs.family, theirs.type, theirs.proto, fileno=os.dup(theirs.fileno()))
        self._socket.setblocking(False)

    def _close(self) -> None:
        if self._socket is None:
            return
        if self._waits:
            assert self._loop is not None
            self._loop.remove_writer(self._socket)
            self._waits = False
        self._socket.close()
        self._socket = None

    def _send(self) -> None:
        """Send on, until the socket takes no more, others are due or nothing is left."""
        to, parts, left = self._socket, self._parts, SENT_AT_ONCE_BYTES
        assert to is not None
        assert self._loop is not None
        try:
            while parts and left > 0:
                view, file, position = parts[0]
                length = min(len(view), left)
                if file is None:
                    sent = to.send(view[:length], 0 if len(parts) == 1 else _MORE_COMES)
                elif (sent := file.send(to.fileno(), position, length)) <= 0:
                    parts[0] = _Part(view, None, 0)  # the view is good whatever became of the file
                    continue
                self.unsent_bytes -= sent
                left -= sent
                if sent == len(view):
                    parts.popleft()
                else:
                    parts[0] = _Part(view[sent:], file, position + sent)
                if sent < length:
                    break  # the socket is full
        except BlockingIOError:
            pass
        except OSError:
            self.clear()
            self._transport.abort()
            return
        if not parts:
            self._close()
        elif not self._waits:
            try:
                self._loop.add_writer(to, self._send)
            except (OSError, RuntimeError):  # the loop cannot wait for one more
                self.hand_over()
                return
            self._waits = True
        self._tell_writer()

    def _tell_writer(self) -> None:
        """At the end, because the connection may go on at once, and hand over more."""
        if self.unsent_bytes > limits.UNSENT_BYTES:
            if not self._is_paused:
                self._is_paused = True
                self._writer.pause_writing()
        elif self._is_paused and self.unsent_bytes <= _RESUMED_BYTES:
            self._is_paused = False
            self._writer.resume_writing()


def _part_of(part: Any) -> _Part:
    view = memoryview(part)
    if _is_of_a_file(part):
        file = cast("SendableMap", view.obj)
        if (position := file.position_of(view)) >= 0:
            return _Part(view, file, position)
    return _Part(view, None, 0)


def _is_of_a_file(part: Any) -> bool:
    return len(part) >= FILE_BYTES_MIN and type(part) is memoryview and hasattr(part.obj, "position_of")

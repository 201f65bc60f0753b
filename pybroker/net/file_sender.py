"""Replies with long records: the kernel sends them from the page cache, and the process copies none of their bytes.

Owns: the parts of a connection's replies that its socket has not taken yet, once one of them was long and a view of a
mapped file, and when its peer counts as taking none.  Does not own what a part is (``outbox``), the map nor the file's
descriptor (``SendableMap``), and no connection with TLS, whose bytes are encrypted first.

Invariants
- Nothing goes this way while the transport has something unsent, and nothing goes by the transport while parts wait
  here: bytes leave in the order in which they were handed over.
- A view whose file cannot be sent from any more is copied as ever.

The transport's own descriptor belongs to the loop, which lets nobody else wait for it, so that a second one of the same
socket is what is written to.  It is there only while parts wait.

Kafka counterpart: PlaintextTransportLayer.transferFrom.  ``python -m bench.bulk_send`` says what it saves.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from pybroker import limits

if TYPE_CHECKING:
    from collections.abc import Sequence

# Shorter parts are copied: what a call for each costs would outweigh the copy.
FILE_BYTES_MIN = 64 << 10
# What one connection sends before others have their turn.
SENT_AT_ONCE_BYTES = 4 << 20
_RESUMED_BYTES = limits.UNSENT_BYTES // 4


class SendableMap(Protocol):
    """A mapped file that a socket can take bytes from."""

    def position_of(self, view: memoryview) -> int:
        """Where a view of the map begins in the file; -1 where the file cannot be sent from."""
        ...

    def send(self, socket_fd: int, position: int, length: int) -> int:
        """How many of these bytes the socket took; BlockingIOError for none, and OSError."""
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
    file: SendableMap | None  # of which it is a long view


def file_sender_of(transport: asyncio.Transport, writer: Writer) -> FileSender | None:
    """One for the connection, or None where its bytes do not go to a socket as they are."""
    if sys.platform != "linux" or getattr(transport, "encrypts", False):
        return None
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0 or found.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    return FileSender(transport, found, writer)


class FileSender:
    """``unsent_bytes``: of the parts that wait here."""

    __slots__ = (
        "_is_paused",
        "_loop",
        "_parts",
        "_socket",
        "_theirs",
        "_transport",
        "_waits",
        "_writer",
        "unsent_bytes",
    )

    def __init__(self, transport: asyncio.Transport, theirs: Any, writer: Writer) -> None:
        self._transport = transport
        self._theirs = theirs  # the transport's socket
        self._writer = writer
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
            try:
                self._open()
            except OSError:  # no descriptor is free
                return False
        for part in parts:
            view = memoryview(part)
            self._parts.append(_Part(view, cast("SendableMap", view.obj) if _is_of_a_file(part) else None))
            self.unsent_bytes += len(view)
        if not self._waits:
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
        assert self._socket is not None
        assert self._loop is not None
        parts, left = self._parts, SENT_AT_ONCE_BYTES
        try:
            while parts and left > 0:
                view, file = parts[0]
                sent = self._send_part(self._socket, view, file, is_last=len(parts) == 1)
                self.unsent_bytes -= sent
                left -= sent
                if sent == len(view):
                    parts.popleft()
                else:  # of a file that ends before its map nothing is sent, and the view knows no better
                    parts[0] = _Part(view[sent:], file if sent else None)
        except BlockingIOError:
            pass
        except OSError:
            self.clear()
            self._transport.abort()
            return
        if not parts:
            self._close()
        elif not self._waits:
            self._waits = True
            self._loop.add_writer(self._socket, self._send)
        self._tell_writer()

    @staticmethod
    def _send_part(to: socket.socket, view: memoryview, file: SendableMap | None, *, is_last: bool) -> int:
        if file is not None and (position := file.position_of(view)) >= 0:
            return file.send(to.fileno(), position, len(view))
        return to.send(view, 0 if is_last else socket.MSG_MORE)

    def _tell_writer(self) -> None:
        """At the end, because the connection may go on at once, and hand over more."""
        if self.unsent_bytes > limits.UNSENT_BYTES:
            if not self._is_paused:
                self._is_paused = True
                self._writer.pause_writing()
        elif self._is_paused and self.unsent_bytes <= _RESUMED_BYTES:
            self._is_paused = False
            self._writer.resume_writing()


def _is_of_a_file(part: Any) -> bool:
    return len(part) >= FILE_BYTES_MIN and type(part) is memoryview and hasattr(part.obj, "position_of")

"""Replies on their way from handlers to the transport.

Owns: encoding a response behind its header, and handing what a turn produced to the transport in as few buffers as
pays.  Does not own the order of replies (``reply_order``) nor what the peer has not taken yet (the transport, and of
replies with long records ``file_sender``).

Invariant: a buffer handed to the transport is never written to again.

Replies leave as each connection is served. To send those of a turn of the loop together was measured and lost. Sent at
its end, tiny requests over eight connections came to 0.9 of the rate. Their p99 at a fixed rate was half as long again,
though a quarter lower in a closed loop. The first at once and the others at the end came to 0.9 as well.

Kafka counterpart: NetworkSend and the response part of RequestChannel.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from pybroker.net.file_sender import file_sender_of

if TYPE_CHECKING:
    import asyncio

    from pybroker.net.dispatch import ServedApi
    from pybroker.net.file_sender import FileSender, LongReplies, Writer

# Replies shorter than this are joined into one buffer before they go to the transport: a vectored write has a
# cost per buffer.
JOIN_BYTES = 16 << 10

_REPLY_HEADER = struct.Struct(">ii").pack
_FLEXIBLE_REPLY_HEADER = struct.Struct(">iib").pack


class EncodedReply:
    """A response as the buffers that its encoder made of it; the first is the place of the header."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts


class EncodedReplies:
    """The replies to several requests, whole and in order, and their bytes."""

    __slots__ = ("replies", "size")

    def __init__(self, replies: list[bytes]) -> None:
        self.replies = replies
        self.size = sum(map(len, replies))


def whole_reply(api: ServedApi, correlation_id: int, response: Any) -> bytes:
    """A reply as one buffer, header and all; raises whatever its encoder raises."""
    outbox = Outbox()
    outbox.add(api, correlation_id, response)
    return b"".join(outbox.parts)


class Outbox:
    """What one connection sends at the end of its turn: ``parts``, of ``size`` bytes without the headers.

    ``writer``: the connection, where its long records may be sent from their files.
    """

    __slots__ = ("_file_sender", "_long_replies", "_writer", "parts", "size")

    def __init__(self, writer: Writer | None = None, long_replies: LongReplies | None = None) -> None:
        self.parts: list[Any] = []
        self.size = 0
        self._writer = writer
        self._long_replies = long_replies
        self._file_sender: FileSender | None = None  # made for the first long reply

    @property
    def unsent_bytes(self) -> int:
        """What the peer has yet to take, beside what the transport has."""
        return 0 if self._file_sender is None else self._file_sender.unsent_bytes

    def add(self, api: ServedApi, correlation_id: int, response: Any) -> None:
        """Encode a reply behind those that wait for the end of this turn; raises whatever its encoder raises."""
        parts: list[Any] = [b""]
        if response.__class__ is EncodedReply:
            parts = response.parts
        elif response.__class__ is EncodedReplies:
            self.add_encoded(response.replies, response.size)
            return
        else:
            api.encode(response, parts)
        size = sum(map(len, parts))
        if api.flexible_reply:
            parts[0] = _FLEXIBLE_REPLY_HEADER(size + 5, correlation_id, 0)
        else:
            parts[0] = _REPLY_HEADER(size + 4, correlation_id)
        self.parts += parts
        self.size += size

    def add_encoded(self, replies: list[bytes], size: int) -> None:
        """Replies that are whole, header and all, and their bytes."""
        self.parts += replies
        self.size += size

    def flush(self, transport: asyncio.Transport) -> None:
        """Hand everything to the transport: short replies joined, long views as they are."""
        parts, self.parts = self.parts, []
        size, self.size = self.size, 0
        if transport.is_closing():
            return
        sender = self._file_sender
        if size <= JOIN_BYTES and (sender is None or not sender.unsent_bytes):
            transport.write(b"".join(parts) if len(parts) > 1 else parts[0])
            return
        if sender is None and self._writer is not None and self._long_replies is not None:
            sender = self._file_sender = file_sender_of(transport, self._writer, self._long_replies)
        joined = _joined(parts)
        if sender is None or not sender.takes(joined):
            transport.writelines(joined)

    def hand_over(self) -> None:
        """Leave all that is unsent to the transport, which is about to be closed."""
        if self._file_sender is not None:
            self._file_sender.hand_over()

    def clear(self) -> None:
        """The peer is gone."""
        self.parts.clear()
        if self._file_sender is not None:
            self._file_sender.clear()
        self._file_sender = self._writer = None


def _joined(parts: list[Any]) -> list[Any]:
    """Neighbours that are short become one buffer, because each buffer of a vectored write costs something."""
    joined: list[Any] = []
    short: list[Any] = []
    for part in parts:
        if len(part) < JOIN_BYTES:
            short.append(part)
            continue
        if short:
            joined.append(b"".join(short))
            short = []
        joined.append(part)
    if short:
        joined.append(b"".join(short))
    return joined

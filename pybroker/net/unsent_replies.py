"""The account of long replies that their peers have not taken yet, and who is closed when it is full.

Owns: which connections were sent a reply that was long in the making, and how much of it is still here. Such a reply is
fresh memory, of up to ``REPLY_BYTES_MAX``, that a request of a few bytes may have asked for. Records that a fetch sends
are pages of files, and are not counted. Does not own who waits for space (``long_requests``).

The rule: while a reply waits for space, connections that take less than ``SLOW_REPLY_BYTES_PER_S``, or need
more than ``SLOW_REPLY_MS`` for their reply, are closed, largest first, until there is space.  While no reply
waits the sweep for stalled peers is enough.

Kafka counterpart: none; a reply waits in its channel for as long as its client likes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from pybroker import limits

if TYPE_CHECKING:
    from pybroker.env import Clock

# While replies wait for space, a connection that takes less than this, or needs longer for its reply, is closed.
SLOW_REPLY_BYTES_PER_S = 32 << 10
SLOW_REPLY_MS = 20_000


class ReplyTaker(Protocol):
    """What replies are sent over: a connection."""

    @property
    def unsent_bytes(self) -> int:
        """What its peer has yet to take of its replies."""
        ...

    def give_up(self, reason: str) -> None:
        """It has to go, and what it was sent."""
        ...


class _Sent(NamedTuple):
    """What a connection had to take, and since when."""

    size: int
    at_ms: int


class UnsentReplies:
    __slots__ = ("_clock", "_sent")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[ReplyTaker, _Sent] = {}

    def add(self, connection: ReplyTaker) -> None:
        """A long reply was handed to the connection's transport."""
        if size := connection.unsent_bytes:
            self._sent[connection] = _Sent(size, self._clock.monotonic_ms())

    def forget(self, connection: ReplyTaker) -> None:
        """The connection is gone, and what it was sent."""
        self._sent.pop(connection, None)

    def has_capacity(self) -> bool:
        """Whether a further long reply may be made."""
        if not self._sent:
            return True
        self._sent = {connection: sent for connection, sent in self._sent.items() if connection.unsent_bytes}
        return sum(connection.unsent_bytes for connection in self._sent) < limits.UNSENT_REPLIES_BYTES

    def close_slow(self) -> None:
        """Requests wait for space: close those that take too little, as far as needed."""
        now_ms = self._clock.monotonic_ms()
        slow = [connection for connection, sent in self._sent.items() if _is_slow(connection, sent, now_ms)]
        for connection in sorted(slow, key=lambda connection: connection.unsent_bytes, reverse=True):
            if self.has_capacity():
                break
            connection.give_up("unsent replies fill the memory for them, and it takes too little of its own")
            self.forget(connection)


def _is_slow(connection: ReplyTaker, sent: _Sent, now_ms: int) -> bool:
    waited_ms = now_ms - sent.at_ms
    taken_bytes = sent.size - connection.unsent_bytes
    due_bytes = max(sent.size * waited_ms // SLOW_REPLY_MS, SLOW_REPLY_BYTES_PER_S * waited_ms // 1_000)
    return waited_ms >= limits.SLOW_FRAME_MS and taken_bytes < due_bytes

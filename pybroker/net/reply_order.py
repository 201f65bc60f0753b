"""The order of replies: they leave in the order of their requests, however late the first of them comes.

Owns: the places of replies that wait, in order, and the one exception to the rule that nothing is started behind a
request that waits: Produce behind Produce, within bounds.  Those are appended at once and answered in order (not behind
one that waits for the transaction coordinator before it is appended).  A Produce without a reply (acks=0) that is not
written yet waits among them, so that its client is read no further than any other.
Does not own the sending (``outbox``) nor what a request waits for (``handlers.context.Parked``).

Kafka counterpart: the muting of KafkaChannel, which knows no exception.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from pybroker.net.dispatch import PRODUCE_KEY
from pybroker.net.framing import LENGTH_BYTES

if TYPE_CHECKING:
    from pybroker.handlers.context import Parked
    from pybroker.net.dispatch import ServedApi

# Produce requests that may wait for the disk behind one another on one connection; clients have 5 in flight.
PIPELINED_PRODUCE_REQUESTS = 128
PIPELINED_PRODUCE_BYTES = 64 << 20

_KEY_BYTES = 2


class Replier(Protocol):
    """The sender of replies, now or in their turn."""

    def reply(self, api: ServedApi, correlation_id: int, response: Any) -> None:
        """Send a response, behind those that wait."""
        ...

    def park(self, api: ServedApi, correlation_id: int, parked: Parked, frame_bytes: int) -> None:
        """Keep the place of a reply that comes later."""
        ...


class ReplySender(Protocol):
    """The part that is called when a reply which was waited for is there."""

    def on_reply_ready(self) -> None: ...


class WaitingReply:
    """A place in the order of replies, kept until its response is there."""

    __slots__ = ("_sender", "api", "correlation_id", "done", "frame_bytes", "parked", "response")

    def __init__(
        self, sender: ReplySender, api: ServedApi, correlation_id: int, parked: Parked | None, frame_bytes: int
    ) -> None:
        self._sender = sender
        self.api = api
        self.correlation_id = correlation_id
        self.parked = parked
        self.frame_bytes = frame_bytes
        self.done = False
        self.response: Any = None

    def deliver(self, response: Any) -> None:
        """The response is there."""
        self.response = response
        self.done = True
        self._sender.on_reply_ready()


class ReplyOrder:
    """The places of one connection; ``waiting`` is empty, or None, while every reply has left."""

    __slots__ = ("_frame_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[WaitingReply] | None = None  # until the first wait: a deque is most of an idle connection
        self._frame_bytes = 0

    @property
    def frame_bytes(self) -> int:
        """The lengths of the requests that are waited for."""
        return self._frame_bytes

    def add(
        self, sender: ReplySender, api: ServedApi, correlation_id: int, parked: Parked | None, frame_bytes: int
    ) -> WaitingReply:
        """Keep the last place for a reply, until its response is delivered."""
        reply = WaitingReply(sender, api, correlation_id, parked, frame_bytes)
        if self.waiting is None:
            self.waiting = deque()
        self.waiting.append(reply)
        self._frame_bytes += frame_bytes
        return reply

    def next_ready(self) -> WaitingReply | None:
        """The first reply, if it is there: it has no place any more."""
        waiting = self.waiting
        if not waiting or not waiting[0].done:
            return None
        reply = waiting.popleft()
        self._frame_bytes -= reply.frame_bytes
        return reply

    def give_up(self) -> list[WaitingReply]:
        """The peer is gone: the places as they were."""
        waiting, self.waiting = self.waiting, None
        return list(waiting or ())

    def may_overtake(self, view: memoryview, pos: int, stop: int) -> bool:
        """Whether the frame ``view[pos:stop]`` may be started while replies wait."""
        assert self.waiting, "nothing to overtake"
        last = self.waiting[-1]
        return (
            stop - pos >= LENGTH_BYTES + 2 * _KEY_BYTES
            and view[pos + LENGTH_BYTES] == 0
            and view[pos + LENGTH_BYTES + 1] == PRODUCE_KEY
            and last.api.api_key == PRODUCE_KEY
            and (last.parked is None or last.parked.completed or not last.parked.holds_back)
            and len(self.waiting) < PIPELINED_PRODUCE_REQUESTS
            and self._frame_bytes < PIPELINED_PRODUCE_BYTES
        )

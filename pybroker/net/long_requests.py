"""Requests that take longer than their connection's share of a turn, served in steps over many turns of the loop.

Owns: driving what is done in steps. These are the decoding of a large frame, a handler that is a generator, and the
encoding of what either of them leads to. All long requests have one share of a turn together, so that everybody else
waits for no more than that, however many there are. Does not own what a step is: ``codec`` stops after every few
elements, a handler wherever it yields.

Invariants: a request that is over in its connection's share is answered like any other and was never in a queue. One
that is not has its place in the order of replies, and nothing of its connection is started before its handler is done.
A large frame is held until it is decoded and handled. Few of them are under way at once, because a request that is
decoded takes a hundred times the memory of its bytes. In a crowd of long requests shorter frames count as large. So
does what has long been under way (``LARGE_REQUEST_SHARES``); and none goes on while peers leave too much of such
replies unsent (``unsent_replies``).

``TRANSITIONS`` has what becomes of a request.  Its client may go at any time: then nothing goes on or is waited for.

Counterpart in Kafka: none; there a request has a thread of its own for as long as it takes.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import StrEnum, auto
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol

from pybroker import limits
from pybroker.handlers.context import NO_REPLY, CloseConnection, Parked, RequestChannel, RequestContext
from pybroker.net.dispatch import FETCH_KEY, PRODUCE_KEY
from pybroker.net.outbox import EncodedReply
from pybroker.net.unsent_replies import ReplyTaker, UnsentReplies
from pybroker_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

    from pybroker.env import Cancellable, Env
    from pybroker.handlers.context import HeldRequest, Steps
    from pybroker.net.dispatch import ServedApi
    from pybroker.net.metering import Meter

# A request that has had so many shares of a turn is large: it has made two megabytes of objects by then.
LARGE_REQUEST_SHARES = 32

# A reply without records that was long in the making is no longer than this: what librdkafka takes at most, by default.
REPLY_BYTES_MAX = 100_000_000

# Where so many requests wait for their turns, shorter frames are large, too: what is made of one takes a hundred times
# its bytes (60 KB of empty group ids 5.6 MB), and a thousand connections may send one each.
MANY_LONG_REQUESTS = 16
WHOLE_FRAME_BYTES_AMONG_MANY = 8 << 10

log = logging.getLogger(__name__)

_MOSTLY_SHORT = frozenset((PRODUCE_KEY, FETCH_KEY))

# What a request is not yet answered with: it waits, or goes on in another turn.
UNFINISHED: Any = object()


class State(StrEnum):
    """Where a request stands.  A large one that is not WAITING is QUEUED or PLACED, any other one READY."""

    BEGUN = auto()  # in its connection's share of a turn; one that is over in it is in no queue
    WAITING = auto()  # a step waits for something; when that is there it goes on at once, for a share of the turn
    QUEUED = auto()  # for one of few places
    PLACED = auto()  # it has one, and a share of each turn, one after another with all others that have one
    READY = auto()  # the same, and needs no place
    OVER = auto()  # answered, failed, or its client is gone


# How its share of a turn has ended (SMALL and LARGE: it is out of time), or that there is a place for it.
Event = StrEnum("Event", "WAITS SMALL LARGE ADMITTED ENDED")
BEGUN, WAITING, QUEUED, PLACED, READY, OVER = State

# A pair with None is a bug of ours; a test walks all of them.
# fmt: off
_ROWS: Final[dict[Event, tuple[State | None, ...]]] = {
    #                BEGUN    WAITING  QUEUED  PLACED   READY    OVER
    Event.WAITS:    (WAITING, WAITING, None,   WAITING, WAITING, None),
    Event.SMALL:    (READY,   READY,   None,   None,    READY,   None),
    Event.LARGE:    (QUEUED,  QUEUED,  None,   PLACED,  QUEUED,  None),
    Event.ADMITTED: (None,    None,    PLACED, None,    None,    None),
    Event.ENDED:    (OVER,    OVER,    OVER,   OVER,    OVER,    None),
}
# fmt: on
TRANSITIONS: Final = {
    (state, event): after for event, row in _ROWS.items() for state, after in zip(State, row, strict=True) if after
}


class Requester(ReplyTaker, RequestChannel, Protocol):
    """What long requests come from: a connection."""

    @property
    def closed(self) -> bool: ...

    @property
    def meter(self) -> Meter | None: ...

    def serving(self, held: HeldRequest | None) -> AbstractContextManager[None]:
        """While a request goes on, its handler may hold the bytes that are held for it, and nothing is started."""
        ...

    def close(self) -> None:
        """The request failed."""
        ...


def decoded_and_handled(api: ServedApi, frame: memoryview, pos: int, context: RequestContext) -> Steps:
    """Decode a large frame in steps and hand the request to its handler."""
    request, end = yield from api.decode_in_steps(frame, pos)
    if end > len(frame):
        raise ProtocolError("the frame ends inside of its header")
    handled = api.handle(context, request)
    del request
    if handled.__class__ is GeneratorType:
        handled = yield from handled
    return handled


class LongRequest:
    """One request that is served in steps.  ``parked`` is what its connection waits by for the reply, if it has to."""

    __slots__ = (
        "_connection",
        "_frame_bytes",
        "_held",
        "_others",
        "_shares",
        "_steps",
        "_value",
        "api",
        "is_large",
        "parked",
        "state",
        "waits_for",
    )

    def __init__(
        self,
        others: LongRequests,
        connection: Requester,
        api: ServedApi,
        steps: Steps,
        frame_bytes: int,
        is_large: bool,
    ) -> None:
        self._others = others
        self.api = api
        self._frame_bytes = frame_bytes
        self.is_large = is_large  # in what it is made of: its frame, or what it has done
        self.state = BEGUN  # moved by ``LongRequests``
        self.parked = Parked()
        self._connection = connection
        self._steps: Generator[Parked | None, Any, Any] = self._answered(steps)
        self._held: HeldRequest | None = None
        self._shares = 0
        self._value: Any = None
        self.waits_for: Parked | None = None

    def _answered(self, steps: Steps) -> Steps:
        """What the steps lead to: a response, or, once that has taken long, its encoded form."""
        response = yield from steps
        if response.__class__ is not Parked:  # the handler is done then: what comes behind it may begin
            yield  # also what was one long step is encoded in steps
        if self.state is BEGUN:
            return response
        self._release()
        if response is None:
            return NO_REPLY
        if response.__class__ is Parked:
            response = yield response
        if response is None or response is NO_REPLY:
            return response
        meter = self._connection.meter
        if meter is not None:
            response = meter.throttled(self.api, response)
        parts: list[Any] = [b""]
        try:
            for size in self.api.encode_in_steps(response, parts):
                if size > REPLY_BYTES_MAX:
                    raise CloseConnection(f"the reply would be longer than {REPLY_BYTES_MAX} bytes")
                yield
        except ValueError as error:
            raise CloseConnection(f"the reply cannot be encoded: {error}") from error
        return EncodedReply(parts)

    def begin(self) -> Any:
        """Go on until the connection's share is over; the response, or UNFINISHED: then ``parked`` waits for it.

        Raises what the decoder and the handler raise.
        """
        connection = self._connection
        if not self.is_large or self._others.may_begin(self.api.api_key):
            try:
                self._go_on(self._others.now_ns() + limits.TIME_SLICE_NS)
            except StopIteration as end:
                return end.value
        if self.is_large:
            is_copy = self._frame_bytes <= limits.WHOLE_FRAME_BYTES
            self._held = connection.hold_copy(self._frame_bytes) if is_copy else connection.hold_request()
        self.parked.holds_back = True
        self.parked.on_abandon = self._abandon
        return UNFINISHED

    def wait_or_queue(self) -> None:
        """Called by the connection when ``parked`` is in the order of replies."""
        self._others.move(self, self._share_ended())

    def _share_ended(self) -> Event:
        if self.parked.abandoned:
            return Event.ENDED
        if self.waits_for is not None:
            return Event.WAITS
        return Event.LARGE if self.is_large else Event.SMALL

    def advance(self, ends_ns: int) -> Event:
        """Go on until ``ends_ns``, unless the client is gone."""
        if self.parked.abandoned:
            return Event.ENDED
        self._shares += 1
        if self._shares == LARGE_REQUEST_SHARES:
            self.is_large = True
        try:
            try:
                meter = self._connection.meter
                with self._connection.serving(self._held):
                    if meter is None:
                        self._go_on(ends_ns)
                    else:
                        meter.work(lambda: self._go_on(ends_ns))
            except StopIteration as end:
                self._complete(end.value)
                return Event.ENDED
        except (CloseConnection, ProtocolError) as error:
            self._connection.refuse(str(error))
            return Event.ENDED
        except Exception:  # other long requests wait for their turns
            log.exception("a long request failed; closing the connection of %s", self._connection)
            self._connection.close()
            return Event.ENDED
        return self._share_ended()

    def _go_on(self, ends_ns: int) -> None:
        """Step by step until time is over or something is waited for; raises StopIteration at the end."""
        steps, value, self._value, now_ns = self._steps, self._value, None, self._others.now_ns
        while True:
            waits_for = steps.send(value)
            value = None
            if waits_for is not None:
                if not waits_for.completed:
                    self.waits_for = waits_for
                    return
                value = waits_for.response
            if now_ns() > ends_ns:
                self._value = value
                return

    def resume(self, value: Any) -> None:
        """What was waited for is there."""
        self.waits_for = None
        self._value = value
        self._others.move(self, self.advance(self._others.now_ns() + limits.TIME_SLICE_NS))

    def _complete(self, response: Any) -> None:
        self._release()
        self.parked.complete(response)
        if self.is_large and not self._connection.closed:
            self._others.unsent.add(self._connection)

    def _release(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None

    def _abandon(self) -> None:
        """The client is gone: nothing goes on for it, and nothing is waited for."""
        self._release()
        waits_for, self.waits_for = self.waits_for, None
        try:
            if waits_for is not None:
                waits_for.abandon()
        finally:
            self._steps.close()


class LongRequests:
    """Those of all connections that wait for nothing but a turn, served one after another, in a share of each turn."""

    def __init__(self, env: Env) -> None:
        self.whole_frame_bytes = limits.WHOLE_FRAME_BYTES  # longer frames are large
        self.unsent = UnsentReplies(env.clock)
        self.now_ns = env.clock.monotonic_ns
        self._timers = env.timers
        self._ready: deque[LongRequest] = deque()
        self._places = limits.LARGE_REQUESTS_AT_ONCE
        self._waiting: deque[LongRequest] = deque()  # large ones, behind those that are under way
        self._is_scheduled = False
        self._look_timer: Cancellable | None = None

    def close(self) -> None:
        """Look after no request any more."""
        if self._look_timer is not None:
            self._look_timer.cancel()

    def may_begin(self, api_key: int) -> bool:
        """Whether a large request has its connection's share before it waits."""
        return len(self._waiting) < limits.LARGE_REQUESTS_BEGUN_MAX or api_key in _MOSTLY_SHORT

    def move(self, request: LongRequest, event: Event) -> None:
        """Have the request be where the table says; no more large ones are PLACED than there are places."""
        before, request.state = request.state, TRANSITIONS[request.state, event]
        if before is PLACED and request.state is not PLACED:
            self._places += 1
            self._admit()
        match request.state:
            case State.WAITING:
                assert request.waits_for is not None, "a step waits"
                request.waits_for.subscribe(request.resume)
            case State.QUEUED:
                self._waiting.append(request)
                self._admit()
            case State.PLACED | State.READY:
                self._let_go_on(request)

    def _admit(self) -> None:
        """Let large ones that wait go on, as far as there are places, and space for their replies."""
        while self._waiting and self._places and self.unsent.has_capacity():
            request = self._waiting.popleft()
            if request.parked.abandoned:
                self.move(request, Event.ENDED)
            else:
                self._places -= 1
                self.move(request, Event.ADMITTED)
        if self._waiting and self._look_timer is None:
            self._look_timer = self._timers.call_later(limits.SHORTAGE_LOOK_MS, self._look)

    def _look(self) -> None:
        """Requests wait: it may be for those that do not take their replies."""
        self._look_timer = None
        if not self.unsent.has_capacity():
            self.unsent.close_slow()
        self._admit()

    def _let_go_on(self, request: LongRequest) -> None:
        self._ready.append(request)
        if len(self._ready) >= MANY_LONG_REQUESTS:
            self.whole_frame_bytes = WHOLE_FRAME_BYTES_AMONG_MANY
        if not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_soon(self._turn)

    def _turn(self) -> None:
        """A share of each turn for all of them; a request that is not done goes behind the others."""
        ready, now_ns = self._ready, self.now_ns
        ends_ns = now_ns() + limits.TIME_SLICE_NS
        while ready:
            request = ready.popleft()
            self.move(request, request.advance(ends_ns))
            if now_ns() > ends_ns:
                break
        if len(ready) < MANY_LONG_REQUESTS:
            self.whole_frame_bytes = limits.WHOLE_FRAME_BYTES
        self._is_scheduled = bool(ready)
        if ready:
            self._timers.call_soon(self._turn)

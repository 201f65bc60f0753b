"""One client's connection: frames in, replies out, in order.

Owns: what the transport calls, in which order the parts below are asked, muting, and the ends that a connection may
have.  Does not own how bytes are kept (``inbox``) and cut into frames (``framing``), what a request means
(``requests``), the order of replies (``reply_order``), their encoding (``outbox``), or time (``connection_scheduler``).

Invariants
- While a reply is parked no later request is started, but for those that ``reply_order`` lets overtake.
- While a whole frame waits to be started nothing is read, and nothing is started while the peer takes no replies.
- Once the transport has said that it is lost nothing refers to the connection.

Kafka counterpart: KafkaChannel (muting, ordering), and Processor as far as it serves one channel.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from pybroker import limits
from pybroker.handlers.context import NO_REPLY
from pybroker.net.accepted_connection import AcceptedConnection, peer_host_of
from pybroker.net.connection_scheduler import TimeSlice
from pybroker.net.dispatch import PRODUCE_KEY
from pybroker.net.fast_paths import FastPaths
from pybroker.net.framing import LENGTH_BYTES, FrameRefused
from pybroker.net.inbox import OWN_BUFFER_BYTES, Inbox
from pybroker.net.muting import Muting
from pybroker.net.outbox import Outbox
from pybroker.net.peer_hangup import has_hung_up, is_hello_of_tls
from pybroker.net.reply_order import ReplyOrder
from pybroker.net.requests import Requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.env import Cancellable
    from pybroker.handlers.context import HeldRequest, Parked
    from pybroker.net.buffers import ReceiveBuffer
    from pybroker.net.dispatch import Dispatcher, ServedApi
    from pybroker.net.processor import Processor
    from pybroker.net.receive_budget import HeldCopy
    from pybroker.security.login import Login, Session

log = logging.getLogger(__name__)


# Ours come first: asyncio's class has a ``pause_writing`` that does nothing.
class Connection(Muting, AcceptedConnection, asyncio.BufferedProtocol):
    """One instance per accepted socket."""

    __slots__ = (
        "_current",
        "_fast_paths",
        "_goes_on_soon",
        "_has_served",
        "_inbox",
        "_outbox",
        "_processor",
        "_reading_paused",
        "_replies",
        "_requests",
        "_serving",
        "_session_timer",
        "_transport",
        "by_token",
        "client_software",
        "closed",
        "is_broker",
        "last_seen_sweep",
        "listener",
        "login",
        "peer_host",
        "principal",
        "time_slice",
    )

    def __init__(
        self,
        processor: Processor,
        listener: str,
        login: Login | None = None,
        principal: str = limits.ANONYMOUS,
    ) -> None:
        self._processor = processor
        super().__init__()
        self.listener = listener
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self._requests: Requests = None  # type: ignore[assignment]  # until connection_made
        self._inbox = Inbox(processor.framing, processor.budget)
        self._outbox = Outbox(self, processor.long_replies)
        self._replies = ReplyOrder()
        self._fast_paths = FastPaths(processor.framing)
        self.time_slice = TimeSlice(processor.now_ns)
        self._current: ReceiveBuffer | None = None  # holds the request that is being served
        self._serving = self._goes_on_soon = self._reading_paused = False
        self._has_served = False  # in this turn
        self.client_software = ("", "")
        self.is_broker = self.by_token = self.closed = False
        self.login = login
        self.principal = principal
        self._session_timer: Cancellable | None = None
        self.last_seen_sweep = processor.sweep
        self.peer_host = ""

    # --- the transport's callbacks ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not subclass asyncio's
        self.peer_host = peer_host_of(transport)
        processor = self._processor
        dispatcher = processor.dispatcher_of(self.listener, is_broker=False)
        self._requests = Requests(
            self, self.listener, processor.services, dispatcher, processor.long_requests, self._fast_paths
        )
        self._transport.set_write_buffer_limits(high=limits.UNSENT_BYTES)
        processor.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        inbox, processor = self._inbox, self._processor
        if inbox.buffer is None and not inbox.frame_bytes_expected and not processor.budget.is_tight:
            return processor.shared.view  # what ``space`` says as a rule, without the call
        return inbox.space(self, processor.shared)

    def buffer_updated(self, nbytes: int) -> None:
        processor = self._processor
        self.last_seen_sweep = processor.sweep
        time_slice, inbox = self.time_slice, self._inbox
        if time_slice.average_ns > limits.SHORT_SLICE_NS and processor.scheduler.is_full:
            self._put_off(nbytes)
            return
        begun_ns = time_slice.begin()
        if begun_ns > processor.gate.open_until_ns and not self.is_broker:
            self._receive(nbytes)
            processor.gate.wait(self)
            return
        if inbox.buffer is not None:
            inbox.received(nbytes)
            self._serve_own()
        else:
            shared = processor.shared
            pos = self._serve(shared, 0, nbytes)
            if pos < nbytes:
                inbox.keep(self, shared, pos, nbytes)
                self._read_on()
            if shared.holds > 1:
                processor.replace_shared()
            if processor.busy_poll is not None:
                processor.busy_poll.on_request(id(self), nbytes + self._outbox.size)
        if self._outbox.parts:
            self._outbox.flush(self._transport)
        used_ns = time_slice.end(begun_ns, self._has_served)
        self._has_served = False
        if used_ns > limits.SHORT_SLICE_NS:
            processor.scheduler.took(self, used_ns)

    def take_over(self, received: bytes) -> None:
        """Serve in its turn what came before this connection was there; no more is read behind a whole frame."""
        self._inbox.adopt(self, received)
        self._read_on()
        self._serve_on()

    def eof_received(self) -> bool:
        self._outbox.hand_over()  # the transport closes itself when it has sent what it has
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        for reply in self._replies.give_up():
            if reply.parked is not None:
                try:
                    reply.parked.abandon()
                except Exception:  # the processor still has to hear that we are gone
                    log.exception("a wait of %s could not be given up", self)
        self._inbox.release(self)
        self._outbox.clear()
        self._processor.long_requests.unsent.forget(self)
        self._processor.gate.forget(self)
        self._processor.remove(self)
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        self.measure(None)
        # Both refer to us: without them our memory goes at once, not when the garbage collector comes.
        self._fast_paths.forget()
        self._requests.forget()

    # --- what handlers may ask of a connection ---------------------------------------------------------------------

    def hold_request(self) -> ReceiveBuffer:
        """Keep the bytes of the request being served; the caller calls ``release()`` on the result, once."""
        assert self._current is not None, "only a request that is being served can be held"
        self._current.hold()
        return self._current

    def hold_copy(self, size: int) -> HeldCopy:
        """Have ``size`` bytes of a request count that the caller has copied; it calls ``release()`` once."""
        return self._processor.budget.count_copy(size)

    @contextmanager
    def serving(self, held: HeldRequest | None) -> Iterator[None]:
        """While a long request goes on, its handler may hold the bytes that are held for it, and nothing is started."""
        outer = self._current, self._serving
        self._current, self._serving = cast("ReceiveBuffer | None", held), True
        try:
            yield
        finally:
            self._current, self._serving = outer
            if not self._serving:
                self._flush()

    def login_began(self) -> None:
        """Nothing but the exchange is served."""
        self._serve_only(self._processor.logins.exchange)

    def logged_in(self, session: Session) -> None:
        """It is known who it is, until the session ends; then only a login anew is served.

        Who it is stays: ``principal`` came with the first login, and a login anew as another one fails (``Login``).
        """
        processor = self._processor
        self.is_broker, self.by_token = session.is_broker, session.by_token
        self.measure(self.meter)
        self._requests.serve_by(processor.dispatcher_of(self.listener, is_broker=session.is_broker))
        self._inbox.framing = processor.framing_of(self.listener, is_broker=session.is_broker)
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        if session.expires_at_ms is not None:
            left_ms = max(session.expires_at_ms - processor.clock.monotonic_ms(), 0)
            self._session_timer = processor.timers.call_later(left_ms, self._expire)

    def _expire(self) -> None:
        self._session_timer = None
        if self.login is not None and self.login.is_done():  # else a login anew has begun
            self._serve_only(self._processor.logins.expired)

    def login_failed(self, response: Any, reason: str) -> Parked:
        """Answer so after a while, and close; nothing behind it is served."""
        self.warn(reason)
        self._serve_only(self._processor.logins.nothing)
        return self._processor.logins.tell_late(response, self.close)

    def _serve_only(self, dispatcher: Dispatcher) -> None:
        self._fast_paths.current = None
        self._requests.serve_by(dispatcher)

    # --- serving ---------------------------------------------------------------------------------------------------

    def _serve(self, buffer: ReceiveBuffer, pos: int, end: int) -> int:
        """Serve whole frames of ``buffer[pos:end]``; gives back the position of the first byte to be kept."""
        view, begin = buffer.view, pos
        replies, fast_paths, inbox = self._replies, self._fast_paths, self._inbox
        self._current = buffer
        self._serving = True
        served = 0
        meter = self.meter
        serve = self._requests.serve if meter is None else meter.serve
        while end - pos >= LENGTH_BYTES and not self._is_held_up:
            fast_path = fast_paths.current
            if (
                fast_path is not None
                and (not replies.waiting or (fast_path.waits and self._may_overtake(view, pos, end)))
                and not (served and self.time_slice.is_over())
                and (meter is None or meter.lets_fast_path_serve(view, pos, end))
            ):
                pos, requests = fast_path.serve(view, pos, end, self._outbox)
                if meter is not None:
                    meter.fast_path_served(pos)
                if requests:
                    served += requests
                    continue
            try:
                stop = inbox.framing.end_of_frame(view, pos, end)
            except FrameRefused as error:
                self.refuse("a TLS client on a listener without TLS" if is_hello_of_tls(view[pos:end]) else str(error))
                break
            if not stop or (replies.waiting and not self._may_overtake(view, pos, stop)):
                break
            if served and self.time_slice.is_over():
                self.time_slice.cut_short()
                break
            serve(view[pos + LENGTH_BYTES : stop])
            pos = stop
            served += 1
            if self.closed:
                break
        self._serving = False
        self._current = None
        if served:
            self._has_served = True
            frame_bytes = (pos - begin) // served
            if frame_bytes >= OWN_BUFFER_BYTES or inbox.frame_bytes_expected:
                inbox.expect(frame_bytes)
        return end if self.closed else pos

    def _may_overtake(self, view: memoryview, pos: int, stop: int) -> bool:
        """Whether the frame may be started while replies wait; what waits must not fill the memory for others."""
        budget = self._processor.budget
        return self._replies.may_overtake(view, pos, stop) and budget.bytes_counted <= budget.pipelined_bytes_max

    def _serve_own(self) -> None:
        """Serve what we keep, then let go of it or read on behind it."""
        inbox = self._inbox
        buffer = inbox.buffer
        if buffer is None or self.closed:
            return
        inbox.served(self, self._serve(buffer, *inbox.unserved))
        self._read_on()

    def _serve_on(self) -> None:
        """Go on after something that held us up is over: a parked reply, or a full socket."""
        time_slice, scheduler = self.time_slice, self._processor.scheduler
        if time_slice.is_awaited or self._serving or self.closed:
            return
        if not self.holds_whole_frame():
            self._serve_own()
        elif time_slice.average_ns > limits.SHORT_SLICE_NS:
            scheduler.wait(self)
        else:
            used_ns = self.run_slice()
            if used_ns > limits.SHORT_SLICE_NS:
                scheduler.took(self, used_ns)
        self._flush()

    def go_on(self) -> None:
        """Called by the gate when it opens."""
        self._serve_on()

    def run_slice(self) -> int:
        """Called by ``ConnectionScheduler`` when our turn has come: serve what waits; the result is its ns."""
        begun_ns = self.time_slice.begin()
        if begun_ns > self._processor.gate.open_until_ns and not self.is_broker:
            self._processor.gate.wait(self)
            return 0
        self._serve_own()
        self._flush()
        used_ns = self.time_slice.end(begun_ns, self._has_served)
        self._has_served = False
        return used_ns

    def _put_off(self, nbytes: int) -> None:
        """Keep what was received until it is our turn; an unfinished frame needs none to read on."""
        self._receive(nbytes)
        if self._inbox.holds_whole_frame():
            self._processor.scheduler.wait(self)

    def _receive(self, nbytes: int) -> None:
        """Keep what was received, and serve nothing of it."""
        inbox = self._inbox
        if inbox.buffer is None:
            inbox.keep(self, self._processor.shared, 0, nbytes)
        else:
            inbox.received(nbytes)
        self._read_on()

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def unserved_bytes(self) -> int:
        """What is received of the next frame, and of those behind it."""
        return self._inbox.unserved_bytes

    def holds_whole_frame(self) -> bool:
        """Whether the unserved bytes hold a frame that only waits to be started, or refused."""
        return self._inbox.holds_whole_frame()

    def _read_on(self) -> None:
        """Read from the socket, but for when a whole frame waits already or there is no space for the rest of one."""
        wanted = (self.meter is None or not self.meter.is_muted) and self._inbox.may_read_on(self)
        if wanted == self._reading_paused and not self._transport.is_closing():
            self._reading_paused = not wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def read_again(self) -> None:
        """Called by the budget when there is space for received bytes again."""
        if not self.closed:
            self._read_on()

    # --- replying --------------------------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        """What its peer has yet to take of its replies."""
        return self._transport.get_write_buffer_size() + self._outbox.unsent_bytes

    def reply(self, api: ServedApi, correlation_id: int, response: Any) -> None:
        """Send a response, behind those that wait."""
        if self._replies.waiting:
            self._replies.add(self, api, correlation_id, None, 0).deliver(response)
        else:
            self._send(api, correlation_id, response)

    def park(self, api: ServedApi, correlation_id: int, parked: Parked, frame_bytes: int) -> None:
        """Keep the place of a reply that comes later."""
        parked.subscribe(self._replies.add(self, api, correlation_id, parked, frame_bytes).deliver)

    def on_reply_ready(self) -> None:
        """A waiting reply is there: send it and those behind it that are there too, then go on serving.

        Where others wait behind it, several may be there in this turn (one high watermark acknowledges many produces):
        they leave with one write, at its end.
        """
        while (reply := self._replies.next_ready()) is not None:
            if reply.response is None:
                self.refuse("the request cannot be answered")
                return
            if reply.response is not NO_REPLY:
                self._send(reply.api, reply.correlation_id, reply.response)
        if self._serving:
            return
        if not self._replies.waiting:
            self._serve_on()
            self._flush()
        elif not self._goes_on_soon:
            self._goes_on_soon = True
            self._processor.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on_soon = False
        self._serve_on()
        self._flush()

    def _send(self, api: ServedApi, correlation_id: int, response: Any) -> None:
        """Send a reply at the end of this turn."""
        try:
            meter = self.meter
            self._outbox.add(api, correlation_id, response if meter is None else meter.throttled(api, response))
        except Exception:
            # Our own mistake; a client that hears nothing would wait for ever, and so would its later requests.
            log.exception("a reply to %s cannot be encoded", self)
            self.close()

    def _flush(self) -> None:
        if self._outbox.parts:
            self._outbox.flush(self._transport)

    # --- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close after what is already handed to the transport has been sent."""
        if not self._transport.is_closing():
            self._flush()
            self._outbox.hand_over()
        self.closed = True
        self.last_seen_sweep = self._processor.sweep
        self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        self.closed = True
        self._transport.abort()

    def give_up(self, reason: str) -> None:
        """Close at once, because of what the peer does not do, and keep nothing of what it sent."""
        super().give_up(reason)
        self._inbox.release(self)

    def look_after(self, idle_since_sweep: int) -> None:
        """Called by the server now and then: close the idle, the gone, and those that take nothing of their replies."""
        waiting = self._replies.waiting
        if self.closed:
            if self.last_seen_sweep < self._processor.sweep - 1:
                self._transport.abort()  # closing for more than a whole sweep, and the peer leaves what is left
        elif self._write_paused:
            if self._has_stalled(self.unsent_bytes):
                self.warn("it takes nothing of its replies")
                self.abort()
        elif waiting and self._reading_paused and waiting[0].api.api_key != PRODUCE_KEY:
            # What is behind a Produce is still to be written, whether anybody waits for a reply or not.
            if has_hung_up(self._transport):
                self.abort()
        elif self.last_seen_sweep < idle_since_sweep and not waiting:
            log.debug("closing the connection of %s: idle", self)
            self.close()

    def __str__(self) -> str:
        return f"{self.peer_host} (client {self._requests.client_id!r}, listener {self.listener})"

"""One client's connection: frames in, replies out, in order.

Owns: cutting received bytes into frames, the order of replies, muting, how long its turn takes, and back pressure in
both directions.  Does not own what a request means (``dispatch`` and the handlers do), nor when it is its turn
(``turns``).

Invariants
- Replies leave in the order of their requests.  While a reply is parked no later request is started, except
  Produce behind Produce: those are appended at once and answered in order through ``_waiting`` (not behind one that
  waits for the transaction coordinator before it is appended).  A Produce without a reply (acks=0) that is not
  written yet waits among them, so that its client is read no further than any other.
- An idle connection owns no buffer: it reads into the server's shared buffer, and only unserved bytes move to a
  buffer of its own, which grows as bytes arrive and is never sized by the length that the peer declares.
- A view of a request dies when its handler returns, unless the handler holds the buffer (``hold_request``).
- A buffer handed to the transport is never written to again.

Kafka counterpart: SocketServer's Processor and KafkaChannel (muting, ordering).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from contextlib import contextmanager
from time import monotonic_ns
from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from pybroker import limits
from pybroker.handlers.context import NO_REPLY, CloseConnection, Parked, RequestContext
from pybroker.net.dispatch import (
    API_VERSIONS_KEY,
    OFFSET_COMMIT_KEY,
    PRODUCE_KEY,
    ServedApi,
    UnknownApiKey,
    UnsupportedApiVersion,
)
from pybroker.net.hang_ups import has_hung_up
from pybroker.net.long_requests import UNFINISHED, EncodedReply, LongRequest, LongRequests, decoded_and_handled
from pybroker_protocol.codec import skip_tagged_fields
from pybroker_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.handlers.context import HeldRequest, Steps
    from pybroker.net.buffers import ReceiveBuffer
    from pybroker.net.commit_shortcut import CommitShortcut
    from pybroker.net.produce_shortcut import ProduceShortcut
    from pybroker.net.receive_budget import HeldCopy
    from pybroker.net.socket_server import Listener, SocketServer

log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i").unpack_from
_REQUEST_HEADER = struct.Struct(">Iih").unpack_from  # key and version as one number, correlation id, client id length
_REPLY_HEADER = struct.Struct(">ii").pack
_FLEXIBLE_REPLY_HEADER = struct.Struct(">iib").pack
_CLIENT_ID_AT = 10

_SHORTCUT_KEYS = frozenset((PRODUCE_KEY, OFFSET_COMMIT_KEY))
_SHORTCUT_PAUSE = 64  # requests between two shortcuts: making one costs more than a request

_OWN_BUFFER_BYTES = 64 << 10  # frames of so many are read into a buffer of their own
_TURNS_SHIFT = 2  # the last turn counts for a quarter
_NEWCOMERS_TURN_NS = limits.SHORT_TURN_NS + 1  # nobody knows yet: with one short turn it is trusted


class _WaitingReply:
    """A place in the order of replies, kept until its response is there."""

    __slots__ = ("api", "connection", "correlation_id", "done", "frame_bytes", "parked", "response")

    def __init__(
        self, connection: Connection, api: ServedApi, correlation_id: int, parked: Parked | None, frame_bytes: int
    ) -> None:
        self.connection = connection
        self.api = api
        self.correlation_id = correlation_id
        self.parked = parked
        self.frame_bytes = frame_bytes
        self.done = False
        self.response: Any = None

    def deliver(self, response: Any) -> None:
        self.response = response
        self.done = True
        self.connection.on_reply_ready()


class Connection(asyncio.BufferedProtocol):
    """See the module's docstring.  One instance per accepted socket."""

    __slots__ = (
        "_buffer",
        "_client_id",
        "_client_id_raw",
        "_context",
        "_current",
        "_end",
        "_frame_bytes_expected",
        "_has_served",
        "_last_unsent_bytes",
        "_listener",
        "_out",
        "_out_bytes",
        "_pos",
        "_reading_paused",
        "_server",
        "_serving",
        "_shortcut",
        "_shortcut_pause",
        "_stalled_sweeps",
        "_transport",
        "_turn_ends_ns",
        "_waiting",
        "_waiting_bytes",
        "_write_paused",
        "awaits_turn",
        "client_software",
        "closed",
        "is_cut_short",
        "is_newcomer",
        "last_seen_sweep",
        "peer_host",
        "time_used_ns",
        "turn_ns",
    )

    def __init__(self, server: SocketServer, listener: Listener) -> None:
        self._server = server
        self._listener = listener
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self._buffer: ReceiveBuffer | None = None
        self._current: ReceiveBuffer | None = None
        self._pos = 0
        self._end = 0
        self._frame_bytes_expected = 0
        self._client_id_raw = b""
        self._client_id: str | None = ""
        self._out: list[Any] = []
        self._out_bytes = 0
        self._waiting: deque[_WaitingReply] = deque()
        self._waiting_bytes = 0
        self._serving = False
        self._shortcut: ProduceShortcut | CommitShortcut | None = None
        self._shortcut_pause = 0
        self.is_newcomer = True  # until its first turn: nobody knows what it asks for
        self.turn_ns = _NEWCOMERS_TURN_NS  # what a turn has taken on the average of the last few
        self._turn_ends_ns = 0
        self._has_served = False
        self.awaits_turn = False  # kept by ``turns``, and so is the next
        self.time_used_ns = 0
        self.is_cut_short = False  # frames were left when our turn was over
        self._reading_paused = False
        self._write_paused = False
        self._last_unsent_bytes = 0
        self._stalled_sweeps = 0
        self.client_software = ("", "")
        self.closed = False
        self.last_seen_sweep = server.sweep
        self.peer_host = ""
        self._context: RequestContext = None  # type: ignore[assignment]  # until connection_made

    # --- the transport's callbacks ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not subclass asyncio's
        peer = transport.get_extra_info("peername")
        self.peer_host = f"/{peer[0]}" if peer else "/unknown"
        self._context = self._new_context()
        self._transport.set_write_buffer_limits(high=limits.UNSENT_BYTES)
        self._server.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        own = self._buffer
        if own is None:
            server = self._server
            expected = self._frame_bytes_expected
            if not expected or not server.budget.may_take(expected, expected > limits.LARGE_FRAME_BYTES):
                shared = server.shared.view
                return shared[: limits.FRAME_BUFFER_MIN_BYTES] if server.budget.is_tight else shared
            # After a large frame the next one is read straight into a buffer of its own, cut to the same length so
            # that a read never crosses into the frame behind it and nothing has to be moved.
            self._buffer = server.budget.take(self, expected, expected > limits.LARGE_FRAME_BYTES)
            self._pos = self._end = 0
            return self._buffer.view[:expected]
        frame_bytes = self._frame_bytes()
        if frame_bytes >= _OWN_BUFFER_BYTES:
            return own.view[self._end : min(own.capacity, self._pos + frame_bytes)]
        return own.view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        server = self._server
        self.last_seen_sweep = server.sweep
        if self.turn_ns > limits.SHORT_TURN_NS and server.turns.is_full:
            self._put_off(nbytes)
            return
        begun_ns = self._begin_turn()
        if self._buffer is not None:
            self._end += nbytes
            self._serve_own()
        else:
            shared = server.shared
            pos = self._serve(shared, 0, nbytes)
            if pos < nbytes and not self.closed:
                self._keep(shared, pos, nbytes)
            if shared.holds > 1:
                server.replace_shared()
            if server.busy_poll is not None:
                server.busy_poll.on_request(id(self), nbytes + self._out_bytes)
        if self._out:
            self._flush()
        used_ns = self._end_turn(begun_ns)
        if used_ns > limits.SHORT_TURN_NS:
            server.turns.took(self, used_ns)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._stalled_sweeps = 0
        self._serve_on()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        waiting, self._waiting = self._waiting, deque()
        for reply in waiting:
            if reply.parked is not None:
                try:
                    reply.parked.abandon()
                except Exception:  # the server still has to hear that we are gone
                    log.exception("a wait of %s could not be given up", self)
        self._release_own()
        self._out.clear()
        self._server.long_requests.unsent.forget(self)
        self._server.remove(self)
        # Both refer to us: without them our memory goes at once, not when the garbage collector comes.
        self._shortcut = None
        del self._context

    # --- what handlers may ask of a connection ---------------------------------------------------------------------

    def hold_request(self) -> ReceiveBuffer:
        """Keep the bytes of the request being served; the caller calls ``release()`` on the result, once."""
        assert self._current is not None, "only a request that is being served can be held"
        self._current.hold()
        return self._current

    def hold_copy(self, size: int) -> HeldCopy:
        """Have ``size`` bytes of a request count that the caller has copied; it calls ``release()`` once."""
        return self._server.budget.count_copy(size)

    # --- what a long request may ask of its connection -------------------------------------------------------------

    @property
    def long_requests(self) -> LongRequests:
        """Those of all connections."""
        return self._server.long_requests

    @contextmanager
    def serving(self, held: HeldRequest | None) -> Iterator[None]:
        """While a long request goes on, its handler may hold the bytes that are held for it, and nothing is started."""
        outer = self._current, self._serving
        self._current, self._serving = cast("ReceiveBuffer | None", held), True
        try:
            yield
        finally:
            self._current, self._serving = outer
            if self._out and not self._serving:
                self._flush()

    # --- receiving -------------------------------------------------------------------------------------------------

    def _serve(self, buffer: ReceiveBuffer, pos: int, end: int) -> int:
        """Serve whole frames of ``buffer[pos:end]``; gives back the position of the first unserved byte."""
        view = buffer.view
        frame_bytes_max = self._server.frame_bytes_max
        self._current = buffer
        self._serving = True
        served = size = 0
        while end - pos >= 4 and not self._write_paused:
            size = _LENGTH(view, pos)[0]
            if not 0 <= size <= frame_bytes_max:
                self.refuse(f"a frame of {size} bytes (at most {frame_bytes_max} are served)")
                break
            stop = pos + 4 + size
            if stop > end or (self._waiting and not self._may_overtake(view, pos, size)):
                break
            if served and monotonic_ns() > self._turn_ends_ns:
                self.is_cut_short = True
                break
            if self._shortcut is not None and not self._waiting:
                pos, requests, reply_bytes = self._shortcut.serve(view, pos, end, self._out)
                if requests:
                    served += requests
                    self._out_bytes += reply_bytes
                    continue
            self._dispatch(view[pos + 4 : stop])
            pos = stop
            served += 1
            if self.closed:
                break
        self._serving = False
        self._current = None
        if served:
            self._has_served = True
            self._frame_bytes_expected = size + 4 if size >= _OWN_BUFFER_BYTES and not self.closed else 0
        return pos

    def _may_overtake(self, view: memoryview, pos: int, size: int) -> bool:
        """Whether the frame may be started while replies wait: Produce behind Produce, within bounds."""
        last = self._waiting[-1]
        return (
            size >= 4
            and view[pos + 4] == 0
            and view[pos + 5] == PRODUCE_KEY
            and last.api.api_key == PRODUCE_KEY
            and (last.parked is None or last.parked.completed or not last.parked.holds_back)
            and len(self._waiting) < limits.PIPELINED_PRODUCE_REQUESTS
            and self._waiting_bytes < limits.PIPELINED_PRODUCE_BYTES
            and self._server.budget.bytes_counted <= self._server.budget.pipelined_bytes_max
        )

    def _serve_own(self) -> None:
        """Serve what stands in the buffer of our own, then let go of it or read on behind it."""
        if self._buffer is None or self.closed:
            return
        pos, self._pos = self._pos, self._serve(self._buffer, self._pos, self._end)
        if self._pos == self._end or self.closed:
            self._release_own()
        elif self._pos > pos:
            self._server.budget.on_frame_whole(self)
        self._read_on()

    def _serve_on(self) -> None:
        """Go on after something that held us up is over: a parked reply, or a full socket."""
        if self.awaits_turn or self._serving or self.closed:
            return
        if not self.holds_whole_frame():
            self._serve_own()
        elif self.turn_ns > limits.SHORT_TURN_NS:
            self._server.turns.wait(self)
        else:
            used_ns = self.next_turn()
            if used_ns > limits.SHORT_TURN_NS:
                self._server.turns.took(self, used_ns)
        if self._out:
            self._flush()

    # --- our turn --------------------------------------------------------------------------------------------------

    def next_turn(self) -> int:
        """Called by ``turns`` when our turn has come: serve what waits; gives back what that took in ns."""
        begun_ns = self._begin_turn()
        self._serve_own()
        if self._out:
            self._flush()
        return self._end_turn(begun_ns)

    def _begin_turn(self) -> int:
        begun_ns = monotonic_ns()
        self._turn_ends_ns = begun_ns + limits.TURN_NS
        self._has_served = self.is_cut_short = False
        return begun_ns

    def _end_turn(self, begun_ns: int) -> int:
        used_ns = monotonic_ns() - begun_ns
        if self._has_served:  # the pieces of a frame that is not whole yet are no turns
            self.turn_ns += (used_ns - self.turn_ns) >> _TURNS_SHIFT
            self.is_newcomer = False
        return used_ns

    def _put_off(self, nbytes: int) -> None:
        """Keep what was received until it is our turn; an unfinished frame needs none to read on."""
        if self._buffer is None:
            self._keep(self._server.shared, 0, nbytes)
        else:
            self._end += nbytes
            self._read_on()
        if self.holds_whole_frame():
            self._server.turns.wait(self)

    def holds_whole_frame(self) -> bool:
        """Whether the unserved bytes hold a frame that only waits to be started, or refused: nothing more is read."""
        if self._buffer is None:
            return False
        unserved = self._end - self._pos
        return (
            unserved >= 4
            and not unserved - 4 < _LENGTH(self._buffer.view, self._pos)[0] <= self._server.frame_bytes_max
        )

    @property
    def unserved_bytes(self) -> int:
        """What is received of the next frame, and of those behind it."""
        return self._end - self._pos

    @property
    def unsent_bytes(self) -> int:
        """What its peer has yet to take of its replies."""
        return self._transport.get_write_buffer_size()

    def _frame_bytes(self) -> int:
        """The length of the first unserved frame with its own, as far as that is known."""
        assert self._buffer is not None
        return 4 + int(_LENGTH(self._buffer.view, self._pos)[0]) if self._end - self._pos >= 4 else 4

    def _keep(self, shared: ReceiveBuffer, pos: int, end: int) -> None:
        """Move unserved bytes out of the shared buffer into one of our own."""
        unserved = end - pos
        is_large = unserved >= 4 and _LENGTH(shared.view, pos)[0] > limits.LARGE_FRAME_BYTES
        size = self._room_for(shared.view, pos, unserved)
        budget = self._server.budget
        # They are here already, and have to be kept; it is what comes that needs room.
        self._buffer = own = budget.take(self, size if budget.may_take(size, is_large) else unserved, is_large)
        own.view[:unserved] = shared.view[pos:end]
        self._pos = 0
        self._end = unserved
        self._read_on()

    @staticmethod
    def _room_for(view: memoryview, pos: int, unserved: int) -> int:
        """Bytes of a buffer for a frame of which ``unserved`` bytes are here: twice that, never the declared length."""
        room = max(2 * unserved, limits.FRAME_BUFFER_MIN_BYTES)
        if unserved >= 4:
            frame_bytes: int = 4 + _LENGTH(view, pos)[0]
            if unserved < frame_bytes < room:
                return frame_bytes
        return room

    def _make_room(self) -> bool:
        """Have room behind what we keep, in a larger buffer if need be; False if the budget has us wait for that."""
        own = self._buffer
        assert own is not None
        pos, unserved = self._pos, self._end - self._pos
        frame_bytes = self._frame_bytes()
        if self._end < own.capacity and (not pos or pos + frame_bytes <= own.capacity):
            return True
        size = self._room_for(own.view, pos, unserved)
        is_large = frame_bytes > limits.LARGE_FRAME_BYTES
        budget = self._server.budget
        if not budget.may_read_on(self, frame_bytes, frame_bytes - unserved, is_large):
            return False
        self._buffer = bigger = budget.take(self, size, is_large)
        bigger.view[:unserved] = own.view[pos : self._end]
        own.release()
        self._pos = 0
        self._end = unserved
        return True

    def _release_own(self) -> None:
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None
            self._server.budget.on_buffer_released(self)

    def _read_on(self) -> None:
        """Read from the socket, but for when a whole frame waits already or there is no room for the rest of one."""
        wanted = True
        if self._buffer is not None:
            if self.holds_whole_frame():
                wanted = False
                self._server.budget.on_frame_whole(self)
            else:
                wanted = self._make_room()
        if wanted == self._reading_paused and not self._transport.is_closing():
            self._reading_paused = not wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def read_again(self) -> None:
        """Called by the budget when there is room for received bytes again."""
        if not self.closed:
            self._read_on()

    # --- dispatching -----------------------------------------------------------------------------------------------

    def _dispatch(self, frame: memoryview) -> None:
        """Decode one request, run its handler, and send, park or drop the reply."""
        if len(frame) < _CLIENT_ID_AT:
            self.refuse(f"a request of {len(frame)} bytes has no header")
            return
        key_and_version, correlation_id, client_id_bytes = _REQUEST_HEADER(frame)
        served_apis = self._server.dispatcher.served
        context = self._context
        try:
            api = served_apis.get(key_and_version) or self._server.dispatcher.resolve(key_and_version)
            pos = _CLIENT_ID_AT + client_id_bytes if client_id_bytes > 0 else _CLIENT_ID_AT
            if frame[_CLIENT_ID_AT:pos] != self._client_id_raw or client_id_bytes <= 0:
                self._learn_client_id(frame, client_id_bytes)
            if api.flexible_request:
                pos = pos + 1 if frame[pos] == 0 else skip_tagged_fields(frame, pos)
            # Bytes behind the last field are ignored, as Kafka does: librdkafka's Metadata for all topics has three.
            is_large = len(frame) > self._server.long_requests.whole_frame_bytes
            if is_large:
                request, end = None, 0
                if len(frame) <= limits.WHOLE_FRAME_BYTES:
                    # Of a crowd each would hold a buffer that all share.
                    frame = memoryview(bytearray(frame))
            else:
                request, end = api.decode(frame, pos)
            if end > len(frame):
                raise ProtocolError("the frame ends inside of its header")
        except (ProtocolError, struct.error, IndexError, UnicodeDecodeError, UnknownApiKey) as error:
            self.refuse(str(error))
            return
        except UnsupportedApiVersion as error:
            self._answer_unsupported_version(error, correlation_id)
            return
        context.api_key = api.api_key
        context.api_version = api.api_version
        context.correlation_id = correlation_id
        context.client_id = self._client_id
        try:
            response = decoded_and_handled(api, frame, pos, context) if is_large else api.handle(context, request)
            if response.__class__ is GeneratorType:
                response = self._begin_long(api, correlation_id, response, len(frame), is_large)
        except (CloseConnection, ProtocolError) as error:
            self.refuse(str(error))
            return
        except Exception:
            log.exception("handler of %s failed; closing the connection of %s", request.__class__.__name__, self)
            self.close()
            return
        if response.__class__ is Parked:
            if not response.completed or response.response is None or response.response is NO_REPLY:
                self.park(api, correlation_id, response, len(frame))
                return
            response = response.response  # parked, but completed before the handler returned
        elif response is UNFINISHED:
            return
        elif api.api_key in _SHORTCUT_KEYS and response is not None and not is_large:
            self._learn_shortcut(api, request, response, frame)
        if response is not None:
            self.reply(api, correlation_id, response)

    def _begin_long(self, api: ServedApi, correlation_id: int, steps: Steps, frame_bytes: int, is_large: bool) -> Any:
        """Serve in steps for a share of this turn: what a handler returns, or UNFINISHED, and the rest comes later."""
        request = LongRequest(self, api, steps, frame_bytes, is_large)
        response = request.begin(monotonic_ns() + limits.TURN_NS)
        if response is UNFINISHED:
            self.park(api, correlation_id, request.place, frame_bytes)
            request.wait_or_queue()
        return response

    def reply(self, api: ServedApi, correlation_id: int, response: Any) -> None:
        """Send a response, behind those that wait."""
        if self._waiting:
            reply = _WaitingReply(self, api, correlation_id, None, 0)
            self._waiting.append(reply)
            reply.deliver(response)
        else:
            self._send(api, correlation_id, response)

    def _learn_shortcut(self, api: ServedApi, request: Any, response: Any, frame: memoryview) -> None:
        """Remember a request with one batch, or offsets, so that the next one like it is served the short way."""
        if self._shortcut_pause:
            self._shortcut_pause -= 1
            return
        if self._server.services.authorizer is not None:
            return  # the short ways ask for no permission
        if api.api_key == OFFSET_COMMIT_KEY:
            from pybroker.net.commit_shortcut import shortcut_of_commit

            self._shortcut_pause = _SHORTCUT_PAUSE
            services = self._server.services
            self._shortcut = shortcut_of_commit(self, api, services, request, response, frame)
            return
        if self._server.frame_bytes_max < 2 * limits.INLINE_WRITE_BYTES_MAX:
            return  # the short way looks at no frame's length
        topics = response.responses
        if len(topics) == 1 and len(topics[0].partition_responses) == 1:
            reply = topics[0].partition_responses[0]
            if not reply.error_code:
                from pybroker.net.produce_shortcut import shortcut_of

                self._shortcut_pause = _SHORTCUT_PAUSE
                self._shortcut = shortcut_of(api, self._server.services.replicas, request, frame)

    def park(self, api: ServedApi, correlation_id: int, parked: Parked, frame_bytes: int) -> None:
        """Keep the reply's place in the order; the context belongs to the parked request from now on."""
        reply = _WaitingReply(self, api, correlation_id, parked, frame_bytes)
        self._waiting.append(reply)
        self._waiting_bytes += frame_bytes
        self._context = self._new_context()
        parked.subscribe(reply.deliver)

    def on_reply_ready(self) -> None:
        """A waiting reply is there: send it and those behind it that are there too, then go on serving."""
        waiting = self._waiting
        while waiting and waiting[0].done:
            reply = waiting.popleft()
            self._waiting_bytes -= reply.frame_bytes
            if reply.response is None:
                self.refuse("the request cannot be answered")
                return
            if reply.response is not NO_REPLY:
                self._send(reply.api, reply.correlation_id, reply.response)
        if not self._serving:
            self._serve_on()
            if self._out:
                self._flush()

    def _learn_client_id(self, frame: memoryview, client_id_bytes: int) -> None:
        """Decode the header's client id; remembered, because a client sends the same one with every request."""
        if client_id_bytes <= 0:
            if client_id_bytes < -1:
                raise ProtocolError(f"a client id of {client_id_bytes} bytes")
            self._client_id_raw = b""
            self._client_id = "" if client_id_bytes == 0 else None
            return
        raw = bytes(frame[_CLIENT_ID_AT : _CLIENT_ID_AT + client_id_bytes])
        if len(raw) != client_id_bytes:
            raise ProtocolError("the frame ends inside of the client id")
        self._client_id = raw.decode()
        self._client_id_raw = raw

    def _new_context(self) -> RequestContext:
        context = RequestContext()
        context.services = self._server.services
        context.client_host = self.peer_host
        context.listener = self._listener.name
        context.principal = "User:ANONYMOUS"
        context.connection = self
        return context

    # --- replying --------------------------------------------------------------------------------------------------

    def _send(self, api: ServedApi, correlation_id: int, response: Any) -> None:
        """Encode a reply behind those that wait for the end of this turn."""
        parts: list[Any] = [b""]
        if response.__class__ is EncodedReply:
            parts = response.parts
        else:
            try:
                api.encode(response, parts)
            except Exception:
                # Our own mistake; a client that hears nothing would wait for ever, and so would its later requests.
                log.exception("a reply to %s cannot be encoded", self)
                self.close()
                return
        size = sum(map(len, parts))
        if api.flexible_reply:
            parts[0] = _FLEXIBLE_REPLY_HEADER(size + 5, correlation_id, 0)
        else:
            parts[0] = _REPLY_HEADER(size + 4, correlation_id)
        self._out += parts
        self._out_bytes += size

    def _flush(self) -> None:
        """Hand everything that this turn produced to the transport: short replies joined, long views as they are."""
        out, self._out = self._out, []
        size, self._out_bytes = self._out_bytes, 0
        if self._transport.is_closing():
            return
        if size <= limits.JOIN_BYTES:
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])
        else:
            self._transport.writelines(_joined(out))

    def _answer_unsupported_version(self, error: UnsupportedApiVersion, correlation_id: int) -> None:
        """ApiVersions in a version of the future gets error 35 in the oldest body; any other request, a closed door."""
        if error.api.key != API_VERSIONS_KEY:
            self.refuse(str(error))
            return
        api = self._server.dispatcher.resolve(API_VERSIONS_KEY << 16)
        from pybroker.handlers.api_versions import unsupported_version

        self._send(api, correlation_id, unsupported_version())

    # --- the end ---------------------------------------------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        """Close the connection because of what the peer sent, with one log line, or one for many of its kind."""
        if not self.closed:
            self._warn(reason)
            self.close()

    def _warn(self, reason: str) -> None:
        line = "closing the connection of %s: %s"
        self._server.folded_log.warning(self.peer_host, reason, line, self, reason)

    def close(self) -> None:
        """Close after what is already handed to the transport has been sent."""
        if self._out and not self._transport.is_closing():
            self._flush()
        self.closed = True
        self.last_seen_sweep = self._server.sweep
        self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        self.closed = True
        self._transport.abort()

    def give_up(self, reason: str) -> None:
        """Close at once, because of what the peer does not send, and keep nothing of what it did."""
        self.refuse(reason)
        self.abort()
        self._release_own()

    def look_after(self, idle_since_sweep: int) -> None:
        """Called by the server now and then: close the idle, the gone, and those that take nothing of their replies."""
        if self.closed:
            if self.last_seen_sweep < self._server.sweep - 1:
                self._transport.abort()  # closing for more than a whole sweep, and the peer leaves what is left
        elif self._write_paused:
            unsent = self.unsent_bytes
            self._stalled_sweeps = self._stalled_sweeps + 1 if unsent >= self._last_unsent_bytes else 0
            self._last_unsent_bytes = unsent
            if self._stalled_sweeps * limits.SWEEP_INTERVAL_MS >= limits.WRITE_STALL_MS:
                self._warn("it takes nothing of its replies")
                self.abort()
        elif self._waiting and self._reading_paused and self._waiting[0].api.api_key != PRODUCE_KEY:
            # What is behind a Produce is still to be written, whether anybody waits for a reply or not.
            if has_hung_up(self._transport):
                self.abort()
        elif self.last_seen_sweep < idle_since_sweep and not self._waiting:
            log.debug("closing the connection of %s: idle", self)
            self.close()

    def __str__(self) -> str:
        return f"{self.peer_host} (client {self._client_id!r}, listener {self._listener.name})"


def _joined(parts: list[Any]) -> list[Any]:
    """Neighbours that are short become one buffer, because each buffer of a vectored write costs something."""
    joined: list[Any] = []
    short: list[Any] = []
    for part in parts:
        if len(part) < limits.JOIN_BYTES:
            short.append(part)
            continue
        if short:
            joined.append(b"".join(short))
            short = []
        joined.append(part)
    if short:
        joined.append(b"".join(short))
    return joined

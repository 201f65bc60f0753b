"""A connection before its client has said who it is: SASL requests in, answers out, within small bounds.

Owns: the received bytes of the login, bare tokens (SaslHandshake 0), and the end of logins that fail or take too long.
It hands the socket over to a ``Connection`` once it is known who is there. Owns neither the order of steps
(``security/login``) nor what the requests mean (the handlers).

Invariants:
- Nothing but ApiVersions, SaslHandshake and SaslAuthenticate is decoded, and of no more bytes than
  ``sasl.server.max.receive.size``.
- Behind a failure nothing is served.
- The socket is handed over when the last answer of the login has left, which may be made in steps.
- After the login nothing of this refers to the connection.

Kafka counterpart: KafkaChannel before it is ready, with its SaslServerAuthenticator.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pybroker import limits
from pybroker.handlers.context import Parked
from pybroker.net.accepted_connection import AcceptedConnection, peer_host_of
from pybroker.net.connection import Connection
from pybroker.net.dispatch import API_VERSIONS_KEY
from pybroker.net.fast_paths import FastPaths
from pybroker.net.framing import LENGTH_BYTES, FrameRefused, Framing
from pybroker.net.outbox import Outbox
from pybroker.net.peer_hangup import is_hello_of_tls
from pybroker.net.reply_order import ReplyOrder
from pybroker.net.requests import Requests
from pybroker.security.login import Login, LoginFailed, Step
from pybroker.security.sasl import NotYet

if TYPE_CHECKING:
    from pybroker.handlers.context import HeldRequest
    from pybroker.net.dispatch import ServedApi
    from pybroker.net.processor import Processor
    from pybroker.security.login import Session

# A longer client id counts among the bytes that connections hold before their login (``limits.HALF_OPEN_BYTES_MAX``).
HALF_OPEN_CLIENT_ID_BYTES = 256

_LENGTH = struct.Struct(">i").pack


class _OwnBytes:
    """Frames are copied here, so that their holders need no count."""

    __slots__ = ()

    def release(self) -> None:
        pass


_OWN_BYTES = _OwnBytes()


class LoginConnection(AcceptedConnection, asyncio.BufferedProtocol):
    """One instance per accepted socket of a SASL listener."""

    __slots__ = (
        "_framing",
        "_outbox",
        "_processor",
        "_received",
        "_replies",
        "_requests",
        "_serving",
        "_session",
        "_transport",
        "client_software",
        "closed",
        "is_broker",
        "listener",
        "login",
        "peer_host",
        "principal",
    )

    meter: ClassVar[None] = None  # nobody is known yet whose quotas these would be
    by_token: bool = False

    def __init__(self, processor: Processor, listener: str, login: Login, receive_bytes_max: int) -> None:
        self._processor = processor
        self.listener = listener
        self._framing = Framing(receive_bytes_max)
        self._received = bytearray()
        self._outbox = Outbox()
        self._replies = ReplyOrder()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self._requests: Requests = None  # type: ignore[assignment]  # until connection_made
        self._serving = False
        self._session: Session | None = None
        self.login: Login | None = login
        self.principal = limits.ANONYMOUS
        self.client_software = ("", "")
        self.is_broker = False
        self.closed = False
        self.peer_host = ""

    # --- the transport's callbacks ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer_host = peer_host_of(transport)
        processor = self._processor
        self._requests = Requests(
            self,
            self.listener,
            processor.services,
            processor.logins.handshake,
            processor.logins.long_requests,
            FastPaths(self._framing),
        )
        processor.add(self)
        processor.logins.half_open.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._processor.logins.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._processor.logins.scratch[:nbytes]
        self._serve()
        self._tell_what_it_holds()
        if len(self._received) > self._framing.frame_bytes_max + LENGTH_BYTES and not self.closed:
            self.refuse(f"{len(self._received)} bytes before authentication")

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Called by the transport: a peer that is not known yet gets little, and does not take even that."""
        self.give_up("it takes nothing of its replies")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.login is not None and self.login.step is Step.EXCHANGE:
            self.warn("it left in the middle of its authentication")
        self.closed = True
        for reply in self._replies.give_up():
            if reply.parked is not None:
                reply.parked.abandon()
        self._let_go()
        self._processor.logins.long_requests.unsent.forget(self)
        self._requests.forget()

    def _let_go(self) -> None:
        self._received.clear()
        self._outbox.clear()
        self._processor.logins.half_open.discard(self)
        self._processor.remove(self)

    def _tell_what_it_holds(self) -> None:
        if self.closed:
            return
        held, client_id_bytes = len(self._received) + self._replies.frame_bytes, self._requests.client_id_bytes
        if client_id_bytes > HALF_OPEN_CLIENT_ID_BYTES:
            held += client_id_bytes
        self._processor.logins.half_open.hold(self, held)

    # --- serving ---------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Serve the whole frames that are there, one at a time, until an answer has to be waited for."""
        if self._serving:
            return
        self._serving = True
        received = self._received
        while not (self.closed or self._replies.waiting or self._session is not None or self._has_failed()):
            try:
                stop = self._framing.end_of_frame(memoryview(received), 0, len(received))
            except FrameRefused as error:
                self.refuse("a TLS client on a listener without TLS" if is_hello_of_tls(received) else str(error))
                break
            if not stop:
                break
            frame = bytes(memoryview(received)[LENGTH_BYTES:stop])
            del received[:stop]
            if self.login is not None and self.login.step is Step.EXCHANGE and self.login.has_bare_tokens:
                self._serve_bare_token(self.login, frame)
            else:
                self._requests.serve(memoryview(frame))
            self._flush()  # each for itself, so that the transport says where nobody takes them
        self._serving = False
        self._flush()
        if self._session is not None and not (self._replies.waiting or self.closed):
            self._hand_over(self._session)

    def _has_failed(self) -> bool:
        return self.login is not None and self.login.step is Step.FAILED

    def _serve_bare_token(self, login: Login, token: bytes) -> None:
        """A token without a request around it: what it is answered with goes bare, too, and nothing where it fails."""
        try:
            answer = login.go_on(token)
        except LoginFailed as error:
            self.park(cast("ServedApi", None), 0, self.login_failed(None, error.reason), 0)
            return
        if isinstance(answer, NotYet):
            parked = Parked()
            parked.on_abandon = answer.subscribe(lambda: parked.complete(None))
            self._received[:0] = _LENGTH(len(token)) + token  # served again, when that completes without a reply
            self.park(cast("ServedApi", None), 0, parked, 0)
            return
        self._outbox.add_encoded([_LENGTH(len(answer)) + answer], len(answer))
        if login.session is not None:
            self.logged_in(login.session)

    def _hand_over(self, session: Session) -> None:
        """It is known who it is: from now on the socket is a ``Connection``'s, and so is what it has sent since."""
        self.closed = True
        rest = bytes(self._received)
        transport, login = self._transport, self.login
        self.login = None
        self._let_go()
        connection = Connection(self._processor, self.listener, login, session.principal)
        connection.client_software = self.client_software
        self._requests.forget()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.logged_in(session)
        if rest and not connection.closed:
            connection.take_over(rest)

    # --- what handlers may ask of a connection ---------------------------------------------------------------------

    def login_began(self) -> None:
        self._requests.serve_by(self._processor.logins.exchange)

    def logged_in(self, session: Session) -> None:
        self._session = session

    def login_failed(self, response: Any, reason: str) -> Parked:
        self.warn(reason)
        self._requests.serve_by(self._processor.logins.nothing)
        if self.login is not None:
            self.login.step = Step.FAILED
        self._transport.pause_reading()
        return self._processor.logins.tell_late(response, self.close)

    def hold_request(self) -> HeldRequest:
        return _OWN_BYTES

    def hold_copy(self, size: int) -> HeldRequest:
        return _OWN_BYTES

    def serving(self, held: HeldRequest | None) -> AbstractContextManager[None]:
        return nullcontext()

    # --- replying --------------------------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def reply(self, api: ServedApi, correlation_id: int, response: Any) -> None:
        self._outbox.add(api, correlation_id, response)
        # It is asked once; what is refused is no answer.
        if api.api_key == API_VERSIONS_KEY and not response.error_code:
            self._requests.serve_by(self._processor.logins.handshake_alone)

    def park(self, api: ServedApi, correlation_id: int, parked: Parked, frame_bytes: int) -> None:
        parked.subscribe(self._replies.add(self, api, correlation_id, parked, frame_bytes).deliver)

    def on_reply_ready(self) -> None:
        while (reply := self._replies.next_ready()) is not None:
            if reply.response is not None and not self.closed:
                self._outbox.add(reply.api, reply.correlation_id, reply.response)
        self._serve()
        self._tell_what_it_holds()

    def _flush(self) -> None:
        if self._outbox.parts:
            self._outbox.flush(self._transport)

    # --- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._transport.is_closing():
            self._flush()
        self.closed = True
        self._transport.close()

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def look_after(self, idle_since_sweep: int) -> None:
        """Nothing: ``half_open`` ends logins that take too long."""

    def __str__(self) -> str:
        return f"{self.peer_host} (not authenticated, listener {self.listener})"

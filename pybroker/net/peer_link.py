"""The requests of one channel to one broker: in order, over one connection at a time.

Owns: what waits for that broker, when a connection to it is tried, what becomes of each request when one breaks, and
the time-outs.  Does not own bytes (``peer_connection``), their meaning (``peer_requests``), nor where the broker is
(``peer_client``).

Invariants
- Each request is answered exactly once, in the order asked; one that fails takes with it all that wait behind it, so
  that nothing is done out of order.  Only a time-out before the sending takes its request alone.
- Nothing is tried while no request waits, and nothing before its back-off is over.
- What a connection was not handed yet when it broke has surely not been done.

Kafka counterpart: NetworkClient with its ClusterConnectionStates and InFlightRequests, for one node.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pybroker import cluster_limits
from pybroker.cluster.membership.peers import PeerError, PeerFailure
from pybroker.net.long_replies import LONG_REPLY_BYTES, LongReply
from pybroker.net.peer_connection import PeerConnection
from pybroker.net.peer_login import LoginRefused
from pybroker.operating_system import system_reason
from pybroker_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pybroker.cluster.image.cluster_image import Endpoint
    from pybroker.env import Cancellable, Env
    from pybroker.net.buffers import BufferPool
    from pybroker.net.framing import Framing
    from pybroker.net.peer_login import Login
    from pybroker.net.peer_requests import PeerRequest
    from pybroker.net.tls_connection import ClientSide
    from pybroker.rate_limited_log import RateLimitedLog

# Between two tries to connect to a broker, at least and at most (Kafka's ``reconnect.backoff.ms`` and its ``max``); it
# doubles with each failure, and varies by a fifth so that brokers do not come all at once.
RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MAX_MS = 1_000
RECONNECT_JITTER = 0.2

# So much of its life a login is used for, as by Kafka's clients.
LOGIN_USED_FOR = 0.85
LOGIN_PAUSE_MS = 1_000  # another one is refused that comes sooner (KIP-368)
_NEVER_MS = 1 << 62

# Requests of one channel to one broker that are not answered, and their bytes; one is taken however long it is.
PEER_REQUESTS_MAX = 1_000
PEER_REQUEST_BYTES_MAX = 32 << 20

log = logging.getLogger(__name__)


class LinkContext(NamedTuple):
    """What all links of a broker share."""

    env: Env
    loop: asyncio.AbstractEventLoop
    login_framing: Framing  # of who has not proved yet that it is a broker of this cluster
    framing: Framing
    pool: BufferPool
    rate_limited_log: RateLimitedLog
    attempts: dict[asyncio.Task[None], None]  # tries to connect, also those that are given up and not over yet
    new_login: Callable[[], Login] | None = None  # what comes before the first request
    tls: Callable[[], ClientSide | None] = lambda: None  # of the listener by which brokers come, or of a link
    long_replies: Collection[int] = ()  # keys of APIs whose replies may take long to decode


class PeerLink:
    """``name`` is for the log; ``on_broken`` hears of each connection that broke or could not be made."""

    __slots__ = (
        "_attempt",
        "_attempt_timer",
        "_candidate",
        "_connection",
        "_deadline_timer",
        "_decoded_reply",
        "_endpoint",
        "_env",
        "_failures",
        "_is_stopping",
        "_login",
        "_login_ends_ms",
        "_name",
        "_next_deadline_ms",
        "_on_broken",
        "_requests",
        "_retry_at_ms",
        "_retry_timer",
        "_sent_count",
        "_shared",
        "_waiting_bytes",
    )

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        shared: LinkContext,
        on_broken: Callable[[], None] = lambda: None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._name = name
        self._on_broken = on_broken
        self._is_stopping = is_stopping  # one of the two brokers leaves the cluster in good order
        self._endpoint = endpoint
        self._shared = shared
        self._env = shared.env
        self._requests: deque[PeerRequest] = deque()  # those that were sent first
        self._sent_count = 0
        self._waiting_bytes = 0
        self._connection: PeerConnection | None = None
        self._candidate: PeerConnection | None = None  # of the try that goes on
        self._attempt: asyncio.Task[None] | None = None
        self._attempt_timer: Cancellable | None = None
        self._login: Login | None = None  # of the candidate
        self._login_ends_ms = _NEVER_MS  # the connection's: it is logged in anew by then
        self._failures = 0  # in a row
        self._retry_at_ms = 0
        self._retry_timer: Cancellable | None = None
        self._deadline_timer: Cancellable | None = None
        self._next_deadline_ms = 0
        self._decoded_reply: LongReply | None = None  # to the first request, while it is decoded

    # --- requests ----------------------------------------------------------------------------------------------------

    def has_capacity_for(self, size: int) -> bool:
        """Whether one more request of so many bytes may wait."""
        waiting = len(self._requests)
        if not waiting:
            return True
        return waiting < PEER_REQUESTS_MAX and self._waiting_bytes + size <= PEER_REQUEST_BYTES_MAX

    def ask(self, request: PeerRequest) -> None:
        """Send it as soon as there is a connection."""
        self._requests.append(request)
        self._waiting_bytes += request.size
        self._watch_deadline(request.deadline_ms)
        if self._connection is not None:
            self._send_waiting()
        else:
            self._connect_in_time()

    def _send_waiting(self) -> None:
        """Hand over what was not sent yet, as far as the peer takes it."""
        connection = self._connection
        if connection is not None and self._login_ends_ms != _NEVER_MS and self._is_login_over():
            if not self._sent_count:
                self._log_in_again(connection)
            return  # the answers to what was sent come first
        while connection is not None and connection.may_write and self._sent_count < len(self._requests):
            request = self._requests[self._sent_count]
            self._sent_count += 1
            request.sent = True
            frame, request.frame = request.frame, b""
            connection.send(frame)

    def _fail_all(self, reason: PeerFailure, message: str, failed_requests: Collection[PeerRequest] = ()) -> None:
        """Nothing that waits will be answered; where only some are to blame the others were merely disconnected."""
        if self._decoded_reply is not None:
            self._decoded_reply.drop()
            self._decoded_reply = None
        failed, self._requests = self._requests, deque()
        self._sent_count = self._waiting_bytes = 0
        self._stop_watching()
        for request in failed:
            its_reason = reason if not failed_requests or request in failed_requests else PeerFailure.DISCONNECTED
            self._complete(request, None, PeerError(its_reason, request.sent, message))

    def _complete(self, request: PeerRequest, response: object | None, error: PeerError | None) -> None:
        try:
            request.done(response, error)
        except Exception:  # those behind it are to be answered, too
            log.exception("what waited for API %d of %s failed", request.api.key, self._name)

    # --- the connection ----------------------------------------------------------------------------------------------

    def _connect_in_time(self) -> None:
        """Try to connect, once the back-off is over."""
        if self._candidate is not None or self._retry_timer is not None:
            return
        wait_ms = self._retry_at_ms - self._env.clock.monotonic_ms()
        if wait_ms > 0:
            self._retry_timer = self._env.timers.call_later(wait_ms, self._connect)
        else:
            self._connect()

    def _connect(self) -> None:
        self._stop_retrying()
        if self._requests:
            shared = self._shared
            self._candidate = candidate = PeerConnection(self, shared.login_framing, shared.pool)
            self._attempt = attempt = shared.loop.create_task(self._try_to_connect(candidate, self._endpoint))
            shared.attempts[attempt] = None
            attempt.add_done_callback(shared.attempts.pop)
            self._attempt_timer = self._env.timers.call_later(cluster_limits.CONNECT_TIMEOUT_MS, self._give_attempt_up)

    async def _try_to_connect(self, candidate: PeerConnection, endpoint: Endpoint) -> None:
        """One try; it ends with ``on_connected``, or here."""
        try:
            await self._shared.loop.create_connection(
                lambda: self._on_the_wire(candidate, endpoint.host), endpoint.host, endpoint.port
            )
        except (OSError, ValueError, OverflowError) as error:  # the others for what is no host, or no port
            if candidate is self._candidate:
                self._forget_attempt()
                self._failed(PeerFailure.UNREACHABLE, system_reason(error))

    def _on_the_wire(self, candidate: PeerConnection, host: str) -> asyncio.BufferedProtocol:
        tls = self._shared.tls()
        if tls is None:
            return candidate
        from pybroker.net.tls_connection import TlsClientConnection

        return TlsClientConnection(tls, host, self._env.timers, candidate)

    def _give_attempt_up(self) -> None:
        self._drop_attempt()
        self._failed(PeerFailure.UNREACHABLE, "it takes no connection in time")

    def _drop_attempt(self) -> None:
        attempt, candidate = self._attempt, self._candidate
        self._forget_attempt()
        if attempt is not None:
            attempt.cancel()
        if candidate is not None:
            candidate.abort("it is not waited for any more")

    def _forget_attempt(self) -> None:
        """The try is over, or not wanted any more: its outcome has no effect."""
        self._attempt = self._candidate = self._login = None
        if self._attempt_timer is not None:
            self._attempt_timer.cancel()
            self._attempt_timer = None

    def on_connected(self, connection: PeerConnection) -> None:
        if connection is not self._candidate:
            connection.abort("it is not waited for any more")
        elif self._shared.new_login is None:
            self._use(connection)
        else:
            self._login = self._shared.new_login()
            connection.send(self._login.begin())

    def _go_on_logging_in(self, connection: PeerConnection, login: Login, frame: memoryview) -> None:
        try:
            answer = login.on_reply(frame)
        except LoginRefused as error:
            self._forget_attempt()
            connection.abort(str(error))
            self._failed(PeerFailure.UNREACHABLE, f"login refused: {error}")
            return
        if login.is_over:
            self._use(connection)
        else:
            connection.send(answer)

    def _use(self, connection: PeerConnection) -> None:
        """It is ready for requests."""
        lifetime_ms = 0 if self._login is None else self._login.session_lifetime_ms
        now_ms = self._env.clock.monotonic_ms()
        used_ms = max(int(lifetime_ms * LOGIN_USED_FOR), LOGIN_PAUSE_MS)
        self._login_ends_ms = now_ms + used_ms if lifetime_ms else _NEVER_MS
        self._forget_attempt()
        connection.framing = self._shared.framing
        self._connection = connection
        self._send_waiting()

    def _is_login_over(self) -> bool:
        return self._env.clock.monotonic_ms() >= self._login_ends_ms

    def _log_in_again(self, connection: PeerConnection) -> None:
        """Log in on the connection before its session ends (KIP-368); what waits is sent then."""
        assert self._shared.new_login is not None
        self._connection, self._candidate = None, connection
        self._attempt_timer = self._env.timers.call_later(cluster_limits.CONNECT_TIMEOUT_MS, self._give_attempt_up)
        self._login = self._shared.new_login()
        connection.framing = self._shared.login_framing
        connection.send(self._login.begin(again=True))

    def on_may_write(self, connection: PeerConnection) -> None:
        if connection is self._connection:
            self._send_waiting()

    def on_frame(self, connection: PeerConnection, frame: memoryview) -> None:
        if connection is self._candidate and self._login is not None:
            self._go_on_logging_in(connection, self._login, frame)
            return
        if self._decoded_reply is not None:
            self._decoded_reply.finish()
        if connection is not self._connection:
            return
        if not self._sent_count:
            connection.abort("a reply to no request")
            return
        request = self._requests[0]
        if request.api.key in self._shared.long_replies and len(frame) > LONG_REPLY_BYTES:
            steps = request.api.response_in_steps(bytes(frame), request.correlation_id)
            self._decoded_reply = LongReply(self._env, steps, self._on_response)
            return
        try:
            response = request.api.response(frame, request.correlation_id)
        except ProtocolError as error:
            self._on_response(None, error)
        else:
            self._on_response(response, None)

    def _on_response(self, response: object | None, error: ProtocolError | None) -> None:
        """The reply to the first request is decoded, or is none."""
        self._decoded_reply = None
        request = self._requests[0]
        if error is not None:
            self._break(PeerFailure.BAD_REPLY, str(error), [request])
            return
        self._requests.popleft()
        self._sent_count -= 1
        self._waiting_bytes -= request.size
        self._failures = 0
        self._complete(request, response, None)
        if self._login_ends_ms != _NEVER_MS:
            self._send_waiting()  # what was held back until all was answered

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        if connection is self._connection:
            self._connection = None
            self._failed(PeerFailure.DISCONNECTED, reason)
        elif connection is self._candidate:
            self._forget_attempt()
            self._failed(PeerFailure.UNREACHABLE, f"{reason} while this broker logged in")

    def _break(self, failure: PeerFailure, reason: str, failed_requests: Collection[PeerRequest] = ()) -> None:
        """End the connection, and what waits for it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort(reason)
        self._failed(failure, reason, failed_requests)

    def _failed(self, failure: PeerFailure, reason: str, failed_requests: Collection[PeerRequest] = ()) -> None:
        """A try or a connection is over: wait before the next, and answer what waits."""
        if self._requests and not self._is_stopping():
            self._shared.rate_limited_log.warning(self._name, reason, "%s: %s (%s)", self._name, failure.value, reason)
        backoff_ms = min(RECONNECT_BACKOFF_MS << min(self._failures, 10), RECONNECT_BACKOFF_MAX_MS)
        jitter = 1 + RECONNECT_JITTER * (2 * self._env.random.random() - 1)
        self._failures += 1
        self._retry_at_ms = self._env.clock.monotonic_ms() + int(backoff_ms * jitter)
        self._on_broken()
        self._fail_all(failure, reason, failed_requests)

    def _stop_retrying(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None

    # --- where the broker is -----------------------------------------------------------------------------------------

    def on_registration(self, endpoint: Endpoint, is_fenced: bool) -> None:
        """The broker has registered anew, or was fenced: no back-off holds.

        What is connected to its last address is over.  A broker that is fenced is dead or was held up; requests to it
        need not wait any longer.
        """
        has_moved, self._endpoint = endpoint != self._endpoint, endpoint
        if has_moved or is_fenced:
            self._drop_attempt()
            self._break(PeerFailure.DISCONNECTED, "it is fenced" if is_fenced else "it has another address now")
        self._failures = self._retry_at_ms = 0
        self._stop_retrying()
        if self._requests and self._connection is None:
            self._connect_in_time()

    def close(self, failure: PeerFailure, reason: str) -> None:
        """End everything; what waits fails inside of this call."""
        self._drop_attempt()
        self._stop_retrying()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort(reason)
        self._fail_all(failure, reason)

    # --- time-outs ---------------------------------------------------------------------------------------------------

    def _watch_deadline(self, deadline_ms: int) -> None:
        """One timer for all that wait: it may fire early for what has been answered, never late."""
        if self._deadline_timer is None or deadline_ms < self._next_deadline_ms:
            self._stop_watching()
            self._next_deadline_ms = deadline_ms
            wait_ms = max(deadline_ms - self._env.clock.monotonic_ms(), 0)
            self._deadline_timer = self._env.timers.call_later(wait_ms, self._look_at_deadlines)

    def _stop_watching(self) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None

    def _look_at_deadlines(self) -> None:
        self._deadline_timer = None
        now_ms = self._env.clock.monotonic_ms()
        overdue = [request for request in self._requests if request.deadline_ms <= now_ms]
        if any(request.sent for request in overdue):
            # What comes behind it on this connection comes no sooner.
            self._break(PeerFailure.TIMED_OUT, "a request was not answered in time", overdue)
            return
        if overdue:
            self._requests = deque(request for request in self._requests if request.deadline_ms > now_ms)
            self._waiting_bytes -= sum(request.size for request in overdue)
        if self._requests:
            self._watch_deadline(min(request.deadline_ms for request in self._requests))
        for request in overdue:
            self._complete(request, None, PeerError(PeerFailure.TIMED_OUT, False, "it was not sent in time"))

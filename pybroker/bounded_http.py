"""One exchange by http or https, within bounds of time and size: the one HTTP client of all parts.

Owns: those bounds, and that no redirection is followed.  The address that is asked for alone says who is asked, and a
password does not go to another place.  Blocks: it is for a thread, or a command.  Owns no meaning of what comes, and no
second try.

Invariants: nothing of http is imported before the first exchange.  Each byte may come in time, and the whole does not:
a server that drips is given up.  Only the system's resolution of a name has no bound here.

Kafka counterpart: ``HttpAccessTokenRetriever``, and HttpsJwks of jose4j.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse
    from socket import socket
    from urllib.request import BaseHandler, Request

LATE: Final = "it did not come in time"
_PART_BYTES: Final = 65_536


class Bounds(NamedTuple):
    """``silence_s`` is for a step without a byte, once there is a connection; ``whole_s`` is for all together."""

    connect_s: float
    silence_s: float
    whole_s: float
    bytes_max: int


class Reply(NamedTuple):
    """What is answered, with whatever code."""

    status: int
    reason: str
    headers: HTTPMessage
    body: bytes

    @property
    def is_error(self) -> bool:
        """Also for a redirection: what was asked for is not here."""
        return not 200 <= self.status < 300


class TooMuch(ValueError):
    """The body is larger than its bound."""


def is_late(error: BaseException) -> bool:
    """Whether what `exchange` raises is the end of a bound of time."""
    return isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)


def exchange(request: Request, bounds: Bounds, *, reads_errors: bool = False) -> Reply:
    """The reply; that of an error has no body unless ``reads_errors``, and as much of it then as the bound allows.

    Raises URLError where the request is not sent, another OSError or an HTTPException where no whole reply comes, and
    `TooMuch`.  Another ValueError, or InvalidURL, is for a request that cannot be sent.
    """
    from http.client import HTTPException
    from urllib.error import URLError
    from urllib.request import OpenerDirector, ProxyHandler, UnknownHandler

    deadline = _Deadline(bounds)
    try:
        opener = OpenerDirector()  # without urllib's handlers of errors, which follow redirections
        for each in (ProxyHandler(), UnknownHandler(), _connecting_by(deadline)):
            opener.add_handler(each)
        with opener.open(request, timeout=bounds.connect_s) as response:
            reply = Reply(response.status, response.reason, response.headers, b"")
            if not reply.is_error or reads_errors:
                reply = reply._replace(body=_body(response, bounds.bytes_max, cuts=reply.is_error))
        deadline.check()
    except (OSError, HTTPException) as error:
        if not deadline.is_over:
            raise
        # A request that was not sent stays one: its caller may ask elsewhere.
        late = TimeoutError(LATE)
        raise (URLError(late) if isinstance(error, URLError) else late) from None
    finally:
        deadline.end()
    return reply


def _body(response: HTTPResponse, bytes_max: int, *, cuts: bool) -> bytes:
    from http.client import IncompleteRead

    # A server that leaves the connection open sends nothing behind the length that it has told.
    length, size = response.length, 0
    parts: list[bytes] = []
    while size <= bytes_max and (length is None or size < length) and (part := response.read1(_PART_BYTES)):
        parts.append(part)
        size += len(part)
    found = b"".join(parts)
    if size > bytes_max:
        if not cuts:
            raise TooMuch(f"it has more than {bytes_max} bytes")
        return found[:bytes_max]
    if length is not None and size < length:
        raise IncompleteRead(found, length - size)
    return found


class _Deadline:
    """The end of an exchange's time, at which its connections are shut down."""

    def __init__(self, bounds: Bounds) -> None:
        from threading import Timer

        self._bounds = bounds
        self._ends_at = monotonic() + bounds.whole_s
        self._sockets: list[socket] = []
        self.is_over = False
        self._timer = Timer(bounds.whole_s, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def connected(self, address: tuple[str, int], *_of_create_connection: object) -> socket:
        """A connection to the first address of a host that takes one, as ``create_connection`` has it."""
        from socket import SOCK_STREAM, getaddrinfo

        refusals = [OSError("the name has no address")]
        for family, kind, protocol, _, where in getaddrinfo(*address, 0, SOCK_STREAM):
            try:
                return self._connection((family, kind, protocol), where)
            except OSError as error:
                refusals.append(error)
        raise refusals.pop()

    def _connection(self, of: tuple[int, int, int], where: Any) -> socket:
        from socket import socket

        made = socket(*of)
        try:
            self.check()
            made.settimeout(max(min(self._bounds.connect_s, self._ends_at - monotonic()), 0.001))
            made.connect(where)
            made.settimeout(self._bounds.silence_s)
            # A duplicate, before TLS or a proxy's tunnel begins on it, which take the socket over.
            self._sockets.append(made.dup())
            self.check()  # what ended the time before this line has not shut it down
        except BaseException:
            made.close()
            raise
        return made

    def check(self) -> None:
        """Raises TimeoutError once it is over, whether or not its thread has had a turn yet."""
        self.is_over = self.is_over or monotonic() >= self._ends_at
        if self.is_over:
            raise TimeoutError(LATE)

    def end(self) -> None:
        """Lets all go that it has; its thread is over then."""
        self._timer.cancel()
        self._timer.join()
        for each in self._sockets:
            each.close()

    def _give_up(self) -> None:
        from socket import SHUT_RDWR

        self.is_over = True
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(SHUT_RDWR)


def _connecting_by(deadline: _Deadline) -> BaseHandler:
    """A handler of http and https whose connections are the deadline's."""
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.request import AbstractHTTPHandler

    class Connection(HTTPConnection):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            # Where http.client takes its sockets from, before it asks a proxy for a tunnel on one.
            self._create_connection = deadline.connected

    class TlsConnection(HTTPSConnection, Connection):
        """Connects as both do, and wraps the socket then."""

    class Handler(AbstractHTTPHandler):
        http_request = https_request = AbstractHTTPHandler.do_request_

        def http_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Connection, request)

        def https_open(self, request: Request) -> HTTPResponse:
            return self.do_open(TlsConnection, request)

    return Handler()

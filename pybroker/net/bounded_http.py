"""One exchange by http or https, within bounds of time and size.

Owns: those bounds, and that no redirection is followed: the address in the settings alone says who is asked.  Blocks:
it is for a thread.  Owns no meaning of what comes (``key_fetch``, ``token_endpoint``).

Kafka counterpart: ``HttpAccessTokenRetriever``, and HttpsJwks of jose4j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from socket import socket
    from urllib.request import BaseHandler, Request


def exchange(request: Request, connect_timeout_ms: int, read_timeout_ms: int, bytes_max: int) -> bytes:
    """What is answered.  OSError where it cannot be had, with what was the matter as its cause, or not in time.

    ValueError where it is too much.
    """
    from contextlib import suppress
    from http.client import HTTPException
    from socket import SHUT_RDWR
    from threading import Event, Timer
    from urllib.error import HTTPError
    from urllib.request import build_opener

    sockets: list[socket] = []
    is_late = Event()

    def give_up() -> None:
        # A server that sends a byte now and then, of its header too, outlasts the time that a read may take.
        is_late.set()
        for each in sockets:
            with suppress(OSError):
                each.shutdown(SHUT_RDWR)

    deadline = Timer((connect_timeout_ms + read_timeout_ms) / 1_000, give_up)
    deadline.daemon = True
    deadline.start()
    opener = build_opener(_no_redirection(), *_handlers_that_tell(sockets))
    parts, size = [], 0
    try:
        with opener.open(request, timeout=connect_timeout_ms / 1_000) as response:
            while size <= bytes_max and (part := response.read1(65_536)):
                parts.append(part)
                size += len(part)
    except (OSError, HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()
        # A connection has a bound of its own, which may end before the deadline of the whole.
        timed_out = isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)
        if not timed_out and not is_late.is_set():
            raise OSError(str(error)) from error
        is_late.set()
    finally:
        deadline.cancel()
        for each in sockets:
            each.close()
    if is_late.is_set():
        raise TimeoutError("it did not come in time")
    if size > bytes_max:
        raise ValueError(f"it has more than {bytes_max} bytes")
    return b"".join(parts)


def _handlers_that_tell(sockets: list[socket]) -> list[BaseHandler]:
    """Of http and https: they add a duplicate of each connection's socket, before TLS begins on it."""
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.request import HTTPHandler, HTTPSHandler

    class Connection(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock.dup())

    class TlsConnection(HTTPSConnection, Connection):
        """Connects as both do, and wraps the socket then."""

    class Http(HTTPHandler):
        def http_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Connection, request)

    class Https(HTTPSHandler):
        def https_open(self, request: Request) -> HTTPResponse:
            return self.do_open(TlsConnection, request)

    return [Http(), Https()]


def _no_redirection() -> type:
    from urllib.request import HTTPRedirectHandler

    class NoRedirection(HTTPRedirectHandler):
        """Leaves a redirection as the answer, which is an error."""

        def redirect_request(self, *_: object) -> None:
            return None

    return NoRedirection

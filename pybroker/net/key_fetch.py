"""Fetching a key set: by http, https or from a file.

Owns: one exchange with whoever keeps the set, within bounds of time and size.  Blocks: it is for a thread.

A redirection is not followed, so that nobody but the address in the settings says where keys come from.

Kafka counterpart: HttpsJwks of jose4j, and JwksFileVerificationKeyResolver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from socket import socket
    from urllib.request import BaseHandler, Request

    from pybroker.security.key_sets import KeySource

# A key set (JWKS) that is fetched: a hundred keys of 4096 bits are 80 kB.
KEY_SET_BYTES_MAX = 1_000_000


def fetch_keys(source: KeySource) -> bytes:
    """What is there.  OSError where it cannot be had by http, ValueError where it is too much, or in no file."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(source.url)
    if parts.scheme == "file":
        from pybroker.config.named_files import read_named_file

        path = url2pathname(parts.path)
        return read_named_file(path, "sasl.oauthbearer.jwks.endpoint.url", KEY_SET_BYTES_MAX)
    data = _get(source)
    if len(data) > KEY_SET_BYTES_MAX:
        raise ValueError(f"it has more than {KEY_SET_BYTES_MAX} bytes")
    return data


def _get(source: KeySource) -> bytes:
    from contextlib import suppress
    from http.client import HTTPException
    from socket import SHUT_RDWR
    from threading import Event, Timer
    from urllib.request import Request, build_opener

    sockets: list[socket] = []
    is_late = Event()

    def give_up() -> None:
        # Whoever sends a byte now and then, of its header too, outlasts the time that a read may take.
        is_late.set()
        for each in sockets:
            with suppress(OSError):
                each.shutdown(SHUT_RDWR)

    deadline = Timer((source.connect_timeout_ms + source.read_timeout_ms) / 1_000, give_up)
    deadline.daemon = True
    deadline.start()
    request = Request(source.url, headers={"Accept": "application/json"})
    opener = build_opener(_no_redirection(), *_handlers_that_tell(sockets))
    parts, size = [], 0
    try:
        with opener.open(request, timeout=source.connect_timeout_ms / 1_000) as response:
            while size <= KEY_SET_BYTES_MAX and (part := response.read1(65_536)):
                parts.append(part)
                size += len(part)
    except (OSError, HTTPException) as error:
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

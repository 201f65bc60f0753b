"""Exchanges by HTTP: each caller gives a server up that sends a byte now and then, and each end has its own words."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import IncompleteRead
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread, Timer
from time import monotonic
from typing import Any
from urllib.error import URLError
from urllib.request import Request

import pytest
from harness.waiting import PATIENCE_S

from pybroker.bounded_http import LATE, Bounds, Reply, TooMuch, exchange
from pybroker.connectors.kinds import http_calls
from pybroker.connectors.kinds.http_calls import Away, CodeRefused, body_of
from pybroker.connectors.rest import rest_client
from pybroker.connectors.rest.rest_client import NoAnswer, ReplyRefused, RestClient
from pybroker.net.key_fetch import fetch_keys
from pybroker.net.token_endpoint import TokenEndpoint
from pybroker.security.key_sets import KeySource
from pybroker.values import schema_registry
from pybroker.values.schema_registry import RegistryAway, SchemaRegistry

WHOLE_S = 0.2
DRIP_S = 0.01
# Long enough that a client without a bound is seen to have none.
DRIPS = int(PATIENCE_S / DRIP_S)
IN_TIME = Bounds(PATIENCE_S, PATIENCE_S, PATIENCE_S, 10)
SHORT = IN_TIME._replace(whole_s=WHOLE_S)
DRIPPING = {
    "header": b"HTTP/1.1 200 OK\r\nX-Long: ",
    "body": b"HTTP/1.1 200 OK\r\n\r\n",
    "body of a length": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
}
DRIPPING_ERROR = b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n"


class Server(ThreadingTCPServer):
    """The same answer for each request; ``drips`` more bytes come slowly.  ``may_end`` ends the connection."""

    daemon_threads = True

    def __init__(self, answer: bytes, drips: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.drips = answer, drips
        self.requests: list[bytes] = []
        self.may_answer, self.may_end, self.is_left, self.is_over = Event(), Event(), Event(), Event()
        self.may_answer.set()
        self.may_end.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        self.server.requests.append(self.rfile.readline())
        while self.rfile.readline().strip():
            pass
        self.server.may_answer.wait(PATIENCE_S)
        try:
            self.wfile.write(self.server.answer)
            for _ in range(self.server.drips):
                self.wfile.write(b" ")
                self.server.is_over.wait(DRIP_S)
        except OSError:
            self.server.is_left.set()
        self.server.may_end.wait(PATIENCE_S)


@contextmanager
def serving(answer: bytes, drips: int = 0) -> Iterator[Server]:
    with Server(answer, drips) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            for each in (server.may_answer, server.may_end, server.is_over):
                each.set()
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_WHOLE_S", WHOLE_S)
    monkeypatch.setattr(http_calls, "WHOLE_S", WHOLE_S)
    monkeypatch.setattr(rest_client, "WHOLE_S", WHOLE_S)


def give_up(server: Server, ask: Callable[[], object], error: type[Exception], told: str) -> None:
    """Ask until a server that drips was left: on a busy machine the time may be over before it is connected to."""
    ends_at = monotonic() + PATIENCE_S
    while not server.is_left.is_set():
        assert monotonic() < ends_at, "the server is not left"
        with pytest.raises(error, match=told):
            ask()
        server.is_left.wait(WHOLE_S)


def keys(url: str, connect_ms: int = 100, read_ms: int = 100) -> bytes:
    return fetch_keys(KeySource(url, 1, 1, 1, connect_ms, read_ms))


def token(url: str) -> object:
    return TokenEndpoint(url, b"", {}, 100, 100).fetch()


def schema(url: str) -> object:
    return SchemaRegistry(url).by_id(1)


def connector(url: str) -> object:
    return body_of(url, {}, PATIENCE_S)


def command(url: str) -> object:
    return RestClient(url).ask("GET", "connectors")


@pytest.mark.parametrize("answer", DRIPPING.values(), ids=DRIPPING)
@pytest.mark.parametrize(
    ("caller", "error", "told"),
    [
        (keys, TimeoutError, LATE),
        (token, ValueError, rf"127\.0\.0\.1:\d+ does not answer: {LATE}"),
        (schema, RegistryAway, f"does not answer: {LATE}"),
        (connector, Away, f"does not answer: {LATE}"),
        (command, NoAnswer, f"does not answer: {LATE}"),
    ],
)
def test_each_caller_gives_up_a_server_that_drips(
    caller: Callable[[str], object], error: type[Exception], told: str, answer: bytes
) -> None:
    with serving(answer, DRIPS) as server:
        give_up(server, partial(caller, server.url), error, told)


@pytest.mark.parametrize(("method", "requests"), [("POST", 1), ("PUT", 2)])
def test_a_request_whose_reply_drips_may_be_done(method: str, requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A server that is not connected to in time is not asked, and the next one is.
    monkeypatch.setattr(rest_client, "WHOLE_S", 10 * WHOLE_S)
    with serving(DRIPPING["header"], DRIPS) as server:
        with pytest.raises(NoAnswer, match=LATE):
            RestClient(f"{server.url},{server.url}").ask(method, "connectors", "rows", "restart")
        assert len(server.requests) == requests


@pytest.mark.parametrize(
    ("caller", "error", "told"),
    [
        (keys, OSError, "HTTP Error 500: No"),
        (token, ValueError, "answers with 500 No"),
        (schema, RegistryAway, f"does not answer: {LATE}"),
        (connector, CodeRefused, "answers 500"),
        (command, NoAnswer, f"does not answer: {LATE}"),
    ],
)
def test_the_body_of_an_error_that_drips_is_given_up_or_not_read(
    caller: Callable[[str], object], error: type[Exception], told: str
) -> None:
    with serving(DRIPPING_ERROR, DRIPS) as server:
        give_up(server, partial(caller, server.url), error, told)


def test_a_proxy_that_drips_before_its_tunnel_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(DRIPPING["header"], DRIPS) as server:
        monkeypatch.setenv("https_proxy", server.url)
        give_up(server, lambda: exchange(Request("https://pybroker.invalid/"), SHORT), URLError, LATE)
    assert server.requests[0].startswith(b"CONNECT pybroker.invalid:443 ")


def test_a_name_that_is_resolved_too_late_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = socket.getaddrinfo

    def slowly(*args: Any) -> Any:
        Event().wait(2 * WHOLE_S)
        return resolved(*args)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    with serving(DRIPPING["body"], DRIPS) as server, pytest.raises(URLError, match=LATE):
        exchange(Request(server.url), SHORT)
    assert server.requests == []


def test_the_next_address_of_a_name_is_asked_where_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(b"HTTP/1.1 200 OK\r\n\r\nfound") as server:
        places = [("127.0.0.1", port) for port in (1, server.server_address[1])]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
        assert exchange(Request("http://pybroker.invalid/"), IN_TIME).body == b"found"


def test_an_identity_provider_has_the_time_of_an_answer_for_its_answer() -> None:
    with serving(b"HTTP/1.1 200 OK\r\n\r\n{}") as server:
        server.may_answer.clear()
        answer = Timer(WHOLE_S, server.may_answer.set)
        answer.start()
        assert keys(server.url, connect_ms=50, read_ms=int(PATIENCE_S * 1_000)) == b"{}"
        answer.join()


def reply_to(answer: bytes, *, reads_errors: bool = False) -> Reply:
    with serving(answer) as server:
        return exchange(Request(server.url), IN_TIME, reads_errors=reads_errors)


def test_a_reply_that_is_cut_off_is_none() -> None:
    cut_off = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,"
    with pytest.raises(IncompleteRead, match="3 bytes read, 2 more expected"):
        reply_to(cut_off)
    with serving(cut_off) as server, pytest.raises(Away, match="does not answer"):
        connector(server.url)


def test_a_connection_that_stays_open_behind_the_reply_is_not_waited_for() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]") as server:
        server.may_end.clear()
        assert exchange(Request(server.url), IN_TIME).body == b"[]"


def test_a_redirection_is_the_reply() -> None:
    with serving(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n") as server:
        reply = exchange(Request(server.url), IN_TIME)
    assert (reply.status, reply.reason, reply.headers["Location"], reply.is_error) == (302, "Found", "/elsewhere", True)
    assert len(server.requests) == 1


def test_a_reply_has_a_bound_of_bytes_which_cuts_the_body_of_an_error() -> None:
    assert reply_to(b"HTTP/1.1 200 OK\r\n\r\n0123456789").body == b"0123456789"
    for head in (b"", b"Content-Length: 11\r\n"):
        with pytest.raises(TooMuch, match="more than 10 bytes"):
            reply_to(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n0123456789a")
    error = b"HTTP/1.1 500 No\r\n\r\n0123456789a"
    assert (reply_to(error).body, reply_to(error, reads_errors=True).body) == (b"", b"0123456789")


def test_a_reply_that_is_too_long_is_no_json_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_BYTES_MAX", 5)
    monkeypatch.setattr(rest_client, "_BYTES_MAX", 5)
    with serving(b"HTTP/1.1 200 OK\r\n\r\n" + b"[1, 2]") as server:
        with pytest.raises(RegistryAway, match="no JSON"):
            schema(server.url)
        with pytest.raises(ReplyRefused, match="no JSON"):
            command(server.url)


def test_other_kinds_of_addresses_are_not_opened() -> None:
    for url in ("file:///etc/hostname", "ftp://127.0.0.1/", "data:,x"):
        with pytest.raises(URLError, match="unknown url type"):
            exchange(Request(url), IN_TIME)


def test_nothing_of_http_is_imported_before_it_is_used() -> None:
    told = "import sys, pybroker.bounded_http; print({'http.client', 'urllib.request', 'threading'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

"""Requests of connectors to a server: how long one is waited for, and what of an answer is read."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pybroker.connectors.declared.connector_kind import check_http
from pybroker.connectors.declared.plugin_kinds import kind_named
from pybroker.connectors.kinds import http_calls
from pybroker.connectors.kinds.connector_runs import Work
from pybroker.connectors.kinds.http_calls import Away, CallRefused, ServerGone, body_of, waited_for
from tests.certificates import Authority

TIMEOUT_S = 30.0


class Answers:
    """A server that gives one answer."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.code, self.body = 200, b"{}"
        self.headers: dict[str, str] = {}
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(world.code)
                for name, text in {"Content-Length": str(len(world.body)), **world.headers}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(world.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # Each connection's thread shakes hands, so that a client that does not trust it ends no server.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    made = Answers()
    yield made
    made.close()


def asked(answers: Answers, code: int = 200, body: bytes = b"{}", headers: Mapping[str, str] | None = None) -> bytes:
    answers.code, answers.body, answers.headers = code, body, dict(headers or {})
    return body_of(answers.url, {}, TIMEOUT_S)


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        (None, 0, 0),
        ("7", 7, 7),
        ("soon", 0, 0),
        ("-1", 0, 0),
        pytest.param(
            format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True), 80_000, 86_400, id="a day from now"
        ),
        ("9" * 5_000, 300, 1e10),
        ("Mon, 01 Jan 99999999999999 00:00:00 GMT", 0, 0),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999", 0, 0),
    ],
)
def test_a_server_says_for_how_long_it_is_to_be_left_alone(
    answers: Answers, header: str | None, least: float, most: float
) -> None:
    with pytest.raises(Away) as away:
        asked(answers, 429, headers={} if header is None else {"Retry-After": header})
    assert least <= away.value.pause_s <= most


class Ends(threading.Event):
    """The end of a connector, whose waits take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return False


def work(timeout_ms: int, ends: threading.Event) -> Work:
    kind = kind_named("HttpSink")
    assert kind is not None
    place: Any = None
    config = {"errors.retry.timeout": str(timeout_ms)}
    return Work("s", kind, config, None, {}, "", "", lambda _: "", place, ends)


@pytest.mark.parametrize(("asks_for_s", "waits_s"), [(0.0, 0.5), (7.0, 7.0), (1e9, 300.0)])
def test_a_server_is_left_alone_for_as_long_as_it_asks_and_no_longer_than_minutes(
    asks_for_s: float, waits_s: float
) -> None:
    ends, answers = Ends(), iter([Away("answers 429", asks_for_s)])

    def ask() -> str:
        for away in answers:
            raise away
        return "done"

    assert waited_for(work(-1, ends), "server", ask) == "done"
    assert ends.waits == [waits_s]


def test_the_pause_that_a_server_asks_for_does_not_outlast_the_connectors_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = Ends()
    # A clock that moves with the waits.
    monkeypatch.setattr(http_calls, "monotonic", lambda: sum(ends.waits) + len(ends.waits) / 1_000)

    def ask() -> str:
        raise Away("answers 503", 60.0)

    with pytest.raises(ServerGone, match=r"^server: answers 503$"):
        waited_for(work(90_000, ends), "server", ask)
    assert ends.waits == [60.0, pytest.approx(30.0, abs=0.01)]


def test_an_answer_is_read_up_to_a_bound(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_calls, "BYTES_MAX", 10)
    assert asked(answers, body=b"x" * 10) == b"x" * 10
    with pytest.raises(CallRefused, match="answers with more than 10 bytes"):
        asked(answers, body=b"x" * 11)


def test_an_answer_that_is_packed_is_refused_and_not_unpacked(answers: Answers) -> None:
    with pytest.raises(CallRefused, match="packed by gzip, which was not asked for"):
        asked(answers, body=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})


def test_certificate_that_is_not_trusted_is_refused_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    server = Answers(authority.pem("server"))
    monkeypatch.setattr(server._server, "handle_error", lambda *_: None)
    try:
        with pytest.raises(CallRefused, match=r"^has a certificate that is not trusted: [a-z -]*certificate"):
            body_of(server.url, {}, TIMEOUT_S)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert body_of(server.url, {}, TIMEOUT_S) == b"{}"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://127.0.0.1:1/hunter2 x", {}),
        ("http://127.0.0.1:hunter2/", {}),
        ("http://127.0.0.1:1/hunter2-é", {}),
        ("hunter2", {}),
        ("http://127.0.0.1:1/", {"Authorization": "hunter2\nX: y"}),
        ("http://127.0.0.1:1/", {"Authorization": "hunter2-€"}),
    ],
)
def test_what_cannot_be_sent_is_refused_without_a_quotation(url: str, headers: dict[str, str]) -> None:
    if "Authorization" in headers:
        with Listener() as address:
            told = _refusal(address, headers)
    else:
        told = _refusal(url, headers)
    assert told.startswith("cannot be asked: ")
    assert "hunter2" not in told


def _refusal(url: str, headers: Mapping[str, str]) -> str:
    with pytest.raises(CallRefused) as refused:
        body_of(url, headers, TIMEOUT_S)
    return str(refused.value)


class Listener:
    """An address at which a connection is taken, and nothing is answered."""

    def __enter__(self) -> str:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.server_close()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://h/a?b=c", None),
        ("https://[::1]:9200", None),
        ("http://h/?by=a@b", None),
        ("http://${file:/p:host}/x", None),
        ("${file:/p:url}", "must begin with http"),
        ("http://", "names no host"),
        ("http://:80/", "names no host"),
        ("http://h:port/", "names no host, or a port"),
        ("http://h:99999/", "names no host, or a port"),
        ("http://h/a b", "characters that no URL has"),
        ("http://h/é", "characters that no URL has"),
        ("http://h/?max_tokens=5&sort_key=a", None),
        ("http://h/?pageToken=5&next_token=6&token_type=bearer&tokenize=true&secretary=bob", None),
        ("http://h/?api_key=${file:/p?q:key}&sig=${env:SIG}", None),
        ("http://h/?api_key=hunter2", "the value of api_key must be named by a config provider"),
        ("http://h/?a=b&key=hunter2", "the value of key must be named"),
        ("http://h/?a=b;api%5Fkey=hunter2", "must be named by a config provider"),
        ("http://h/?access_token=hunter2#x", "the value of access_token must be named"),
        ("http://user@h/", "http.authorization has the login"),
        ("http://user:${file:/p:word}@h/", "http.authorization has the login"),
    ],
)
def test_a_url_that_cannot_be_asked_is_refused_where_it_is_declared(url: str, told: str | None) -> None:
    found = check_http(url)
    assert found is None if told is None else told in str(found)
    assert "hunter2" not in str(found)

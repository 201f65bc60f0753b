"""Fetching a key set: what is there, within bounds of time and size, from nowhere but the address of the settings."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import URLError

import pytest

from pybroker.config.schema import ConfigError
from pybroker.net.key_fetch import KEY_SET_BYTES_MAX, fetch_keys
from pybroker.security.key_sets import KeySource
from tests.certificates import Authority


def source(url: str, timeout_ms: int = 5_000) -> KeySource:
    return KeySource(url, 1, 1, 1, timeout_ms, timeout_ms)


class Handler(BaseHTTPRequestHandler):
    """Answers by the path."""

    def do_GET(self) -> None:
        if self.path == "/slow-header":
            with suppress(OSError):  # the client has had enough
                for letter in b"HTTP/1.0 200 OK\r\nX-Long: " + b"x" * 1_000:
                    self.wfile.write(bytes((letter,)))
                    time.sleep(0.01)
        elif self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
        elif self.path == "/missing":
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # the client has had enough
                self._write_body()

    def _write_body(self) -> None:
        if self.path == "/keys":
            self.wfile.write(b'{"keys":[]}')
        elif self.path == "/endless":
            while True:
                self.wfile.write(bytes(65_536))
        elif self.path == "/slow":
            for _ in range(1_000):
                self.wfile.write(b" ")
                time.sleep(0.01)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of one that answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        if tls is not None:
            # The handshake is the handler's, in a thread of its own, where a client that breaks it off hurts nobody.
            http.socket = tls.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
        thread = Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield http.server_port
        finally:
            http.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as port:
        yield f"http://127.0.0.1:{port}"


def test_a_set_is_fetched(server: str) -> None:
    assert fetch_keys(source(f"{server}/keys")) == b'{"keys":[]}'


def test_by_https_the_server_is_known_by_what_the_system_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted.pem("idp"))
    with serving(context) as port:
        url = f"https://127.0.0.1:{port}/keys"
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch_keys(source(url))
        monkeypatch.setenv("SSL_CERT_FILE", str(stranger.ca))
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch_keys(source(url))
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted.ca))
        assert fetch_keys(source(url)) == b'{"keys":[]}'
        with pytest.raises(OSError, match=r"Hostname mismatch|doesn't match|not valid for"):
            fetch_keys(source(url.replace("127.0.0.1", "127.1")))


@pytest.mark.parametrize("path", ["/moved", "/missing"])
def test_nobody_else_says_where_the_keys_are(server: str, path: str) -> None:
    with pytest.raises(OSError, match=r"HTTP Error (302|404)"):
        fetch_keys(source(server + path))


def test_a_set_has_bounds(server: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bytes"):
        fetch_keys(source(f"{server}/endless"))
    for path in ("slow", "slow-header"):
        with pytest.raises(TimeoutError):
            fetch_keys(source(f"{server}/{path}", 20))
    large = tmp_path / "large.json"
    large.write_bytes(bytes(KEY_SET_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="bytes"):
        fetch_keys(source(large.as_uri()))


@pytest.mark.parametrize("error", [TimeoutError("timed out"), URLError(TimeoutError("timed out"))], ids=repr)
def test_a_connection_that_ends_by_its_own_bound_is_late_too(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def time_out(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("urllib.request.OpenerDirector.open", time_out)
    with pytest.raises(TimeoutError):
        fetch_keys(source("http://127.0.0.1:1"))


def test_a_set_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys of tokens.json"
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url: .* cannot be read: No such file"):
        fetch_keys(source(file.as_uri()))
    file.write_bytes(b"{}")
    assert fetch_keys(source(file.as_uri())) == b"{}"


def test_who_is_slow_at_its_handshake_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            accepted, _ = listener.accept()
            with accepted, suppress(OSError):  # the client has had enough
                for byte in b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb" + bytes(1_000):  # of a long ServerHello
                    accepted.sendall(bytes((byte,)))
                    time.sleep(0.01)

        thread = Thread(target=drip)
        thread.start()
        with pytest.raises(TimeoutError):
            fetch_keys(source(f"https://127.0.0.1:{listener.getsockname()[1]}/keys", 500))
        thread.join(5)
        assert not thread.is_alive(), "it sends for ten seconds"


def test_who_does_not_answer_is_not_waited_for() -> None:
    with pytest.raises(OSError, match=r"refused|timed out"):
        fetch_keys(source("http://127.0.0.1:9/keys", 200))

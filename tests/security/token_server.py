"""A token endpoint on loopback: it gives a token to who knows the secret, by the client credentials grant."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs

from tests.security.tokens import FromNow, signed

CLIENT, SECRET = "me", "hunter2"


class TokenServer(ThreadingHTTPServer):
    """``asked`` are the forms that came; ``lifetime_s`` and ``user`` are those of the next token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, list[str]]] = []
        self.lifetime_s = 600
        self.user = "carol"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append(form)
        if self.path == "/elsewhere":
            self._answer(302, b"", Location="/token")
        elif self.headers["Authorization"] != "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode():
            self._answer(401, SECRET.encode())
        elif self.path == "/nothing":
            self._answer(200, b"[]")
        else:
            lifetime_s = self.server.lifetime_s
            text = signed(sub=self.server.user, exp=FromNow(lifetime_s))
            token = {"access_token": text, "expires_in": lifetime_s, "token_type": "Bearer"}
            self._answer(200, json.dumps(token).encode())

    def _answer(self, code: int, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def token_server() -> Iterator[TokenServer]:
    """One that runs."""
    with TokenServer() as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

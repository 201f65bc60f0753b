"""A server of JSON with items behind an id, which may answer otherwise."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from harness.waiting import PATIENCE_S


class Server:
    """A server that gives the items behind ``after``, and may answer with an error.

    One that takes the place of ``before``, which is closed, has its address.
    """

    def __init__(self, before: Server | None = None) -> None:
        self.items: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str | None]] = []
        self.code = 200
        # Answers wait for it.
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.answer: Callable[[list[Any]], bytes] = lambda items: json.dumps({"data": {"items": items}}).encode()
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                after = parse_qs(urlsplit(self.path).query).get("after", ["0"])[0]
                world.asked.append((self.path, self.headers.get("Authorization")))
                world.may_answer.wait(PATIENCE_S)
                body = world.answer([item for item in world.items if item.get("id", 0) > int(after)])
                self.send_response(world.code)
                if world.code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0 if before is None else before.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/items"

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

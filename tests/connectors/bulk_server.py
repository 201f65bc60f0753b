"""A server that takes bulk requests as Elasticsearch does, and may be busy at first."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class BulkServer:
    """Documents by index and id; the first ``busy`` requests are answered by 429."""

    def __init__(self, busy: int = 0) -> None:
        self.documents: dict[tuple[str, str], Any] = {}
        self.asked = 0
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                lines = self.rfile.read(int(self.headers["Content-Length"])).decode().splitlines()
                world.asked += 1
                is_busy = world.asked <= busy
                items = [] if is_busy else list(world.take(lines))
                body = json.dumps({"errors": False, "items": items}).encode()
                self.send_response(429 if is_busy else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, lines: list[str]) -> list[Any]:
        """The answers to actions, which are done."""
        answers, left = [], iter(lines)
        for line in left:
            ((verb, action),) = json.loads(line).items()
            place = (action["_index"], action["_id"])
            if verb == "index":
                self.documents[place] = json.loads(next(left))
                answers.append({verb: {**action, "status": 201}})
            else:
                was_there = self.documents.pop(place, None) is not None
                answers.append({verb: {**action, "status": 200 if was_there else 404}})
        return answers

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

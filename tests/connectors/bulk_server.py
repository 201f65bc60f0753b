"""A server that takes bulk requests as Elasticsearch does; it may be busy at first, refuse documents, or go away.

It judges versions as Elasticsearch does: an external one must be greater than the document's, which it has behind its
deletion, too.  Elasticsearch forgets those of deleted documents after a minute; this one does not.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class BulkServer:
    """Documents by index and id; the first ``busy`` requests are answered by 429.

    A document with ``"poison"`` is refused, and so is a request of more than ``most`` documents.  A server that takes
    the place of ``before`` has its address and its documents.
    """

    def __init__(
        self, busy: int = 0, most: int = 1_000_000, before: BulkServer | None = None, holds_after: int = 1_000_000
    ) -> None:
        self.documents: dict[tuple[str, str], Any] = {} if before is None else before.documents
        self.versions: dict[tuple[str, str], int] = {} if before is None else before.versions
        self.asked = 0
        self.taken = 0
        # Requests behind ``holds_after`` documents are answered when the first is set; what they have is taken before.
        self.answers, self.waits = threading.Event(), threading.Event()
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                lines = self.rfile.read(int(self.headers["Content-Length"])).decode().splitlines()
                world.asked += 1
                is_busy = world.asked <= busy
                code = 429 if is_busy else 413 if len(lines) > 2 * most else 200
                items = world.take(lines) if code == 200 else []
                if world.taken > holds_after:
                    world.waits.set()
                    world.answers.wait()
                body = json.dumps({"errors": False, "items": items}).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0 if before is None else before.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def take(self, lines: list[str]) -> list[Any]:
        """The answers to actions, which are done."""
        answers, left = [], iter(lines)
        for line in left:
            ((verb, action),) = json.loads(line).items()
            self.taken += 1
            status, error = self._done(verb, action, next(left) if verb == "index" else None)
            place = {"_index": action["_index"], "_id": action["_id"]}
            answers.append({verb: {**place, "status": status, **({} if error is None else {"error": error})}})
        return answers

    def _done(self, verb: str, action: dict[str, Any], document: str | None) -> tuple[int, dict[str, str] | None]:
        place = (action["_index"], action["_id"])
        if document is not None and "poison" in document:
            return 400, {"type": "document_parsing_exception", "reason": "poison"}
        # Elasticsearch's default is its own count of writes.
        known = self.versions.get(place, -1)
        version = action["version"] if action.get("version_type") == "external" else known + 1
        if version <= known:
            reason = f"current version [{known}] is higher or equal to the one provided [{version}]"
            return 409, {"type": "version_conflict_engine_exception", "reason": reason}
        self.versions[place] = version
        if document is None:
            return (200 if self.documents.pop(place, None) is not None else 404), None
        self.documents[place] = json.loads(document)
        return 201, None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.answers.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

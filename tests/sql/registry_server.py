"""A schema registry that answers as Confluent's does, over HTTP: schemas by id, subjects with versions, and a login."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from fastavro import parse_schema, schemaless_writer

from pybroker.values.registry_header import header_of

# Two versions of a schema.
FIRST: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SECOND: dict[str, Any] = {
    **FIRST,
    "fields": [{"name": "note", "type": ["null", "string"], "default": None}, *FIRST["fields"]],
}


def written(schema_id: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    """A value of Avro, as serializers write it that ask a registry."""
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), row)
    return header_of(schema_id) + stream.getvalue()


class RegistryServer:
    """Subjects by name, each a list of ids; ``asked`` has the requests.  With ``user`` each one needs that login."""

    def __init__(self, user: str | None = None) -> None:
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self._schemas: dict[int, dict[str, Any]] = {}
        self._serialized: dict[int, str] = {}
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: Any) -> None:
                world.asked.append(f"{self.command} {self.path}")
                wanted = None if user is None else f"Basic {base64.b64encode(user.encode()).decode()}"
                document: Mapping[str, Any]
                if wanted is not None and self.headers.get("Authorization") != wanted:
                    code, document = 401, {"error_code": 401, "message": "Unauthorized"}
                else:
                    code, document = world.answer(self.path, body)
                reply = json.dumps(document).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(self, subject: str, schema: str, **more: Any) -> int:
        """A new version of a subject.  Of Protobuf ``schema`` is serialized, which a request has to ask for."""
        known = next((each for each, found in self._schemas.items() if found == {"schema": schema, **more}), None)
        number = known or len(self._schemas) + 1
        self._schemas[number] = {"schema": schema, **more}
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, target: str, body: Any) -> tuple[int, Mapping[str, Any]]:
        """The code and the document of a reply."""
        parts = [unquote(each) for each in urlsplit(target).path.strip("/").split("/")]
        is_serialized = urlsplit(target).query == "format=serialized"
        match parts:
            case ["schemas", "ids", number] if int(number) in self._schemas:
                return 200, self._told(int(number), is_serialized=is_serialized)
            case ["schemas", "ids", number]:
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            case ["subjects", subject, "versions"]:
                kind = {"schemaType": body["schemaType"]} if "schemaType" in body else {}
                return 200, {"id": self.register(subject, body["schema"], **kind)}
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                found = self.subjects[subject][-1 if version == "latest" else int(version) - 1]
                told = self._told(found, is_serialized=is_serialized)
                return 200, {"subject": subject, "id": found, "version": len(self.subjects[subject]), **told}
            case ["subjects", subject, *_]:
                return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _told(self, number: int, *, is_serialized: bool) -> dict[str, Any]:
        found = self._schemas[number]
        if found.get("schemaType") == "PROTOBUF" and not is_serialized:
            return {**found, "schema": 'syntax = "proto3"; …'}
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

"""The driver's side of PROTOCOL.md, shared by the Python clients: reads requests, calls the client, answers.

Owns: a thread for each request that runs, the open objects, and base64.  A client hands in its classes, whose methods
are the operations and take the request.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

Request = dict[str, Any]
THREADS = 64


def encoded(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def decoded(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


class Driver:
    """``kinds`` makes the objects, by the operation that opens them; ``code_of`` is Kafka's code of an error, or -1."""

    def __init__(
        self, hello: Request, kinds: Mapping[str, Callable[[Request], Any]], code_of: Callable[[BaseException], int]
    ) -> None:
        self._hello = hello
        self._kinds = kinds
        self._code_of = code_of
        self._objects: dict[int, Any] = {}
        self._handles = count(1)
        self._writing = threading.Lock()

    def run(self) -> None:
        """Until stdin ends."""
        with ThreadPoolExecutor(THREADS) as threads:
            for line in sys.stdin:
                threads.submit(self._answer, json.loads(line))
        for left in self._objects.values():
            left.close({})

    def _answer(self, request: Request) -> None:
        reply: Request = {"id": request["id"]}
        try:
            reply["result"] = self._handle(request)
        except Exception as error:
            reply["error"] = {"code": self._code_of(error), "message": repr(error)}
        with self._writing:
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()

    def _handle(self, request: Request) -> Any:
        op = request["op"]
        if op == "hello":
            return self._hello
        if op in self._kinds:
            handle = next(self._handles)
            self._objects[handle] = self._kinds[op](request)
            return handle
        target = self._objects.pop(request["on"]) if op == "close" else self._objects[request["on"]]
        return getattr(target, op)(request)

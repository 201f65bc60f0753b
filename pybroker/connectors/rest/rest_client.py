"""The other end of the REST interface: requests of the client commands, to a supervisor or to Kafka Connect.

Owns the request, the words of a refusal, and the wait for a supervisor that does not work yet.  A password comes from a
file, and goes over TLS or to this machine.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pybroker.config.properties import parse_properties
from pybroker.operating_system import system_reason

TIMEOUT_S: Final = 60.0
# A supervisor works some seconds after it listens; one that follows a killed one waits for its session's end, too.
PATIENCE_S: Final = 30.0
_PAUSE_LEAST_S: Final = 0.2
_BYTES_MAX: Final = 64 * 1024 * 1024
_UNAVAILABLE: Final = 503


class ReplyRefused(Exception):
    """A request was not done: Connect's words, or why no answer came."""


class NoAnswer(ReplyRefused):
    """No supervisor is there, or none that works."""


class _NotYet(NoAnswer):
    """It may be done after a pause of so many seconds."""

    def __init__(self, message: str, pause_s: float) -> None:
        super().__init__(message)
        self.pause_s = pause_s


class RestClient:
    """Requests to ``url``; ``login`` is a file of users and passwords, of which the first one is taken.

    A supervisor that says when to ask again (503 with ``Retry-After``) is asked again, for ``patience_s``.  ``on_wait``
    gets a line when the second such answer comes.  ``pause`` waits some seconds, and may raise what ends the wait.
    """

    def __init__(
        self,
        url: str,
        login: Path | None = None,
        *,
        on_wait: Callable[[str], None] = lambda line: None,
        pause: Callable[[float], None] = time.sleep,
        patience_s: float = PATIENCE_S,
    ) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ReplyRefused(f"{parts.scheme}://{parts.hostname or ''} is no http:// or https:// address")
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._on_wait, self._pause, self._patience_s = on_wait, pause, patience_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if login is not None:
            users = logins_of(login)
            user, word = next(iter(users.items()))
            token = base64.b64encode(f"{user}:{word}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def ask(self, method: str, *path: str, body: Any = None, **query: str | Sequence[str]) -> Any:
        """The document of the reply, None where it has none; ReplyRefused."""
        target = "/".join((self._url, *(quote(part, safe="") for part in path)))
        if query:
            target += f"?{urlencode(query, doseq=True)}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(target, data, self._headers, method=method)
        deadline_s = time.monotonic() + self._patience_s
        has_waited = has_told = False
        while True:
            try:
                return self._answer(request)
            except _NotYet as not_yet:
                left_s = deadline_s - time.monotonic()
                if not_yet.pause_s > left_s:
                    raise
                if has_waited and not has_told:
                    self._on_wait(f"{not_yet} at {self._url}; it is waited for up to {left_s:.0f} s more")
                    has_told = True
                self._pause(not_yet.pause_s)
                has_waited = True

    def _answer(self, request: Request) -> Any:
        try:
            with build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S) as reply:
                return _document(reply.read(_BYTES_MAX))
        except HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (URLError, OSError) as error:
            raise NoAnswer(f"{self._url} does not answer: {system_reason(error)}") from None


def logins_of(file: Path) -> dict[str, str]:
    """Users and passwords of a file of properties; ReplyRefused, OSError."""
    try:
        found = parse_properties(file.read_text(encoding="utf-8"))
    except ValueError:
        raise ReplyRefused(f"{file} is no file of properties in UTF-8") from None
    if not found or "" in found.values():
        raise ReplyRefused(f"{file} must have lines USER=PASSWORD")
    return found


class _NoRedirect(HTTPRedirectHandler):
    """A password does not follow to another place."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _refusal(error: HTTPError) -> ReplyRefused:
    message = _message(error.read(_BYTES_MAX), error.code)
    if error.code != _UNAVAILABLE:
        return ReplyRefused(message)
    again_after = error.headers.get("Retry-After", "")
    # A date, which the header may have, too, is for those who wait for longer.
    return _NotYet(message, max(int(again_after), _PAUSE_LEAST_S)) if again_after.isdecimal() else NoAnswer(message)


def _document(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        raise ReplyRefused("the reply is no JSON: is this Kafka Connect's REST interface?") from None


def _message(raw: bytes, code: int) -> str:
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    message = found.get("message") if isinstance(found, dict) else None
    return str(message) if message else f"the reply is {code}"

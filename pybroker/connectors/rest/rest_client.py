"""The other end of the REST interface: requests of the client commands, to a supervisor or to Kafka Connect.

Owns the request, the words of a refusal, and the wait for a supervisor that does not work yet.  A password comes from a
file, and goes over TLS or to this machine.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Sequence
from http.client import BadStatusLine, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request

from pybroker.bounded_http import Bounds, Reply, TooMuch, exchange
from pybroker.config.properties import parse_properties
from pybroker.operating_system import system_reason

TIMEOUT_S: Final = 60.0
WHOLE_S: Final = 120.0
# A supervisor works some seconds after it listens; one that follows a killed one waits for its session's end, too.
PATIENCE_S: Final = 30.0
_PAUSE_LEAST_S: Final = 0.2
_BYTES_MAX: Final = 64 * 1024 * 1024
_UNAVAILABLE: Final = 503
_NO_JSON: Final = "the reply is no JSON: is this Kafka Connect's REST interface?"


class ReplyRefused(Exception):
    """A request was not done: Connect's words, or why no answer came."""


class NoAnswer(ReplyRefused):
    """No supervisor is there, or none that works; ``may_be_done``: the request was sent, and no reply came."""

    def __init__(self, told: str, *, may_be_done: bool = False) -> None:
        super().__init__(told)
        self.may_be_done = may_be_done


class _NotYet(NoAnswer):
    """It may be done after a pause of so many seconds."""

    def __init__(self, told: str, pause_s: float) -> None:
        super().__init__(told)
        self.pause_s = pause_s


class RestClient:
    """Requests to ``url``, an address or several with commas between: to the first of them that answers.

    ``login`` is a file of users and passwords, of which the first one is taken.  Where none answers, and one says when
    to ask again (503 with ``Retry-After``), all are asked again, for ``patience_s``.  ``on_wait`` gets a line when that
    is so for the second time.  ``pause`` waits some seconds, and may raise what ends the wait.
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
        self._urls = [_address(each.strip()) for each in url.split(",")]
        self._on_wait, self._pause, self._patience_s = on_wait, pause, patience_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if login is not None:
            users = logins_of(login)
            user, word = next(iter(users.items()))
            token = base64.b64encode(f"{user}:{word}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def ask(self, method: str, *path: str, body: Any = None, **query: str | Sequence[str]) -> Any:
        """The document of the reply, None where it has none; ReplyRefused."""
        target = "".join(f"/{quote(part, safe='')}" for part in path)
        if query:
            target += f"?{urlencode(query, doseq=True)}"
        data = None if body is None else json.dumps(body).encode()
        deadline_s = time.monotonic() + self._patience_s
        has_waited = has_told = False
        while True:
            try:
                return self._first_answer(method, target, data)
            except _NotYet as not_yet:
                left_s = deadline_s - time.monotonic()
                if not_yet.pause_s > left_s:
                    raise
                if has_waited and not has_told:
                    self._on_wait(f"{not_yet} at {self._urls[0]}; it is waited for up to {left_s:.0f} s more")
                    has_told = True
                self._pause(not_yet.pause_s)
                has_waited = True

    def _first_answer(self, method: str, target: str, data: bytes | None) -> Any:
        """Of the addresses, which stay in this order until another one answers: it is asked first from then on.

        A supervisor that waits (503) has done nothing, and one that is away neither.  What was cut off may have been
        done: it is asked of the next one, too, where doing it twice is doing it once.
        """
        told, pauses = [], []
        for at, url in enumerate(self._urls):
            try:
                found = self._ask_at(url, method, target, data)
            except NoAnswer as error:
                told.append(str(error))
                if isinstance(error, _NotYet):
                    pauses.append(error.pause_s)
                if error.may_be_done and method == "POST":
                    pauses.clear()
                    break
            else:
                self._urls = [url, *self._urls[:at], *self._urls[at + 1 :]]
                return found
        reason = "; ".join(told)
        raise _NotYet(reason, min(pauses)) if pauses else NoAnswer(reason)

    def _ask_at(self, url: str, method: str, target: str, data: bytes | None) -> Any:
        request = Request(url + target, data, self._headers, method=method)
        try:
            return _reply_to(request)
        except OSError as error:
            # urllib's own error is of the connection and the request, others of the reply.
            cut_off = not isinstance(error, URLError)
            raise NoAnswer(f"{url} does not answer: {system_reason(error)}", may_be_done=cut_off) from None
        except BadStatusLine as error:
            raise NoAnswer(
                f"{url} does not answer in HTTP: {str(error.args[0]).strip()[:80]}", may_be_done=True
            ) from None
        except HTTPException:
            raise NoAnswer(f"{url} does not answer: the reply was cut off", may_be_done=True) from None


def _reply_to(request: Request) -> Any:
    try:
        reply = exchange(request, Bounds(TIMEOUT_S, TIMEOUT_S, WHOLE_S, _BYTES_MAX), reads_errors=True)
    except TooMuch:
        raise ReplyRefused(_NO_JSON) from None
    if reply.is_error:
        raise _refusal(reply)
    return _document(reply.body)


def _address(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ReplyRefused(f"{parts.scheme}://{parts.hostname or ''} is no http:// or https:// address")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def logins_of(file: Path) -> dict[str, str]:
    """Users and passwords of a file of properties; ReplyRefused, OSError."""
    try:
        found = parse_properties(file.read_text(encoding="utf-8"))
    except ValueError:
        raise ReplyRefused(f"{file} is no file of properties in UTF-8") from None
    if not found or "" in found.values():
        raise ReplyRefused(f"{file} must have lines USER=PASSWORD")
    return found


def _refusal(reply: Reply) -> ReplyRefused:
    message = _message(reply.body, reply.status)
    if reply.status != _UNAVAILABLE:
        return ReplyRefused(message)
    again_after = reply.headers.get("Retry-After", "")
    # A date, which the header may have, too, is for those who wait for longer.
    return _NotYet(message, max(int(again_after), _PAUSE_LEAST_S)) if again_after.isdecimal() else NoAnswer(message)


def _document(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise ReplyRefused(_NO_JSON) from None


def _message(raw: bytes, code: int) -> str:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    message = found.get("message") if isinstance(found, dict) else None
    return str(message) if message else f"the reply is {code}"

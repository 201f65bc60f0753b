"""Requests of connectors to a server.  One that is away, or asks for patience, is waited for.

Owns what an outage is, as opposed to a refusal, and the wait.  Follows no redirection: a secret stays with the server
that it is for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http.client import HTTPException, InvalidURL
from time import monotonic
from typing import Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pybroker.connectors.kinds.connector_runs import Work
from pybroker.operating_system import system_reason

ASKS_FOR_PATIENCE: Final = frozenset({429, 502, 503, 504})
ASK_AGAIN_AFTER_S: Final = 0.5

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class Away(Exception):
    """The server cannot be had now."""


class CodeRefused(Exception):
    """The server answers with a code that a wait does not change."""

    def __init__(self, code: int) -> None:
        super().__init__(f"answers {code}")
        self.code = code


class ServerGone(RuntimeError):
    """The server was away for longer than the connector waits, or the waiting was ended."""


def body_of(request: Request, timeout_s: float, most: int | None = None) -> bytes:
    """What a server answers, up to ``most`` bytes; raises `Away` and `CodeRefused`."""
    try:
        with build_opener(_NoRedirect).open(request, timeout=timeout_s) as reply:
            found: bytes = reply.read(most)
            return found
    except HTTPError as error:
        with error:
            if error.code in ASKS_FOR_PATIENCE:
                raise Away(f"answers {error.code}") from None
            raise CodeRefused(error.code) from None
    except InvalidURL:
        raise
    except (URLError, HTTPException, OSError) as error:
        raise Away(f"does not answer: {system_reason(error)}") from None


def waited_for(work: Work, server: str, ask: Callable[[], _T]) -> _T:
    """What ``ask`` gives once it does not raise `Away`; raises `ServerGone` after the connector's patience."""
    deadline = monotonic() + work.patience_s
    is_away = False
    while True:
        try:
            found = ask()
        except Away as away:
            if monotonic() > deadline or work.ends.is_set():
                raise ServerGone(f"{server}: {away}") from None
            if not is_away:
                told = "%s: %s: %s; waiting for it up to %.0f s"
                _log.warning(told, work.name, server, away, work.patience_s)
                is_away = True
            work.ends.wait(ASK_AGAIN_AFTER_S)
            continue
        if is_away:
            _log.warning("%s: %s answers again", work.name, server)
        return found


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None

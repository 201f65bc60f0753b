"""Requests of connectors to a server.  One that is away, or asks for patience, is waited for.

Owns what an outage is, as opposed to a refusal, and the wait, which is as long as the server asks for.  An answer is
not unpacked.  Does not own an exchange's bounds, nor that a secret stays with the server that it is for
(``bounded_http``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, InvalidURL
from ssl import SSLCertVerificationError
from time import monotonic
from typing import Final, TypeVar
from urllib.request import Request

from pybroker.bounded_http import Bounds, TooMuch, exchange
from pybroker.connectors.kinds.connector_runs import Work
from pybroker.operating_system import system_reason

ASKS_FOR_PATIENCE: Final = frozenset({429, 502, 503, 504})
ASK_AGAIN_AFTER_S: Final = 0.5
# A server may ask for any time.
PAUSE_MAX_S: Final = 300.0
# A server that sends a byte now and then is away, too.
WHOLE_S: Final = 300.0
BYTES_MAX: Final = 64 * 1024 * 1024
_CANNOT_BE_SENT: Final = "cannot be asked: its URL is none of HTTP, or the URL or a header has characters that none has"

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class Away(Exception):
    """The server cannot be had now; ``pause_s`` is how long it asks to be left alone."""

    def __init__(self, told: str, pause_s: float = 0.0) -> None:
        super().__init__(told)
        self.pause_s = pause_s


class CallRefused(Exception):
    """What a wait does not change: the request cannot be sent, or the answer cannot be read."""


class CodeRefused(CallRefused):
    """The server answers with a code that a wait does not change."""

    def __init__(self, code: int) -> None:
        super().__init__(f"answers {code}")
        self.code = code


class ServerGone(RuntimeError):
    """The server was away for longer than the connector waits, or the waiting was ended."""


def body_of(url: str, headers: Mapping[str, str], timeout_s: float, sent: bytes | None = None) -> bytes:
    """What a server answers to GET, or to POST where something is sent; raises `Away` and `CallRefused`.

    Neither quotes the URL or a header, which may have what a reference has found.
    """
    try:
        reply = exchange(Request(url, sent, dict(headers)), Bounds(timeout_s, timeout_s, WHOLE_S, BYTES_MAX))
    except TooMuch:
        raise CallRefused(f"answers with more than {BYTES_MAX} bytes") from None
    except (InvalidURL, UnicodeError):
        raise CallRefused(_CANNOT_BE_SENT) from None
    except (HTTPException, OSError) as error:
        if (why := _distrust(error)) is not None:
            raise CallRefused(f"has a certificate that is not trusted: {why}") from None
        raise Away(f"does not answer: {system_reason(error)}") from None
    except ValueError:
        raise CallRefused(_CANNOT_BE_SENT) from None
    if reply.status in ASKS_FOR_PATIENCE:
        raise Away(f"answers {reply.status}", _asked_pause_s(reply.headers.get("Retry-After")))
    if reply.is_error:
        raise CodeRefused(reply.status)
    packed = reply.headers.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise CallRefused(f"answers with content that is packed by {packed[:20]}, which was not asked for")
    return reply.body


def _distrust(error: Exception) -> str | None:
    """Why a certificate is not trusted, where that is the error: a wait does not change it."""
    for each in (error, getattr(error, "reason", None)):
        if isinstance(each, SSLCertVerificationError):
            return each.verify_message.partition(",")[0]  # behind it may be the host, which a reference may have found
    return None


def _asked_pause_s(header: str | None) -> float:
    """What ``Retry-After`` says, seconds or a date; 0 for what is neither."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()


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
            pause_s = min(max(away.pause_s, ASK_AGAIN_AFTER_S), PAUSE_MAX_S)
            work.ends.wait(min(pause_s, max(deadline - monotonic(), 0.0)))
            continue
        if is_away:
            _log.warning("%s: %s answers again", work.name, server)
        return found

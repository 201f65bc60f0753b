"""Fetching a key set: by http, https or from a file.

Owns: which of them it is, and how much a set may be.  Blocks: it is for a thread.  Does not own an exchange's bounds of
time (``bounded_http``).

Kafka counterpart: HttpsJwks of jose4j, and JwksFileVerificationKeyResolver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from urllib.request import Request

    from pybroker.security.key_sets import KeySource

# A key set (JWKS) that is fetched: a hundred keys of 4096 bits are 80 kB.
KEY_SET_BYTES_MAX = 1_000_000


def fetch_keys(source: KeySource) -> bytes:
    """What is there.  OSError where it cannot be had by http, ValueError where it is too much, or in no file."""
    from urllib.parse import urlsplit
    from urllib.request import Request, url2pathname

    parts = urlsplit(source.url)
    if parts.scheme == "file":
        from pybroker.config.named_files import read_named_file

        path = url2pathname(parts.path)
        return read_named_file(path, "sasl.oauthbearer.jwks.endpoint.url", KEY_SET_BYTES_MAX)
    return _fetched(Request(source.url, headers={"Accept": "application/json"}), source)


def _fetched(request: Request, source: KeySource) -> bytes:
    from http.client import HTTPException

    from pybroker.bounded_http import LATE, Bounds, exchange, is_late

    connect_s, read_s = source.connect_timeout_ms / 1_000, source.read_timeout_ms / 1_000
    try:
        reply = exchange(request, Bounds(connect_s, read_s, connect_s + read_s, KEY_SET_BYTES_MAX))
    except (OSError, HTTPException) as error:
        if is_late(error):
            raise TimeoutError(LATE) from None
        raise OSError(str(error)) from error
    if reply.is_error:
        raise OSError(f"HTTP Error {reply.status}: {reply.reason}")
    return reply.body

"""Fetching a key set: by http, https or from a file.

Owns: which of them it is, and how much a set may be.  Blocks: it is for a thread.  Does not own an exchange's bounds of
time (``bounded_http``).

Kafka counterpart: HttpsJwks of jose4j, and JwksFileVerificationKeyResolver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from pybroker.net.bounded_http import exchange

    request = Request(source.url, headers={"Accept": "application/json"})
    return exchange(request, source.connect_timeout_ms, source.read_timeout_ms, KEY_SET_BYTES_MAX)

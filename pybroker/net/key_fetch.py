"""Fetching a key set: by http, https or from a file.

Owns: one exchange with whoever keeps the set, within bounds of time and size.  Blocks: it is for a thread.

A redirection is not followed, so that nobody but the address in the settings says where keys come from.

Kafka counterpart: HttpsJwks of jose4j, and JwksFileVerificationKeyResolver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker import limits

if TYPE_CHECKING:
    from pybroker.security.key_sets import KeySource


def fetch_keys(source: KeySource) -> bytes:
    """What is there.  OSError where it cannot be had, ValueError where it is too much to be a key set."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(source.url)
    if parts.scheme == "file":
        with open(url2pathname(parts.path), "rb") as file:
            data = file.read(limits.KEY_SET_BYTES_MAX + 1)
    else:
        data = _get(source)
    if len(data) > limits.KEY_SET_BYTES_MAX:
        raise ValueError(f"it has more than {limits.KEY_SET_BYTES_MAX} bytes")
    return data


def _get(source: KeySource) -> bytes:
    from time import monotonic
    from urllib.request import Request, build_opener

    deadline = monotonic() + (source.connect_timeout_ms + source.read_timeout_ms) / 1_000
    request = Request(source.url, headers={"Accept": "application/json"})
    parts, size = [], 0
    with build_opener(_no_redirection()).open(request, timeout=source.connect_timeout_ms / 1_000) as response:
        while part := response.read1(65_536):
            parts.append(part)
            size += len(part)
            if size > limits.KEY_SET_BYTES_MAX:
                break
            if monotonic() > deadline:
                raise TimeoutError("it did not come in time")
    return b"".join(parts)


def _no_redirection() -> type:
    from urllib.request import HTTPRedirectHandler

    class NoRedirection(HTTPRedirectHandler):
        """Leaves a redirection as the answer, which is an error."""

        def redirect_request(self, *_: object) -> None:
            return None

    return NoRedirection

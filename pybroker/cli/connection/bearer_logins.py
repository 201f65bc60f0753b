"""Logins of the commands by bearer tokens (OAUTHBEARER): out of a file, or of a token endpoint.

Owns: when a token is asked for. A file is read at each login, an endpoint asked again once its token is not fresh any
more, so that a session which ends is begun anew.  Owns no question to an endpoint (``net/token_endpoint``), and no
check of a token: that is the broker's.

Served is the client credentials grant of RFC 6749, and a file that another program keeps fresh. No error quotes a token
or a secret.

Counterpart in Kafka: ``DefaultJwtRetriever``, with ``FileJwtRetriever``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from time import monotonic, time
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pybroker.config.named_files import read_named_text
from pybroker.public import TOKEN_ENDPOINT_URL, TOKEN_FRESH_FOR, TOKEN_SETTINGS, checked_token, token_endpoint

# Classes of Kafka's that come to what is done here.
_CLASSES: Final = {
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.oauthbearer.jwt.retriever.class": (
        "DefaultJwtRetriever",
        "FileJwtRetriever",
        "ClientCredentialsJwtRetriever",
    ),
}
# What ``bearer_tokens`` reads, or may leave aside.
SETTINGS: Final = TOKEN_SETTINGS | _CLASSES.keys()
# After so long the file is read again, by a library that logs in with a token for as long as that is good.
_LOOKED_AT_AGAIN_S: Final = 60.0


def bearer_tokens(properties: Mapping[str, str]) -> BearerTokens:
    """Tokens, of which the first is there already; ValueError and OSError, which name the setting."""
    for setting, classes in _CLASSES.items():
        name = properties.get(setting)
        if name is not None and name.rpartition(".")[2] not in classes:
            raise ValueError(f"{setting}: only {', '.join(classes)} is served")
    parts = urlsplit(properties.get(TOKEN_ENDPOINT_URL, ""))
    if parts.scheme == "file":
        path = url2pathname(parts.path)
        tokens = BearerTokens(lambda: (checked_token(read_named_text(path, TOKEN_ENDPOINT_URL).strip(), path), 0.0))
    elif parts.scheme in ("http", "https"):
        tokens = BearerTokens(token_endpoint(properties.get).fetch)
    else:
        raise ValueError(f"{TOKEN_ENDPOINT_URL}: a URL of https, http or file:/// has to say where tokens are")
    tokens.token()
    return tokens


class BearerTokens:
    """``fetch()`` gives a token, and for how many seconds it is good."""

    def __init__(self, fetch: Callable[[], tuple[str, float]]) -> None:
        self._fetch = fetch
        self._lock = Lock()
        self._token = ""
        self._fresh_until = 0.0

    def token(self) -> str:
        """Called by any thread that logs in."""
        with self._lock:
            if monotonic() >= self._fresh_until:
                self._token, lifetime_s = self._fetch()
                self._fresh_until = monotonic() + lifetime_s * TOKEN_FRESH_FOR
            return self._token

    def with_expiry(self, _configuration: str = "") -> tuple[str, float]:
        """A token, and when to ask for the next one at the latest, in seconds since the epoch: for librdkafka."""
        token = self.token()
        return token, time() + max(self._fresh_until - monotonic(), _LOOKED_AT_AGAIN_S)

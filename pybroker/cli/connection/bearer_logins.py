"""Logins of the commands by bearer tokens (OAUTHBEARER): out of a file, or of a token endpoint.

Owns: Kafka's client settings of OAUTHBEARER, and the tokens that follow from them.  A file is read
at each login, an endpoint asked again once its token is not fresh any more, so that a session which ends is begun anew.
Owns no check of a token: that is the broker's.

Served is the client credentials grant of RFC 6749, and a file that another program keeps fresh. No error quotes a token
or a secret.

Counterpart in Kafka: ``DefaultJwtRetriever``, with ``FileJwtRetriever`` and ``ClientCredentialsJwtRetriever``.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from threading import Lock
from time import monotonic, time
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname

from pybroker.config import jaas
from pybroker.config.named_files import read_named_text
from pybroker.operating_system import system_reason

MECHANISM: Final = "OAUTHBEARER"

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE: Final = "sasl.oauthbearer.scope"
_JAAS: Final = "sasl.jaas.config"
_CONNECT_TIMEOUT: Final = "sasl.login.connect.timeout.ms"
# The older names of these settings, which are options of the login module.
_OPTIONS: Final = {_ID: "clientId", _SECRET: "clientSecret", _SCOPE: "scope"}
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
SETTINGS: Final = frozenset(
    {_URL, _ID, _SECRET, _SCOPE, _JAAS, _CONNECT_TIMEOUT, "sasl.login.read.timeout.ms", *_CLASSES}
)
_TIMEOUT_MS: Final = "10000"
_ANSWER_BYTES_MAX: Final = 1 << 20
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
# So much of its life a token is used for: sasl.login.refresh.window.factor.
_FRESH_FOR: Final = 0.8
# After so long the file is read again, by a library that logs in with a token for as long as that is good.
_LOOKED_AT_AGAIN_S: Final = 60.0


def bearer_tokens(properties: Mapping[str, str]) -> BearerTokens:
    """Tokens, of which the first is there already; ValueError and OSError, which name the setting."""
    for setting, classes in _CLASSES.items():
        name = properties.get(setting)
        if name is not None and name.rpartition(".")[2] not in classes:
            raise ValueError(f"{setting}: only {', '.join(classes)} is served")
    url = properties.get(_URL, "")
    parts = urlsplit(url)
    if parts.scheme == "file":
        tokens = BearerTokens(lambda: (_token_of_file(url2pathname(parts.path)), 0.0))
    elif parts.scheme in ("http", "https"):
        form, headers = _asked(properties)
        timeout_s = int(properties.get(_CONNECT_TIMEOUT, _TIMEOUT_MS)) / 1_000
        tokens = BearerTokens(lambda: _token_of_endpoint(Request(url, form, headers), timeout_s))
    else:
        raise ValueError(f"{_URL}: a URL of https, http or file:/// has to say where tokens are")
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
                self._fresh_until = monotonic() + lifetime_s * _FRESH_FOR
            return self._token

    def with_expiry(self, _configuration: str = "") -> tuple[str, float]:
        """A token, and when to ask for the next one at the latest, in seconds since the epoch: for librdkafka."""
        token = self.token()
        return token, time() + max(self._fresh_until - monotonic(), _LOOKED_AT_AGAIN_S)


def _token_of_file(path: str) -> str:
    return _checked(read_named_text(path, _URL).strip(), path)


def _checked(token: Any, source: str) -> str:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError(f"{_URL}: {source} holds no token")
    return token


def _asked(properties: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """The form and the headers of a request for a token."""
    (module, *_) = jaas.parse(properties[_JAAS]) if _JAAS in properties else (jaas.LoginModule("", "", {}),)
    given = {setting: properties.get(setting, module.options.get(option)) for setting, option in _OPTIONS.items()}
    for setting in (_ID, _SECRET):
        if not given[setting]:
            raise ValueError(f"{setting} is not set: the token endpoint wants to know who asks")
    form = {"grant_type": "client_credentials", **({"scope": given[_SCOPE]} if given[_SCOPE] else {})}
    who = b64encode(f"{given[_ID]}:{given[_SECRET]}".encode()).decode()
    return urlencode(form).encode(), {"Accept": "application/json", "Authorization": f"Basic {who}"}


class _NoRedirection(HTTPRedirectHandler):
    """Leaves a redirection as the answer, which is an error: the named server alone is shown the secret."""

    def redirect_request(self, *_: object) -> None:
        return None


def _token_of_endpoint(request: Request, timeout_s: float) -> tuple[str, float]:
    try:
        with build_opener(_NoRedirection()).open(request, timeout=timeout_s) as response:
            answer = json.loads(response.read(_ANSWER_BYTES_MAX))
    except HTTPError as error:
        error.close()
        raise ValueError(f"{_URL}: {request.host} answers with {error.code} {error.reason}") from None
    except OSError as error:
        raise ValueError(f"{_URL}: {request.host} does not answer: {system_reason(error)}") from None
    except ValueError:
        raise ValueError(f"{_URL}: {request.host} does not answer in JSON") from None
    if not isinstance(answer, dict):
        answer = {}
    lifetime_s = answer.get("expires_in")
    return _checked(answer.get("access_token"), f"the answer of {request.host}"), (
        float(lifetime_s) if isinstance(lifetime_s, int | float) else 0.0
    )

"""Asking a token endpoint for a bearer token (OAUTHBEARER): the client credentials grant of RFC 6749.

Owns: Kafka's client settings that say whom to ask and as whom, the question, and what its answer says.  Blocks: it is
for a thread, or a command.  Owns neither an exchange's bounds (``bounded_http``) nor when a token is asked for
(``source_tokens``, and those of the commands).  Its check is that of the broker which gets it.

Invariant: no error quotes a token or a secret.

Counterpart in Kafka: ``ClientCredentialsJwtRetriever``.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit
from urllib.request import Request

from pybroker.bounded_http import LATE, Bounds, exchange, is_late
from pybroker.config import jaas
from pybroker.operating_system import system_reason

TOKEN_ENDPOINT_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE: Final = "sasl.oauthbearer.scope"
_CONNECT_TIMEOUT: Final = "sasl.login.connect.timeout.ms"
_READ_TIMEOUT: Final = "sasl.login.read.timeout.ms"
_JAAS: Final = "sasl.jaas.config"
# The older names of these settings, which are options of the login module.
_OPTIONS: Final = {_CLIENT_ID: "clientId", _CLIENT_SECRET: "clientSecret", _SCOPE: "scope"}
TOKEN_SETTINGS: Final = frozenset(
    {TOKEN_ENDPOINT_URL, _CLIENT_ID, _CLIENT_SECRET, _SCOPE, _JAAS, _CONNECT_TIMEOUT, _READ_TIMEOUT}
)
_TIMEOUT_MS: Final = 10_000  # where no setting says how long an endpoint is waited for
_ANSWER_BYTES_MAX: Final = 1 << 20
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
# So much of its life a token is used for before the next is asked for: sasl.login.refresh.window.factor.
TOKEN_FRESH_FOR: Final = 0.8


class Token(NamedTuple):
    """A token, and for how long it is good, as far as the endpoint says; 0 where it does not."""

    text: str
    lifetime_s: float

    def __repr__(self) -> str:
        return "Token([hidden])"


class TokenEndpoint(NamedTuple):
    """Whom to ask, and as whom.  Printed without the secret."""

    url: str
    form: bytes
    headers: dict[str, str]
    connect_timeout_ms: int
    read_timeout_ms: int

    def __repr__(self) -> str:
        return f"TokenEndpoint({self.url!r})"

    def fetch(self) -> Token:
        """Ask; ValueError, which names the setting, where no token is had."""
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        request = Request(self.url, self.form, self.headers)
        connect_s, read_s = self.connect_timeout_ms / 1_000, self.read_timeout_ms / 1_000
        try:
            reply = exchange(request, Bounds(connect_s, read_s, connect_s + read_s, _ANSWER_BYTES_MAX))
        except (OSError, HTTPException) as error:
            reason = LATE if is_late(error) else system_reason(error)
            raise ValueError(f"{TOKEN_ENDPOINT_URL}: {host} does not answer: {reason}") from None
        if reply.is_error:
            raise ValueError(f"{TOKEN_ENDPOINT_URL}: {host} answers with {reply.status} {reply.reason}")
        try:
            answer = json.loads(reply.body)
        except (ValueError, RecursionError):
            raise ValueError(f"{TOKEN_ENDPOINT_URL}: {host} does not answer in JSON") from None
        if not isinstance(answer, dict):
            answer = {}
        lifetime_s = answer.get("expires_in")
        text = checked_token(answer.get("access_token"), f"the answer of {host}")
        return Token(text, float(lifetime_s) if isinstance(lifetime_s, int | float) else 0.0)


def token_endpoint(setting: Callable[[str], str | int | None]) -> TokenEndpoint:
    """Out of a client's settings, by Kafka's names; ValueError, which names the setting."""
    url, line = str(setting(TOKEN_ENDPOINT_URL) or ""), setting(_JAAS)
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{TOKEN_ENDPOINT_URL}: a URL of https or http has to say where tokens are")
    try:
        options = {} if line is None else jaas.parse(str(line))[0].options
    except jaas.JaasError as error:
        raise ValueError(f"{_JAAS}: {error}") from None
    given = {name: str(setting(name) or options.get(option, "")) for name, option in _OPTIONS.items()}
    for name in (_CLIENT_ID, _CLIENT_SECRET):
        if not given[name]:
            raise ValueError(f"{name} is not set: the token endpoint wants to know who asks")
    form = {"grant_type": "client_credentials", **({"scope": given[_SCOPE]} if given[_SCOPE] else {})}
    who = b64encode(f"{given[_CLIENT_ID]}:{given[_CLIENT_SECRET]}".encode()).decode()
    headers = {"Accept": "application/json", "Authorization": f"Basic {who}"}
    timeouts = [int(setting(name) or _TIMEOUT_MS) for name in (_CONNECT_TIMEOUT, _READ_TIMEOUT)]
    return TokenEndpoint(url, urlencode(form).encode(), headers, *timeouts)


def checked_token(token: Any, source: str) -> str:
    """The token that stands in ``source``; ValueError where that is none."""
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError(f"{TOKEN_ENDPOINT_URL}: {source} holds no token")
    return token

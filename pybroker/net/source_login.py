"""How this broker begins a connection to a broker of a link's source: what that speaks, and who the link is there.

Owns: ApiVersions, SaslHandshake and SaslAuthenticate as a client asks them, and what is answered.  Owns neither the
proof (``security/scram``), nor a token (``source_tokens``), nor the connection (``peer_link``).

Counterpart in Kafka: ``SaslClientAuthenticator``, and ``NetworkClient``'s ApiVersions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.links.source_port import NEEDED_VERSIONS
from pybroker.config import jaas
from pybroker.config.schema import ConfigError
from pybroker.net.peer_login import LoginRefused, SaltedSecret
from pybroker.net.peer_requests import PeerApi
from pybroker.security import oauthbearer, plain
from pybroker.security.sasl import SaslError
from pybroker.security.scram import MECHANISMS, NONCE_BYTES, ScramClient
from pybroker_protocol.api_keys import NAMES
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from pybroker.config.link_config import LinkConfig
    from pybroker.env import Env
    from pybroker.net.source_tokens import SourceTokens

_API_VERSIONS_VERSION: Final = 0
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1
_NOT_TAKEN: Final = "it does not take the token"


class SourceUser:
    """Who a link is at its source; printed without the password.  ConfigError for a line without a user.

    ``tokens`` are there with OAUTHBEARER, and then the line names no user.
    """

    __slots__ = ("mechanism", "password", "salted", "tokens", "user")

    def __init__(self, config: LinkConfig, tokens: SourceTokens | None = None) -> None:
        self.tokens = tokens
        self.mechanism: str | None = None
        self.user = self.password = ""
        self.salted: SaltedSecret | None = None
        if not config.get("security.protocol").startswith("SASL_"):
            return
        self.mechanism = config.get("sasl.mechanism")
        if tokens is not None:
            return
        line, name = config.get("sasl.jaas.config"), config.name_of("sasl.jaas.config")
        if line is None:
            raise ConfigError(f"{name} is not set: with SASL a link needs a user and a password")
        try:
            self.user, self.password, _ = jaas.login_of(line)
        except jaas.JaasError as error:
            raise ConfigError(f"{name}: {error}") from None
        if self.mechanism != plain.MECHANISM:
            self.salted = SaltedSecret(self.password.encode(), MECHANISMS[self.mechanism])

    def __repr__(self) -> str:
        return f"SourceUser({self.mechanism}, {self.user!r})"


class SourceLogin:
    """One begin of a connection: ``begin``, then ``on_reply`` until it ``is_over``.  See ``Login``."""

    __slots__ = ("_api", "_client_id", "_env", "_scram", "_step", "_user", "is_over", "session_lifetime_ms")

    def __init__(self, env: Env, client_id: str, user: SourceUser) -> None:
        self._env = env
        self._client_id = client_id
        self._user = user
        self._scram: ScramClient | None = None
        self._step = 0
        self._api = PeerApi(ApiVersionsRequest, _API_VERSIONS_VERSION)
        self.is_over = False
        self.session_lifetime_ms = 0

    def begin(self, *, again: bool = False) -> bytes:
        """See ``Login``."""
        if not again:
            return self._frame(ApiVersionsRequest())
        # A source whose session is over already takes a handshake, and nothing before it.
        self._step = 1
        return self._handshake()

    def on_reply(self, frame: memoryview) -> bytes:
        """The next frame, b"" once it is over.  LoginRefused."""
        try:
            response = self._api.response(frame, self._step)
            if response.error_code:
                message = getattr(response, "error_message", None) or f"error {response.error_code}"
                if self._user.tokens is not None and self._step >= 2:
                    self._user.tokens.refused(message)
                raise LoginRefused(message)
            self._step += 1
            return self._next(response)
        except (ProtocolError, SaslError) as error:
            raise LoginRefused(str(error)) from error

    def _next(self, response: Any) -> bytes:
        user = self._user
        if self._step == 1:
            _check_versions(response.api_keys)
            if user.mechanism is None:
                return self._end()
            return self._handshake()
        if self._step == 2:
            self._api = PeerApi(SaslAuthenticateRequest, _AUTHENTICATE_VERSION)
            if user.tokens is not None:
                return self._authenticate(oauthbearer.message_of(user.tokens.token()))
            if user.salted is None:
                return self._authenticate(f"\0{user.user}\0{user.password}".encode())
            nonce = self._env.random.randbytes(NONCE_BYTES)
            self._scram = ScramClient(user.salted.mechanism, user.user, user.salted.salted, nonce)
            return self._authenticate(self._scram.first())
        self.session_lifetime_ms = response.session_lifetime_ms
        if user.tokens is not None:
            return self._on_token(response)
        if self._scram is None:
            return self._end()
        if self._step == 3:
            return self._authenticate(self._scram.final(bytes(response.auth_bytes)))
        self._scram.finish(bytes(response.auth_bytes))
        return self._end()

    def _on_token(self, response: Any) -> bytes:
        if not response.auth_bytes and self._step == 3:
            return self._end()
        if self._step == 3:
            return self._authenticate(oauthbearer.CONSENT)  # it is refused: the error comes behind this (RFC 7628)
        assert self._user.tokens is not None
        self._user.tokens.refused(_NOT_TAKEN)
        raise LoginRefused(_NOT_TAKEN)

    def _end(self) -> bytes:
        self.is_over = True
        return b""

    def _handshake(self) -> bytes:
        assert self._user.mechanism is not None
        self._api = PeerApi(SaslHandshakeRequest, _HANDSHAKE_VERSION)
        return self._frame(SaslHandshakeRequest(mechanism=self._user.mechanism))

    def _authenticate(self, auth_bytes: bytes) -> bytes:
        return self._frame(SaslAuthenticateRequest(auth_bytes=auth_bytes))

    def _frame(self, request: Any) -> bytes:
        return self._api.frame(request, self._step, self._client_id)


def _check_versions(served: list[Any]) -> None:
    """LoginRefused for a broker that lacks what a link asks."""
    ranges = {each.api_key: (each.min_version, each.max_version) for each in served}
    for key, version in NEEDED_VERSIONS.items():
        low, high = ranges.get(key, (0, -1))
        if not low <= version <= high:
            what = f"{NAMES[key]} {version}"
            raise LoginRefused(f"it does not speak {what}: a source is Apache Kafka 3.1 or later, or pybroker")

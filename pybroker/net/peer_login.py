"""Proving to another broker that this one belongs to the cluster, before anything is asked of it.

Owns: the three requests of a login (SaslHandshake, and SaslAuthenticate twice), what is answered, and the secret with
its keys, which are derived once.  Owns neither the proof (``security/scram``) nor the connection (``peer_link``).

Over a listener without SASL the mechanism goes by its own name, as to brokers of earlier versions. Over one with SASL,
where clients may use it, too, it goes by one that is the brokers' alone.

Kafka counterpart: SaslClientAuthenticator.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from pybroker.env import Env
from pybroker.net.peer_requests import PeerApi
from pybroker.security.mechanisms import CLUSTER_MECHANISM
from pybroker.security.sasl import SaslError
from pybroker.security.scram import NONCE_BYTES, SHA_256, ScramClient, ScramMechanism
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 2


class LoginRefused(Exception):
    """The other broker does not take this one for one of its cluster, or is none itself."""


class Login(Protocol):
    """What comes before the first request on a connection to another broker."""

    is_over: bool

    @property
    def session_lifetime_ms(self) -> int:
        """After so long the other side ends a connection on which no login has come again (KIP-368); 0: never."""
        ...

    def begin(self, *, again: bool = False) -> bytes:
        """The first frame; ``again``: on a connection that is logged in already."""
        ...

    def on_reply(self, frame: memoryview) -> bytes:
        """The next frame, b"" once it is over.  LoginRefused."""
        ...


class SaltedSecret:
    """A secret, salted as the other side says: all brokers of a cluster say the same salt, so that it is done once."""

    __slots__ = ("_salted", "_secret", "mechanism")

    def __init__(self, secret: bytes, mechanism: ScramMechanism = SHA_256) -> None:
        self._secret = secret
        self.mechanism = mechanism
        self._salted: tuple[bytes, int, bytes] | None = None

    def salted(self, salt: bytes, iterations: int) -> bytes:
        """See ``ScramClient``."""
        if self._salted is None or self._salted[:2] != (salt, iterations):
            self._salted = (salt, iterations, self.mechanism.salted(self._secret, salt, iterations))
        return self._salted[2]


class PeerLogin:
    """One login: ``begin``, then ``on_reply`` until it ``is_over``."""

    __slots__ = ("_api", "_client_id", "_mechanism", "_scram", "_step", "is_over")

    def __init__(self, env: Env, client_id: str, secret: SaltedSecret, over_sasl: bool = False) -> None:
        self._client_id = client_id
        self._mechanism = CLUSTER_MECHANISM if over_sasl else SHA_256.name
        self._scram = ScramClient(SHA_256, client_id, secret.salted, env.random.randbytes(NONCE_BYTES))
        self._step = 0
        self._api = PeerApi(SaslHandshakeRequest, _HANDSHAKE_VERSION)
        self.is_over = False

    @property
    def session_lifetime_ms(self) -> int:
        """A broker is one of the cluster's for as long as it is connected."""
        return 0

    def begin(self, *, again: bool = False) -> bytes:
        """See ``Login``."""
        return self._api.frame(SaslHandshakeRequest(mechanism=self._mechanism), 0, self._client_id)

    def on_reply(self, frame: memoryview) -> bytes:
        """The next frame, b"" once it is over.  LoginRefused."""
        try:
            response = self._api.response(frame, self._step)
            if response.error_code:
                message = getattr(response, "error_message", None) or f"error {response.error_code}"
                raise LoginRefused(f"{message} (is its secret another cluster's?)")
            self._step += 1
            return self._next(response)
        except (ProtocolError, SaslError) as error:
            raise LoginRefused(str(error)) from error

    def _next(self, response: Any) -> bytes:
        if self._step == 1:
            self._api = PeerApi(SaslAuthenticateRequest, _AUTHENTICATE_VERSION)
            return self._frame(self._scram.first())
        if self._step == 2:
            return self._frame(self._scram.final(bytes(response.auth_bytes)))
        self._scram.finish(bytes(response.auth_bytes))
        self.is_over = True
        return b""

    def _frame(self, auth_bytes: bytes) -> bytes:
        return self._api.frame(SaslAuthenticateRequest(auth_bytes=auth_bytes), self._step, self._client_id)

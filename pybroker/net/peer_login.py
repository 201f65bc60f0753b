"""Proving to another broker that this one belongs to the cluster, before anything is asked of it.

Owns: the three requests of a login (SaslHandshake, and SaslAuthenticate twice) and what is answered.  Owns neither the
proof (``cluster/scram``) nor the connection (``peer_link``).

Kafka counterpart: SaslClientAuthenticator.
"""

from __future__ import annotations

from typing import Any, Final

from pybroker.cluster.scram import MECHANISM, NONCE_BYTES, ScramClient, ScramError
from pybroker.env import Env
from pybroker.net.peer_requests import PeerApi
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 2


class LoginRefused(Exception):
    """The other broker does not take this one for one of its cluster, or is none itself."""


class PeerLogin:
    """One login: ``begin``, then ``on_reply`` until it ``is_over``."""

    __slots__ = ("_api", "_client_id", "_scram", "_step", "is_over")

    def __init__(self, env: Env, client_id: str, secret: bytes) -> None:
        self._client_id = client_id
        self._scram = ScramClient(client_id, secret, env.random.randbytes(NONCE_BYTES))
        self._step = 0
        self._api = PeerApi(SaslHandshakeRequest, _HANDSHAKE_VERSION)
        self.is_over = False

    def begin(self) -> bytes:
        """The first frame."""
        return self._api.frame(SaslHandshakeRequest(mechanism=MECHANISM), 0, self._client_id)

    def on_reply(self, frame: memoryview) -> bytes:
        """The next frame, b"" once it is over.  LoginRefused."""
        try:
            response = self._api.response(frame, self._step)
            if response.error_code:
                raise LoginRefused(getattr(response, "error_message", None) or f"error {response.error_code}")
            self._step += 1
            return self._next(response)
        except (ProtocolError, ScramError) as error:
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

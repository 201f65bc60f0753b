"""PLAIN (RFC 4616): a name and a password, checked against those of the JAAS configuration.

Owns: the message and its check.  Texts of refusals are Kafka's, which say nothing of whether a user exists.

Counterpart in Kafka: ``PlainSaslServer`` and ``PlainServerCallbackHandler``.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from pybroker.security.sasl import SaslRefused

MECHANISM: Final = "PLAIN"
LOGIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USER_PREFIX: Final = "user_"


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Passwords by user: the options ``user_<name>`` of a login module."""
    return {name[len(_USER_PREFIX) :]: text for name, text in options.items() if name.startswith(_USER_PREFIX)}


class PlainServer:
    """One exchange, of one message.  See ``SaslServer``."""

    __slots__ = ("_passwords", "user")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user: str | None = None

    @property
    def expires_at_ms(self) -> int | None:
        return None

    @property
    def is_token(self) -> bool:
        return False

    def evaluate(self, token: bytes) -> bytes:
        """Nothing; SaslRefused unless name and password are right."""
        tokens = token.decode(errors="replace").split("\0", 3)
        if len(tokens) != 3:
            raise SaslRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        authorization_id, user, password = tokens
        if not user:
            raise SaslRefused("Authentication failed: username not specified")
        if not password:
            raise SaslRefused("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        # One who does not exist is compared, too: how long it takes tells nothing.
        is_right = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not is_right:
            raise SaslRefused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""

"""OAUTHBEARER (RFC 7628): a client shows a token that another party has signed.

Owns: the messages of a client, the answer to a token that is not accepted, and what follows from one that is.  Owns
neither the check of a token (``bearer_tokens``) nor the keys that it takes (``key_sets``).

Invariants: what is wrong with a token is for the log alone: clients are told ``invalid_token``; extensions change
nothing; an authorization id that is not the token's is refused.

Counterpart in Kafka: ``OAuthBearerSaslServer`` and ``OAuthBearerClientInitialResponse``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from pybroker.security.sasl import NotYet, SaslError, SaslRefused

MECHANISM: Final = "OAUTHBEARER"
LOGIN_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
# What a client says whose token is not accepted: the error comes behind it.
CONSENT: Final = b"\x01"
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
_SEPARATOR: Final = b"\x01"
_AUTHORIZATION_ID: Final = re.compile(rb"n,(?:a=((?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,")
_PAIR: Final = re.compile(rb"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_BEARER: Final = re.compile(rb"bearer +([-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)


class BearerToken(NamedTuple):
    """What a token that was accepted says: whose it is, and until when, by the wall's clock."""

    user: str
    expires_at_ms: int


class InvalidToken(Exception):
    """A token that is not accepted.  The text is for the log, and has nothing of the token's."""


class Message(NamedTuple):
    """What the client says first; an empty authorization id says nothing.

    The id is as it was sent: Kafka does not turn `=2C` and `=3D` of RFC 5801 back into a comma and an equals sign.
    """

    token: str
    authorization_id: str


def message_of(token: str) -> bytes:
    """What a client says first that shows a token."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def parse(data: bytes) -> Message:
    """The client's message; SaslError for what is none."""
    header, *pairs = data.split(_SEPARATOR)
    match = _AUTHORIZATION_ID.fullmatch(header)
    # Each pair ends with a separator, and the message with another one.
    if match is None or pairs[-2:] != [b"", b""]:
        raise SaslError("a message is not as it has to be")
    found: dict[bytes, bytes] = {}
    for pair in pairs[:-2]:
        parts = _PAIR.fullmatch(pair)
        if parts is None:
            raise SaslError("a message is not as it has to be")
        found[parts[1]] = parts[2]
    bearer = _BEARER.fullmatch(found.get(b"auth", b""))
    if bearer is None:
        raise SaslError("there is no bearer token in the message")
    return Message(bearer[1].decode(), (match[1] or b"").decode())


class OAuthBearerServer:
    """One exchange: a token, and the client's consent where that is not accepted.  See ``SaslServer``.

    ``check(token)`` says what the token says, or that its keys are not there yet; InvalidToken.
    """

    __slots__ = ("_accepted", "_check", "_refusal", "user")

    def __init__(self, check: Callable[[str], BearerToken | NotYet]) -> None:
        self._check = check
        self._accepted: BearerToken | None = None
        self._refusal: str | None = None
        self.user: str | None = None

    @property
    def expires_at_ms(self) -> int | None:
        return None if self._accepted is None else self._accepted.expires_at_ms

    @property
    def is_token(self) -> bool:
        return False

    def evaluate(self, token: bytes) -> bytes | NotYet:
        """Nothing where the token is accepted; else what is wrong, after which the client's next message fails."""
        if self._refusal is not None:
            raise SaslRefused(INVALID_TOKEN.decode(), f"the token is not accepted: {self._refusal}")
        message = parse(token)
        try:
            checked = self._check(message.token)
        except InvalidToken as error:
            self._refusal = str(error)
            return INVALID_TOKEN
        if isinstance(checked, NotYet):
            return checked
        if message.authorization_id not in ("", checked.user):
            raise SaslRefused(
                f"Authentication failed: Client requested an authorization id ({message.authorization_id}) that is "
                f"different from the token's principal name ({checked.user})"
            )
        self._accepted, self.user = checked, checked.user
        return b""

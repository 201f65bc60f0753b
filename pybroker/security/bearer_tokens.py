"""The check of a bearer token: a JWT (RFC 7519) that is signed by a key of a key set, and meant for this broker.

Owns: which algorithms and claims are accepted.  Owns no signature (PyJWT's, the extra ``oauth``) and no key
(``key_sets``).

Invariants:
- The algorithm is one of the key's, never the token's choice, and never a symmetric one or none.
- What the token says of keys (``jku``, ``jwk``, ``x5u``, ``x5c``) means nothing.
- A token without an end, or without the time of its issue, is not accepted.
- Headers that are said to be critical are not known, and not accepted.

Counterpart in Kafka: ``BrokerJwtValidator`` and ``ClaimValidationUtils``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pybroker.security.key_sets import KeySet
from pybroker.security.oauthbearer import BearerToken, InvalidToken
from pybroker.security.sasl import NotYet

_ALGORITHMS: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
_TIMESTAMP_MAX: Final = 2**53
# What a string of Kafka's protocol holds: nobody with a longer name could be named in an ACL, nor handed on (KIP-590).
_USER_BYTES_MAX: Final = (1 << 15) - 1


class Expectations(NamedTuple):
    """What a token has to say; see the settings ``sasl.oauthbearer.…`` of these names."""

    expected_audience: tuple[str, ...]  # one of them; none: whatever it says
    expected_issuer: str | None
    clock_skew_seconds: int
    sub_claim_name: str
    scope_claim_name: str


class BearerTokenValidator:
    """``check`` is that of ``OAuthBearerServer``."""

    __slots__ = ("_expected", "_keys")

    def __init__(self, keys: KeySet, expected: Expectations) -> None:
        self._keys = keys
        self._expected = expected

    def check(self, token: str) -> BearerToken | NotYet:
        """What the token says; InvalidToken."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
                raise InvalidToken("its algorithm is not one of those that are accepted")
            if "crit" in header:
                raise InvalidToken("it has critical headers")
            key = self._keys.find(key_id, algorithm)
            if isinstance(key, NotYet):
                return key
            if key is None:
                raise InvalidToken("no key fits it")
            claims = self._claims(token, key, algorithm)
            expires_at_ms = self._expires_at_ms(claims)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise InvalidToken(type(error).__name__) from error
        if expires_at_ms > _TIMESTAMP_MAX:
            raise InvalidToken("it never ends")
        self._check_scope(claims.get(self._expected.scope_claim_name))
        return BearerToken(self._user(claims), expires_at_ms)

    def _claims(self, token: str, key: Any, algorithm: str) -> dict[str, Any]:
        import jwt

        expected = self._expected
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=expected.expected_audience or None,
            issuer=expected.expected_issuer,
            leeway=expected.clock_skew_seconds,
            options={
                "require": ["exp", "iat"],
                "verify_aud": bool(expected.expected_audience),
                "verify_iat": False,  # Kafka takes one that lies ahead
                "verify_sub": False,
            },
        )
        return claims

    def _expires_at_ms(self, claims: dict[str, Any]) -> int:
        """The end, which lies behind the beginning; OverflowError and ValueError for what is no time."""
        end, *begins = (claims[name] for name in ("exp", "iat", "nbf") if name in claims)
        if not all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in (end, *begins)):
            raise InvalidToken("one of its times is no number")
        if any(end < begin for begin in begins):
            raise InvalidToken("it expires before it begins")
        return int(end * 1_000)

    def _user(self, claims: dict[str, Any]) -> str:
        user = claims.get(self._expected.sub_claim_name)
        if not isinstance(user, str) or not user.strip() or not user.isprintable():
            raise InvalidToken(f"it has no {self._expected.sub_claim_name}")
        if len(user.encode()) > _USER_BYTES_MAX:
            raise InvalidToken(f"its {self._expected.sub_claim_name} is longer than any name")
        return user.strip()

    def _check_scope(self, scope: Any) -> None:
        """Scopes permit nothing here; a list of what are none is a mistake all the same.  A text is one scope."""
        named = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
        if not all(isinstance(each, str) and each.strip() for each in named):
            raise InvalidToken(f"its {self._expected.scope_claim_name} is no list of scopes")
        if len({each.strip() for each in named}) < len(named):
            raise InvalidToken(f"its {self._expected.scope_claim_name} names one twice")

"""Keys and signed tokens for tests, made once: RSA keys take a moment."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.api_jws import PyJWS


@cache
def rsa_key(name: str = "one", bits: int = 2048) -> rsa.RSAPrivateKey:
    """The private key of that name."""
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def jwk(key: Any, key_id: str | None = None, **more: Any) -> dict[str, Any]:
    """The public key as an entry of a key set."""
    algorithm: Any = (
        RSAAlgorithm
        if isinstance(key, rsa.RSAPrivateKey)
        else ECAlgorithm
        if isinstance(key, ec.EllipticCurvePrivateKey)
        else OKPAlgorithm
    )
    entry: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    entry.pop("key_ops", None)
    return {**entry, **({} if key_id is None else {"kid": key_id}), **more}


def jwks(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": entries}).encode()


def encoded(part: Any) -> str:
    """A part of a token: bytes, or what JSON can say."""
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class FromNow(int):
    """So many seconds from the moment on in which a token is signed."""


def claims(**own: Any) -> dict[str, Any]:
    """Those of a sound token; None takes one away."""
    now = int(time.time())
    all_claims = {"sub": "alice", "iat": now, "exp": now + 600, "iss": "issuer", "aud": "kafka", **own}
    return {
        name: now + value if isinstance(value, FromNow) else value
        for name, value in all_claims.items()
        if value is not None
    }


def signed(
    key: Any = None, key_id: str | None = "one", algorithm: str = "RS256", headers: dict[str, Any] | None = None,
    **own: Any,
) -> str:  # fmt: skip
    """A token with these claims beside those of a sound one."""
    all_headers = {**({} if key_id is None else {"kid": key_id}), **(headers or {})}
    payload = json.dumps(claims(**own)).encode()  # also what PyJWT would not say
    return PyJWS().encode(payload, rsa_key() if key is None else key, algorithm, headers=all_headers)

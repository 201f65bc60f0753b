"""SCRAM-SHA-256 (RFC 5802, RFC 7677): two brokers prove to each other that they know the cluster's secret.

Owns: both sides of one exchange, as messages.  Owns no connection, and not the secret.

Invariants: the secret itself is never sent; a side that sees anything out of order, or a proof that does not fit,
fails, and there is no going on from there.

Kafka counterpart: ScramSaslServer and ScramSaslClient.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final

MECHANISM: Final = "SCRAM-SHA-256"
# As many as Kafka's default; both sides derive their keys once a connection, in two milliseconds.
ITERATIONS: Final = 4096
ITERATIONS_MAX: Final = 16 * ITERATIONS
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 18
MESSAGE_BYTES_MAX: Final = 1024
_NO_CHANNEL_BINDING: Final = b"n,,"


class ScramError(Exception):
    """The other side does not know the secret, or speaks no SCRAM."""


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def _salted(secret: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", secret, salt, iterations)


def _fields(message: bytes, names: str) -> list[bytes]:
    """The values of these fields, which come in this order and are all; others after them are passed over."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError("a message is too long")
    parts = message.split(b",")
    if len(parts) < len(names) or any(
        part[:2] != f"{name}=".encode() for name, part in zip(names, parts, strict=False)
    ):
        raise ScramError("a message is not as it has to be")
    return [part[2:] for part in parts[: len(names)]]


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error as error:
        raise ScramError("a message is not as it has to be") from error


def _signatures(salted: bytes, exchanged: bytes) -> tuple[bytes, bytes]:
    """The client's proof and the server's signature."""
    client_key = _hmac(salted, b"Client Key")
    signature = _hmac(hashlib.sha256(client_key).digest(), exchanged)
    proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
    return proof, _hmac(_hmac(salted, b"Server Key"), exchanged)


class ScramClient:
    """The side that connects: ``first``, ``final``, ``finish``."""

    def __init__(self, user: str, secret: bytes, nonce: bytes) -> None:
        self._secret = secret
        self._nonce = b64encode(nonce)
        name = user.replace("=", "=3D").replace(",", "=2C").encode()
        self._first_bare = b"n=" + name + b",r=" + self._nonce
        self._expected = b""

    def first(self) -> bytes:
        """What is said first."""
        return _NO_CHANNEL_BINDING + self._first_bare

    def final(self, server_first: bytes) -> bytes:
        """The answer to what the server said: the proof."""
        nonce, salt, iterations_text = _fields(server_first, "rsi")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the nonce is another exchange's")
        if not iterations_text.isdigit() or not ITERATIONS <= int(iterations_text) <= ITERATIONS_MAX:
            raise ScramError("the number of iterations is out of bounds")
        without_proof = b"c=" + b64encode(_NO_CHANNEL_BINDING) + b",r=" + nonce
        exchanged = self._first_bare + b"," + server_first + b"," + without_proof
        proof, self._expected = _signatures(_salted(self._secret, _decoded(salt), int(iterations_text)), exchanged)
        return without_proof + b",p=" + b64encode(proof)

    def finish(self, server_final: bytes) -> None:
        """ScramError unless the server knows the secret, too."""
        (signature,) = _fields(server_final, "v")
        if not self._expected or not hmac.compare_digest(_decoded(signature), self._expected):
            raise ScramError("the other broker does not know the cluster's secret")


class ScramServer:
    """The side that is connected to: ``first``, ``final``."""

    def __init__(self, secret: bytes, nonce: bytes, salt: bytes) -> None:
        self._secret = secret
        self._own_nonce = b64encode(nonce)
        self._salt = salt
        self._nonce = b""
        self._exchanged = b""

    @property
    def has_begun(self) -> bool:
        """Whether ``final`` is next."""
        return bool(self._exchanged)

    def first(self, client_first: bytes) -> bytes:
        """The answer to what the client said first."""
        if not client_first.startswith(_NO_CHANNEL_BINDING):
            raise ScramError("channel bindings are not served")
        bare = client_first[len(_NO_CHANNEL_BINDING) :]
        _, nonce = _fields(bare, "nr")
        self._nonce = nonce + self._own_nonce
        answer = b"r=" + self._nonce + b",s=" + b64encode(self._salt) + b",i=%d" % ITERATIONS
        self._exchanged = bare + b"," + answer
        return answer

    def final(self, client_final: bytes) -> bytes:
        """The answer to the proof; ScramError unless the client knows the secret."""
        binding, nonce, proof = _fields(client_final, "crp")
        if not self._nonce or nonce != self._nonce or _decoded(binding) != _NO_CHANNEL_BINDING:
            raise ScramError("the nonce is another exchange's")
        exchanged = self._exchanged + b"," + client_final[: client_final.rindex(b",p=")]
        self._nonce = b""  # one try
        expected, signature = _signatures(_salted(self._secret, self._salt, ITERATIONS), exchanged)
        if not hmac.compare_digest(_decoded(proof), expected):
            raise ScramError("the client does not know the cluster's secret")
        return b"v=" + b64encode(signature)

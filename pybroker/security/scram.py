"""SCRAM (RFC 5802, RFC 7677): a client proves that it knows a password, and the broker that it knows of it.

Owns: both sides of one exchange as messages, and what a broker keeps of a password.  Owns no connection, not where
credentials lie (the cluster's image), nor what passes for one where there is none (``unknown_users``).

Invariants:
- A password is never sent.
- Who is unknown is asked for a proof like everybody else, with a salt that stays the same, and fails with it.
- A side that sees anything out of order, or a proof that does not fit, fails, and there is no going on from there.
- The broker's side of an exchange costs a few hashes, whatever the number of iterations: those are the client's.
- Only ``credential_of`` and a client's proof iterate.

Counterpart in Kafka: ``ScramSaslServer``, ``ScramSaslClient``, ``ScramFormatter`` and ``ScramMechanism``.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final, NamedTuple

from pybroker.security.sasl import NotYet, SaslError, SaslRefused

LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
ITERATIONS_MIN: Final = 4096  # of both mechanisms, and Kafka's default
ITERATIONS_MAX: Final = 16_384  # ScramControlManager.MAX_ITERATIONS
# What a client does for a server: as many as another broker's version may ask for.
_CLIENT_ITERATIONS_MAX: Final = 16 * ITERATIONS_MIN
SALT_BYTES: Final = 16
# A client that names a user gets its salt before any proof; clients make some of 16 to 64 bytes.
SALT_BYTES_MAX: Final = 1024
USER_SALT_BYTES: Final = 26  # of users who are made here: as many as Kafka's own tools give them
NONCE_BYTES: Final = 18
_OF_TOKEN: Final = b",tokenauth=true"
_NO_CHANNEL_BINDING: Final = b"n,"
# What is kept of strangers until they prove who they are.  Clients send a nonce of some thirty bytes.
_FIRST_BYTES_MAX: Final = 4096


class ScramMechanism(NamedTuple):
    """One of the hashes; ``type`` is its number in Kafka's requests and records."""

    name: str
    type: int
    hash_name: str

    def hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash_name)

    def hash(self, message: bytes) -> bytes:
        return hashlib.new(self.hash_name, message).digest()

    def salted(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """The iterated hash: some two milliseconds."""
        return hashlib.pbkdf2_hmac(self.hash_name, password, salt, iterations)


SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256")
SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512")
MECHANISMS: Final = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}
BY_TYPE: Final = {mechanism.type: mechanism for mechanism in MECHANISMS.values()}


class ScramCredential(NamedTuple):
    """What is kept of a password.  Never printed: who has the stored key can try passwords."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


class Identity(NamedTuple):
    """Whose proof is asked for: ``user`` gets in if it fits ``credential``; with None no client does.

    ``expires_at_ms`` and ``is_token`` are a delegation token's (KIP-48); see ``SaslServer``.
    """

    credential: ScramCredential
    user: str | None
    expires_at_ms: int | None = None
    is_token: bool = False


def credential_of_salted(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What is kept of a password that its owner has salted already."""
    stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
    return ScramCredential(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)


def credential_of(
    mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """What is kept of a password; iterates."""
    return credential_of_salted(mechanism, mechanism.salted(password, salt, iterations), salt, iterations)


def cluster_salt(secret: bytes) -> bytes:
    """The salt by which all brokers of a cluster know its secret, so that its keys are derived once."""
    return hmac.digest(secret, b"salt of the cluster", "sha256")[:SALT_BYTES]


def _fields(message: bytes, names: str) -> list[bytes]:
    """The values of these fields, which come in this order; others after them are passed over."""
    parts = message.split(b",", len(names) + 8)
    if len(parts) < len(names) or any(
        part[:2] != f"{name}=".encode() for name, part in zip(names, parts, strict=False)
    ):
        raise SaslError("a message is not as it has to be")
    return [part[2:] for part in parts[: len(names)]]


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error as error:
        raise SaslError("a message is not as it has to be") from error


def _name(text: bytes) -> str:
    """A saslname: "," and "=" are written as =2C and =3D, and no other = may stand in it."""
    try:
        name = text.decode()
    except UnicodeDecodeError as error:
        raise SaslError("a name is not UTF-8") from error
    plain = name.replace("=2C", ",").replace("=3D", "\0")
    if "=" in plain or "\0" in name:
        raise SaslError("a name is not as it has to be")
    return plain.replace("\0", "=")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


class ScramClient:
    """The side that connects: ``first``, ``final``, ``finish``.

    ``salted(salt, iterations)`` is the salted password, which may be remembered.  ``is_token``: the user's name is a
    delegation token's id (KIP-48).
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        salted: Callable[[bytes, int], bytes],
        nonce: bytes,
        *,
        is_token: bool = False,
    ) -> None:
        self._mechanism = mechanism
        self._salted = salted
        self._nonce = b64encode(nonce)
        name = user.replace("=", "=3D").replace(",", "=2C").encode()
        self._first_bare = b"n=" + name + b",r=" + self._nonce + (_OF_TOKEN if is_token else b"")
        self._expected = b""

    def first(self) -> bytes:
        """What is said first."""
        return _NO_CHANNEL_BINDING + b"," + self._first_bare

    def final(self, server_first: bytes) -> bytes:
        """The answer to what the server said: the proof."""
        nonce, salt, iterations_text = _fields(server_first, "rsi")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("the nonce is another exchange's")
        if not iterations_text.isdigit() or not ITERATIONS_MIN <= int(iterations_text) <= _CLIENT_ITERATIONS_MAX:
            raise SaslError("the number of iterations is out of bounds")
        without_proof = b"c=" + b64encode(_NO_CHANNEL_BINDING + b",") + b",r=" + nonce
        exchanged = self._first_bare + b"," + server_first + b"," + without_proof
        mechanism = self._mechanism
        salted = self._salted(_decoded(salt), int(iterations_text))
        client_key = mechanism.hmac(salted, b"Client Key")
        proof = _xor(client_key, mechanism.hmac(mechanism.hash(client_key), exchanged))
        self._expected = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), exchanged)
        return without_proof + b",p=" + b64encode(proof)

    def finish(self, server_final: bytes) -> None:
        """SaslError unless the server knows of the password, too."""
        (signature,) = _fields(server_final, "v")
        if not self._expected or not hmac.compare_digest(_decoded(signature), self._expected):
            raise SaslError("the other side does not know the secret")


class ScramServer:
    """The side that is connected to.  See ``SaslServer``.

    ``find(name, is_token)`` says whose credential counts, or that it is made first; a name is a user's, or, with
    ``is_token``, a delegation token's id.
    """

    __slots__ = (
        "_exchanged",
        "_find",
        "_gs2_header",
        "_identity",
        "_is_over",
        "_mechanism",
        "_nonce",
        "_own_nonce",
        "user",
    )

    def __init__(self, mechanism: ScramMechanism, find: Callable[[str, bool], Identity | NotYet], nonce: bytes) -> None:
        self._mechanism = mechanism
        self._find = find
        self._own_nonce = b64encode(nonce)
        self._identity: Identity | None = None  # once it is known whom the client wants to be
        self._is_over = False
        self._gs2_header = b""
        self._nonce = b""
        self._exchanged = b""
        self.user: str | None = None

    @property
    def expires_at_ms(self) -> int | None:
        return None if self._identity is None else self._identity.expires_at_ms

    @property
    def is_token(self) -> bool:
        return self._identity is not None and self._identity.is_token

    def evaluate(self, token: bytes) -> bytes | NotYet:
        """The server's first message, then its last."""
        if self._is_over:
            raise SaslError("the exchange is over")
        if self._identity is None:
            return self._first(token)
        self._is_over = True  # one try
        return self._final(token, self._identity)

    def _first(self, message: bytes) -> bytes | NotYet:
        if len(message) > _FIRST_BYTES_MAX:
            raise SaslError("a message is longer than any name")
        parts = message.split(b",", 2)
        if len(parts) != 3 or parts[0] != b"n":
            raise SaslError("channel bindings are not served")
        _, authorization_id, bare = parts
        if authorization_id and authorization_id[:2] != b"a=":
            raise SaslError("a message is not as it has to be")
        name, nonce = _fields(bare, "nr")
        user = _name(name)
        if not nonce or not user or not nonce.isascii():
            raise SaslError("a message is not as it has to be")
        if authorization_id and _name(authorization_id[2:]) != user:
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        # A delegation token's id is no user's name (KIP-48).
        identity = self._find(user, _OF_TOKEN[1:] in bare.lower().split(b",")[2:])
        if isinstance(identity, NotYet):
            return identity
        self._identity = identity
        self._gs2_header = message[: len(message) - len(bare)]
        self._nonce = nonce + self._own_nonce
        salt, iterations = identity.credential.salt, identity.credential.iterations
        answer = b"r=" + self._nonce + b",s=" + b64encode(salt) + b",i=%d" % iterations
        self._exchanged = bare + b"," + answer
        return answer

    def _final(self, message: bytes, identity: Identity) -> bytes:
        credential = identity.credential
        binding, nonce = _fields(message, "cr")
        without_proof, separator, proof_text = message.rpartition(b",p=")
        if nonce != self._nonce or not separator or _decoded(binding) != self._gs2_header:
            raise SaslError("the nonce is another exchange's")
        mechanism = self._mechanism
        exchanged = self._exchanged + b"," + without_proof
        signature = mechanism.hmac(credential.stored_key, exchanged)
        proof = _decoded(proof_text)
        if len(proof) != len(signature):
            raise SaslError("a proof of another length")
        fits = hmac.compare_digest(mechanism.hash(_xor(proof, signature)), credential.stored_key)
        if not fits or identity.user is None:
            raise SaslError("the proof does not fit")
        self.user = identity.user
        return b"v=" + b64encode(mechanism.hmac(credential.server_key, exchanged))

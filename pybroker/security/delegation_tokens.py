"""Delegation tokens (KIP-48): what one is, whom it lets do what, and the secrets that follow from its id.

Owns: the token as a value, without its secret. Owns ``TokenSecret``, by which a broker knows each token's HMAC, and
``TokenLogins``, by which a token's holder logs in through SCRAM. The token's id is the name, and its HMAC in base64 the
password. Owns neither where tokens lie (the cluster's image) nor who changes them
(``cluster/controller/token_operations``).

Invariants:
- A token's HMAC and the keys that follow from it are written nowhere.
- The iterated hashes run in a thread, once for each token and mechanism that logs in here.
- An id that is no token's is asked for a proof like any other, with the salt that it would have.
- A token that has expired is none.

Counterpart in Kafka: ``TokenInformation``, ``DelegationTokenCache`` and ``DelegationTokenManager``.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pybroker import limits
from pybroker.security.sasl import NotYet
from pybroker.security.scram import Identity, ScramCredential, ScramMechanism, credential_of
from pybroker.security.unknown_users import fake_credential

if TYPE_CHECKING:
    from pybroker.env import Clock, Executor

USER_TYPE: Final = "User"  # KafkaPrincipal.USER_TYPE, the one type of who logs in
_USER_PREFIX: Final = f"{USER_TYPE}:"


class DelegationToken(NamedTuple):
    """One token; principals are ``type:name``, times the wall clock's milliseconds.

    ``requester`` is who asked for it, ``owner`` whom its holder logs in as.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int

    def has_expired(self, now_ms: int) -> bool:
        """Whether it is of no use any more."""
        return self.max_timestamp_ms < now_ms or self.expiry_timestamp_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether ``principal`` may renew it, and have it expire."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether it is ``principal``'s to know of."""
        return principal == self.requester or self.may_be_renewed_by(principal)


class TokenSecret:
    """``delegation.token.secret.key``, the same on all brokers, and what follows from it."""

    __slots__ = ("_ids", "_key", "_known")

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        # Tokens by their HMACs, remembered where one is looked for among many, so that the next look is short.
        # A dict tells nothing by time: it compares bytes only where their hashes are equal, whose seed nobody knows.
        self._ids: dict[bytes, str] = {}
        self._known: set[str] = set()

    def hmac_of(self, token_id: str) -> bytes:
        """HMAC-SHA512 of the id: who has it holds the token.  Any thread may ask."""
        return hmac.digest(self._key, token_id.encode(errors="surrogatepass"), "sha512")

    def token_of(
        self, token_hmac: bytes, tokens: Mapping[str, DelegationToken]
    ) -> Generator[None, None, DelegationToken | None]:
        """The token that has this HMAC, in steps."""
        if len(self._known) > 2 * len(tokens) + limits.TOKEN_KEYS_MAX:
            self._known.clear()  # most of them are gone
            self._ids.clear()
        if token_hmac not in self._ids:
            for token_id in tokens:
                if token_id not in self._known:
                    self._ids[self.hmac_of(token_id)] = token_id
                    self._known.add(token_id)
                    yield
        return tokens.get(self._ids.get(token_hmac, ""))

    def password_of(self, token_id: str) -> bytes:
        """What the holder logs in by."""
        return b64encode(self.hmac_of(token_id))

    def credential_like(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """One with the salt that is the id's, token or not, and that no password fits."""
        key = hmac.digest(self._key, b"salts of tokens", "sha512")
        return fake_credential(mechanism, key, token_id, {})

    def credential_of(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """The token's own; iterates."""
        return credential_of(mechanism, self.password_of(token_id), self.credential_like(mechanism, token_id).salt)


_Key = tuple[ScramMechanism, str]


class TokenLogins:
    """Who holds a token is its owner.  ``tokens()`` are those there are; ``executor()`` makes the thread that iterates.

    See ``security.mechanisms.Tokens``.
    """

    __slots__ = ("_clock", "_credentials", "_executor", "_make_executor", "_secret", "_tokens", "_waiting")

    def __init__(
        self,
        secret: TokenSecret,
        tokens: Callable[[], Mapping[str, DelegationToken]],
        clock: Clock,
        executor: Callable[[str, int], Executor],
    ) -> None:
        self._secret = secret
        self._tokens = tokens
        self._clock = clock
        self._make_executor = executor
        self._executor: Executor | None = None
        self._credentials: OrderedDict[_Key, ScramCredential] = OrderedDict()  # what logged in last, last
        self._waiting: dict[_Key, list[Callable[[], None]]] = {}

    def find(self, mechanism: ScramMechanism, token_id: str) -> Identity | NotYet:
        """Whose credential counts; one that no password fits where the id is no token's, or an expired one's."""
        token = self._tokens().get(token_id)
        if token is None or token.has_expired(self._clock.now_ms()) or not token.owner.startswith(_USER_PREFIX):
            return Identity(self._secret.credential_like(mechanism, token_id), None)
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            return NotYet(lambda go_on: self._wait((mechanism, token_id), go_on))
        self._credentials.move_to_end((mechanism, token_id))
        return Identity(credential, token.owner.removeprefix(_USER_PREFIX), token.expiry_timestamp_ms, is_token=True)

    def close(self) -> None:
        """No thread is left; those that wait hear nothing."""
        self._waiting.clear()
        if self._executor is not None:
            self._executor.close()

    def _wait(self, key: _Key, go_on: Callable[[], None]) -> Callable[[], None]:
        """Have the credential made, then call ``go_on``; returns what calls that off."""
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            self._make(key)
        waiting.append(go_on)

        def call_off() -> None:
            if go_on in waiting:
                waiting.remove(go_on)

        return call_off

    def _make(self, key: _Key) -> None:
        def done(credential: ScramCredential | None, error: BaseException | None) -> None:
            if credential is None:
                self._waiting.pop(key, None)  # the thread ends, and with it the connections
                return
            self._credentials[key] = credential
            while len(self._credentials) > limits.TOKEN_KEYS_MAX:
                self._credentials.popitem(last=False)
            for go_on in self._waiting.pop(key, ()):
                go_on()

        if self._executor is None:
            self._executor = self._make_executor("token-keys", limits.WORKER_NICENESS)
        self._executor.submit(lambda: self._secret.credential_of(*key), done)

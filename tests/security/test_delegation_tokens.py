"""Delegation tokens: who holds one logs in as its owner while it lasts, and nobody else does."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from pybroker import limits
from pybroker.security.delegation_tokens import DelegationToken, TokenLogins, TokenSecret
from pybroker.security.sasl import NotYet, SaslError
from pybroker.security.scram import MECHANISMS, SHA_256, Identity, ScramClient, ScramMechanism, ScramServer

NOW_MS = 1_000_000
TOKEN = DelegationToken("an-id", "User:alice", "User:bob", ("User:carol",), NOW_MS, NOW_MS + 1_000, NOW_MS + 5_000)
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda mechanism: mechanism.name)


class Thread:
    """A clock that stands still, and an executor whose work is done when the test says so."""

    def __init__(self) -> None:
        self.time_ms = NOW_MS
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.made = 0
        self.done = 0

    def now_ms(self) -> int:
        return self.time_ms

    monotonic_ms = now_ms

    def executor(self, name: str, niceness: int) -> Any:
        self.made += 1
        return self

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> Any:
        self.jobs.append((work, done))

    def run(self) -> None:
        for work, done in self.jobs:
            self.done += 1
            done(work(), None)
        self.jobs.clear()

    def close(self) -> None:
        self.made -= 1


def logins_of(thread: Thread, *tokens: DelegationToken) -> TokenLogins:
    by_id = {token.token_id: token for token in tokens}
    return TokenLogins(TokenSecret("secret"), lambda: by_id, thread, thread.executor)


def found(logins: TokenLogins, thread: Thread, token_id: str, mechanism: ScramMechanism = SHA_256) -> Identity:
    """What is found, waited for."""
    identity = logins.find(mechanism, token_id)
    if isinstance(identity, NotYet):
        told: list[bool] = []
        identity.subscribe(lambda: told.append(True))
        thread.run()
        assert told == [True]
        identity = logins.find(mechanism, token_id)
    assert isinstance(identity, Identity)
    return identity


def log_in(logins: TokenLogins, thread: Thread, token_id: str, password: bytes, mechanism: ScramMechanism) -> Any:
    client = ScramClient(mechanism, token_id, lambda salt, n: mechanism.salted(password, salt, n), b"c" * 18)
    server = ScramServer(mechanism, lambda name, is_token: found(logins, thread, name, mechanism), b"s" * 18)
    client._first_bare += b",tokenauth=true"
    first = server.evaluate(client.first())
    assert isinstance(first, bytes)
    server.evaluate(client.final(first))
    return server


def test_a_tokens_hmac_is_kafkas() -> None:
    assert TokenSecret("secret").hmac_of("an-id") == hmac.digest(b"secret", b"an-id", "sha512")
    assert TokenSecret("secret").password_of("an-id") == b64encode(hmac.digest(b"secret", b"an-id", "sha512"))


@each_mechanism
def test_who_holds_a_token_is_its_owner_until_it_expires(mechanism: ScramMechanism) -> None:
    thread = Thread()
    logins = logins_of(thread, TOKEN)
    server = log_in(logins, thread, "an-id", TokenSecret("secret").password_of("an-id"), mechanism)
    assert (server.user, server.is_token, server.expires_at_ms) == ("alice", True, NOW_MS + 1_000)


@pytest.mark.parametrize("token_id", ["an-id", "another"])
def test_who_does_not_hold_it_is_refused_whether_there_is_one_or_not(token_id: str) -> None:
    thread = Thread()
    logins = logins_of(thread, TOKEN)
    with pytest.raises(SaslError, match="proof"):
        log_in(logins, thread, token_id, TokenSecret("another secret").password_of(token_id), SHA_256)


def test_an_id_has_the_same_salt_before_while_and_after_it_is_a_tokens() -> None:
    thread = Thread()
    salts = {found(logins_of(thread, *tokens), thread, "an-id").credential.salt for tokens in ((), (TOKEN,))}
    thread.time_ms = NOW_MS + 1_001
    salts.add(found(logins_of(thread, TOKEN), thread, "an-id").credential.salt)
    assert len(salts) == 1


def test_an_expired_token_lets_nobody_in() -> None:
    thread = Thread()
    logins = logins_of(thread, TOKEN)
    thread.time_ms = TOKEN.expiry_timestamp_ms
    assert found(logins, thread, "an-id").user == "alice", "in its last millisecond"
    thread.time_ms += 1
    assert found(logins, thread, "an-id").user is None
    with pytest.raises(SaslError, match="proof"):
        log_in(logins, thread, "an-id", TokenSecret("secret").password_of("an-id"), SHA_256)


def test_an_owner_who_is_no_user_is_not_let_in_as_the_user_of_that_name() -> None:
    thread = Thread()
    assert found(logins_of(thread, TOKEN._replace(owner="Group:alice")), thread, "an-id").user is None


def test_keys_are_derived_once_in_the_thread_however_many_wait() -> None:
    thread = Thread()
    logins = logins_of(thread, TOKEN)
    told: list[int] = []
    cancels = []
    for number in range(3):
        waits = logins.find(SHA_256, "an-id")
        assert isinstance(waits, NotYet)
        cancels.append(waits.subscribe(lambda number=number: told.append(number)))  # type: ignore[misc]
    cancels[1]()
    assert len(thread.jobs) == 1
    thread.run()
    cancels[0]()
    assert told == [0, 2], "who has left is not told"
    assert isinstance(logins.find(SHA_256, "an-id"), Identity)
    logins.close()
    assert thread.made == 0, "the thread ends with its owner"


def test_strangers_cost_no_iterated_hash() -> None:
    thread = Thread()
    logins = logins_of(thread, TOKEN)
    for number in range(100):
        assert isinstance(logins.find(SHA_256, f"nobody-{number}"), Identity)
    assert not thread.made


def test_keys_of_those_who_logged_in_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOKEN_KEYS_MAX", 2)
    thread = Thread()
    logins = logins_of(thread, *(TOKEN._replace(token_id=token_id) for token_id in "abc"))
    for token_id in "abaca":
        assert found(logins, thread, token_id).user == "alice"
    assert thread.done == 3
    assert found(logins, thread, "b").user == "alice"
    assert thread.done == 4


def test_a_token_is_found_by_its_hmac() -> None:
    secret = TokenSecret("secret")
    tokens = {token_id: TOKEN._replace(token_id=token_id) for token_id in ("a", "b", "c")}

    def look(token_hmac: bytes) -> DelegationToken | None:
        steps = secret.token_of(token_hmac, tokens)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: DelegationToken | None = end.value
                return result

    assert look(TokenSecret("secret").hmac_of("b")) == tokens["b"]
    assert look(TokenSecret("another").hmac_of("b")) is None
    assert look(b"") is None
    assert look(TokenSecret("secret").hmac_of("no token's")) is None
    del tokens["b"]
    assert look(TokenSecret("secret").hmac_of("b")) is None


def test_nothing_secret_is_shown() -> None:
    assert "secret" not in f"{TokenSecret('secret')!r} {found(logins_of(thread := Thread(), TOKEN), thread, 'an-id')!r}"

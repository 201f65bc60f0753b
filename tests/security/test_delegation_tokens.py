"""Delegation tokens: who holds one logs in as its owner while it lasts, and nobody else does."""

from __future__ import annotations

import hmac
from base64 import b64encode
from functools import partial
from typing import Any

import pytest
from harness.virtual_world import START_MS, VirtualExecutor, VirtualWorld

from pybroker import limits
from pybroker.security.delegation_tokens import DelegationToken, TokenLogins, TokenSecret
from pybroker.security.sasl import NotYet, SaslError
from pybroker.security.scram import MECHANISMS, SHA_256, Identity, ScramClient, ScramMechanism, ScramServer

TOKEN = DelegationToken(
    "an-id", "User:alice", "User:bob", ("User:carol",), START_MS, START_MS + 1_000, START_MS + 5_000
)
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda mechanism: mechanism.name)


def thread_of(world: VirtualWorld) -> VirtualExecutor:
    return world.executors["token-keys"]


def logins_of(world: VirtualWorld, *tokens: DelegationToken) -> TokenLogins:
    by_id = {token.token_id: token for token in tokens}
    return TokenLogins(TokenSecret("secret"), lambda: by_id, world.clock, world.env.executor)


def found(logins: TokenLogins, world: VirtualWorld, token_id: str, mechanism: ScramMechanism = SHA_256) -> Identity:
    """What is found, waited for."""
    identity = logins.find(mechanism, token_id)
    if isinstance(identity, NotYet):
        told: list[bool] = []
        identity.subscribe(lambda: told.append(True))
        world.run()
        assert told == [True]
        identity = logins.find(mechanism, token_id)
    assert isinstance(identity, Identity)
    return identity


def log_in(logins: TokenLogins, world: VirtualWorld, token_id: str, password: bytes, mechanism: ScramMechanism) -> Any:
    client = ScramClient(mechanism, token_id, partial(mechanism.salted, password), b"c" * 18, is_token=True)
    server = ScramServer(mechanism, lambda name, is_token: found(logins, world, name, mechanism), b"s" * 18)
    first = server.evaluate(client.first())
    assert isinstance(first, bytes)
    server.evaluate(client.final(first))
    return server


def test_a_tokens_hmac_is_kafkas() -> None:
    assert TokenSecret("secret").hmac_of("an-id") == hmac.digest(b"secret", b"an-id", "sha512")
    assert TokenSecret("secret").password_of("an-id") == b64encode(hmac.digest(b"secret", b"an-id", "sha512"))


@each_mechanism
def test_who_holds_a_token_is_its_owner_until_it_expires(mechanism: ScramMechanism) -> None:
    world = VirtualWorld()
    logins = logins_of(world, TOKEN)
    server = log_in(logins, world, "an-id", TokenSecret("secret").password_of("an-id"), mechanism)
    assert (server.user, server.is_token, server.expires_at_ms) == ("alice", True, START_MS + 1_000)


@pytest.mark.parametrize("token_id", ["an-id", "another"])
def test_who_does_not_hold_it_is_refused_whether_there_is_one_or_not(token_id: str) -> None:
    world = VirtualWorld()
    logins = logins_of(world, TOKEN)
    with pytest.raises(SaslError, match="proof"):
        log_in(logins, world, token_id, TokenSecret("another secret").password_of(token_id), SHA_256)


def test_an_id_has_the_same_salt_before_while_and_after_it_is_a_tokens() -> None:
    world = VirtualWorld()
    salts = {found(logins_of(world, *tokens), world, "an-id").credential.salt for tokens in ((), (TOKEN,))}
    world.clock.pass_ms(1_001)
    salts.add(found(logins_of(world, TOKEN), world, "an-id").credential.salt)
    assert len(salts) == 1


def test_an_expired_token_lets_nobody_in() -> None:
    world = VirtualWorld()
    logins = logins_of(world, TOKEN)
    world.clock.pass_ms(TOKEN.expiry_timestamp_ms - START_MS)
    assert found(logins, world, "an-id").user == "alice", "in its last millisecond"
    world.clock.pass_ms(1)
    assert found(logins, world, "an-id").user is None
    with pytest.raises(SaslError, match="proof"):
        log_in(logins, world, "an-id", TokenSecret("secret").password_of("an-id"), SHA_256)


def test_an_owner_who_is_no_user_is_not_let_in_as_the_user_of_that_name() -> None:
    world = VirtualWorld()
    assert found(logins_of(world, TOKEN._replace(owner="Group:alice")), world, "an-id").user is None


def test_keys_are_derived_once_in_the_thread_however_many_wait() -> None:
    world = VirtualWorld()
    logins = logins_of(world, TOKEN)
    told: list[int] = []
    cancels = []
    for number in range(3):
        waits = logins.find(SHA_256, "an-id")
        assert isinstance(waits, NotYet)
        cancels.append(waits.subscribe(lambda number=number: told.append(number)))  # type: ignore[misc]
    cancels[1]()
    assert len(thread_of(world).jobs) == 1
    world.run()
    cancels[0]()
    assert told == [0, 2], "who has left is not told"
    assert isinstance(logins.find(SHA_256, "an-id"), Identity)
    logins.close()
    assert thread_of(world).closed, "the thread ends with its owner"


def test_strangers_cost_no_iterated_hash() -> None:
    world = VirtualWorld()
    logins = logins_of(world, TOKEN)
    for number in range(100):
        assert isinstance(logins.find(SHA_256, f"nobody-{number}"), Identity)
    assert not world.executors


def test_keys_of_those_who_logged_in_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOKEN_KEYS_MAX", 2)
    world = VirtualWorld()
    logins = logins_of(world, *(TOKEN._replace(token_id=token_id) for token_id in "abc"))
    for token_id in "abaca":
        assert found(logins, world, token_id).user == "alice"
    assert thread_of(world).portions == 3
    assert found(logins, world, "b").user == "alice"
    assert thread_of(world).portions == 4


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
    world = VirtualWorld()
    assert "secret" not in f"{TokenSecret('secret')!r} {found(logins_of(world, TOKEN), world, 'an-id')!r}"

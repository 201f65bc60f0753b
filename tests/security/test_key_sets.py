"""Key sets: which keys are used, when they are fetched, and who waits for that."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.security.key_sets import UNKNOWN_KEY_MS, KeySets, KeySource, parse_keys
from pybroker.security.sasl import NotYet
from tests.security.tokens import ec_key, jwk, jwks, rsa_key

SOURCE = KeySource("https://idp.example/keys", 3_600_000, 1_000, 10_000, 5_000, 5_000)
ONE, TWO = jwk(rsa_key("one"), "one"), jwk(rsa_key("two"), "two")


class Idp:
    """Whoever keeps the set; ``answer`` is what a fetch gives, or raises."""

    def __init__(self, answer: bytes | Exception = b"") -> None:
        self.answer = answer
        self.fetches = 0
        self.world = VirtualWorld()
        self.sets = KeySets(self.world.env, self.fetch)
        self.set = self.sets.get(SOURCE)
        self.world.run()

    def fetch(self, source: KeySource) -> bytes:
        assert source is SOURCE
        self.fetches += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_set_is_fetched_once_for_all_who_ask_and_then_regularly() -> None:
    idp = Idp(jwks(ONE))
    assert idp.sets.get(SOURCE) is idp.set
    assert idp.fetches == 1
    assert idp.set.find("one", "RS256") is not None
    idp.answer = jwks(TWO)
    idp.world.advance(SOURCE.refresh_ms)
    assert idp.fetches == 2
    assert idp.set.find("two", "RS256") is not None
    idp.world.advance(UNKNOWN_KEY_MS - 1)
    assert idp.set.find("one", "RS256") is None, "a key that was withdrawn"
    idp.sets.close()
    idp.world.advance(2 * SOURCE.refresh_ms)
    assert idp.fetches == 2


def test_logins_wait_for_the_first_fetch_whatever_it_brings() -> None:
    world = VirtualWorld()
    answers: list[Callable[[], bytes]] = [lambda: jwks(ONE)]
    key_set = KeySets(world.env, lambda source: answers[0]()).get(SOURCE)
    waits = key_set.find("one", "RS256")
    assert isinstance(waits, NotYet)
    told: list[str] = []
    waits.subscribe(lambda: told.append("stays"))
    waits.subscribe(lambda: told.append("left"))()
    world.run()
    assert told == ["stays"]
    assert not isinstance(key_set.find("one", "RS256"), NotYet)


def test_a_fetch_that_fails_is_tried_again_later_and_later_and_keeps_what_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    idp = Idp(jwks(ONE))
    idp.answer = OSError("unreachable")
    idp.world.advance(SOURCE.refresh_ms)
    for pause_ms in (1_000, 2_000, 4_000, 8_000, 10_000, 10_000):
        fetches = idp.fetches
        idp.world.advance(pause_ms - 1)
        assert idp.fetches == fetches
        idp.world.advance(1)
        assert idp.fetches == fetches + 1
    assert idp.set.find("one", "RS256") is not None
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1, "once for all of them"
    idp.answer = jwks(TWO)
    idp.world.advance(10_000)
    assert idp.set.find("two", "RS256") is not None


def test_a_key_that_is_not_there_is_looked_for_but_not_for_everybody_who_names_one() -> None:
    idp = Idp(jwks(ONE))
    idp.world.advance(UNKNOWN_KEY_MS)
    idp.answer = jwks(ONE, TWO)
    waits = idp.set.find("two", "RS256")
    assert isinstance(waits, NotYet), "keys are exchanged before the next regular fetch"
    told: list[bool] = []
    waits.subscribe(lambda: told.append(True))
    idp.world.run()
    assert told
    assert not isinstance(idp.set.find("two", "RS256"), NotYet | None)
    for number in range(1_000):
        assert idp.set.find(f"guessed-{number}", "RS256") is None
    idp.world.run()
    assert idp.fetches == 2


def test_without_a_name_there_has_to_be_one_key_alone() -> None:
    idp = Idp(jwks(ONE, jwk(ec_key(), "three")))
    assert idp.set.find(None, "RS256") is not None
    assert idp.set.find(None, "ES256") is not None
    assert idp.set.find(None, "ES384") is None
    two = Idp(jwks(ONE, TWO))
    assert two.set.find(None, "RS256") is None
    same = Idp(jwks(ONE, {**TWO, "kid": "one"}))
    assert same.set.find("one", "RS256") is None


def without_numbers(entry: dict[str, Any]) -> str:
    """A name for a test, the same in each process: keys are made anew in each."""
    return ", ".join(f"{name}={value}" if len(str(value)) < 20 else name for name, value in entry.items())


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "AAAA"}, {"kty": "RSA"}, {"kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}, {"kty": "OKP", "crv": "X25519", "x": "AA"}, {"kty": 1},
        {}, {"kty": "RSA", "n": 5, "e": None}, {**ONE, "use": "enc"}, {**ONE, "alg": "HS256"}, {**ONE, "alg": "none"},
        {**ONE, "alg": "RSA-OAEP"}, {**ONE, "alg": ["RS256"]}, jwk(rsa_key("short", 1024)),
    ],
    ids=without_numbers,
)  # fmt: skip
def test_what_is_no_key_for_signatures_is_passed_over(entry: dict[str, Any]) -> None:
    (key,) = parse_keys(jwks(entry, TWO))
    assert key.key_id == "two"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys":{}}', b"\xff", b"[" * 100_000, b"<html>"])
def test_what_is_no_set_is_a_failed_fetch(data: bytes) -> None:
    idp = Idp(data)
    assert idp.set.keys == []
    assert idp.set.find("one", "RS256") is None
    idp.answer = jwks(ONE)
    idp.world.advance(SOURCE.retry_backoff_ms)
    assert idp.set.find("one", "RS256") is not None


def test_a_private_key_in_a_set_is_used_as_its_public_half() -> None:
    import json

    from jwt.algorithms import RSAAlgorithm

    private = json.loads(RSAAlgorithm.to_jwk(rsa_key()))
    (key,) = parse_keys(jwks({**private, "kid": "one"}))
    assert not hasattr(key.key, "private_numbers")

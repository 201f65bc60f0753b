"""The targets hold for what they begin with and for a moment of Hypothesis; and they notice mistakes."""

from __future__ import annotations

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, bearer_tokens, certificates, jaas, logins
from pybroker.config import jaas as lines
from pybroker.security import certificates as reader
from pybroker.security.scram import ScramServer

each_target = pytest.mark.parametrize("target", TARGETS)


@each_target
def test_seeds_hold(target: str) -> None:
    seeds = list(TARGETS[target].seeds())
    assert seeds
    for seed in seeds:
        TARGETS[target].run(seed)


@each_target
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_bytes_hold(target: str, data: st.DataObject) -> None:
    TARGETS[target].run(data.draw(st.binary(max_size=300)))


def test_somebody_who_gets_in_without_the_password_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lax(self: ScramServer, message: bytes, credential: object) -> bytes:
        self.user = "alice"
        return b"v="

    monkeypatch.setattr(ScramServer, "_final", lax)
    with pytest.raises(AssertionError, match="nobody showed the password"):
        logins(bytes((3, 0, 7, 0, 8, 40)))


def test_a_token_that_nobody_has_signed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jwt.algorithms.OKPAlgorithm.verify", lambda *_: True)
    of_bob = {"sub": "bob", "iat": 1, "exp": 4102444800, "aud": "kafka"}
    token = jwt.encode(of_bob, Ed25519PrivateKey.generate(), "EdDSA", {"kid": "one"})
    with pytest.raises(AssertionError, match="has not signed"):
        bearer_tokens(f"\1n,,\1auth=Bearer {token}\1\1".encode())


def test_a_name_that_passes_for_two_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_escaped", lambda text: text)
    with pytest.raises(AssertionError):
        certificates(list(TARGETS["certificates"].seeds())[-1])


def test_a_part_of_a_name_that_is_read_as_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    dotted = reader._dotted
    monkeypatch.setattr(reader, "_dotted", lambda data: dotted(data[:3]))
    with pytest.raises(AssertionError):
        certificates(list(TARGETS["certificates"].seeds())[-1])


@pytest.mark.parametrize("unescaped", ["\\", '"', "\n"])
def test_a_password_that_ends_its_quotes_is_noticed(unescaped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(lines._TO_BE_ESCAPED, ord(unescaped))
    with pytest.raises((AssertionError, lines.JaasError)):
        jaas(list(TARGETS["jaas"].seeds())[-1])

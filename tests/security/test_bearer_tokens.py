"""Bearer tokens: what is signed by a key of the set and meant for this broker is accepted, and nothing else."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from typing import Any, cast

import jwt
import pytest

from pybroker.security.bearer_tokens import BearerTokenValidator, Expectations
from pybroker.security.key_sets import KeySet, VerificationKey, parse_keys
from pybroker.security.oauthbearer import BearerToken, InvalidToken
from pybroker.security.sasl import NotYet
from tests.security.tokens import FromNow, claims, ec_key, ed_key, encoded, jwk, jwks, public_pem, rsa_key, signed

EXPECTED = Expectations(("kafka", "other"), "issuer", 30, "sub", "scope")
SET = jwks(jwk(rsa_key(), "one"), jwk(ec_key(), "two"), jwk(ed_key(), "three"))


class Keys:
    """A set whose keys are there."""

    def __init__(self, keys: list[VerificationKey]) -> None:
        self.keys = keys

    find: Callable[..., Any] = KeySet.find

    _is_fetching = True  # so that a key that is not there would be waited for


def check(token: str, expected: Expectations = EXPECTED, key_set: bytes = SET) -> BearerToken:
    keys: Any = Keys(parse_keys(key_set))
    keys._wait = None
    found = BearerTokenValidator(cast(KeySet, keys), expected).check(token)
    if isinstance(found, NotYet):
        raise InvalidToken("no key fits it")
    return found


@pytest.mark.parametrize(
    ("key", "key_id", "algorithm"),
    [
        (rsa_key(), "one", "RS256"), (rsa_key(), "one", "PS512"), (rsa_key(), None, "RS384"),
        (ec_key(), "two", "ES256"), (ec_key(), None, "ES256"), (ed_key(), "three", "EdDSA"),
    ],
)  # fmt: skip
def test_a_token_that_a_key_of_the_set_has_signed_is_accepted(key: Any, key_id: str | None, algorithm: str) -> None:
    token = check(signed(key, key_id, algorithm))
    assert token.user == "alice"
    assert 590_000 < token.expires_at_ms - time.time() * 1_000 <= 600_000


def test_algorithm_none_is_refused() -> None:
    unsigned = jwt.encode(claims(), "", algorithm="none", headers={"kid": "one"})
    for token in (unsigned, unsigned + encoded(b"signature")):
        with pytest.raises(InvalidToken, match="algorithm"):
            check(token)
    names: tuple[Any, ...] = ("None", "NONE", "nOnE", "", "HS256 ", None, 1, [], {})
    for name in names:
        with pytest.raises(InvalidToken):
            check(f"{encoded({'alg': name, 'kid': 'one'})}.{encoded(claims())}.")


@pytest.mark.parametrize("secret", [public_pem(rsa_key()), public_pem(rsa_key()).strip(), b"", SET])
@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_never_taken_for_a_shared_secret(secret: bytes, algorithm: str) -> None:
    signing = f"{encoded({'alg': algorithm, 'kid': 'one'})}.{encoded(claims())}"
    signature = hmac.digest(secret, signing.encode(), "sha" + algorithm[2:])
    with pytest.raises(InvalidToken, match="algorithm"):
        check(f"{signing}.{encoded(signature)}")


def test_a_secret_in_a_key_set_is_no_key() -> None:
    secret = {"kty": "oct", "kid": "one", "k": encoded(b"0" * 32), "alg": "HS256"}
    assert parse_keys(jwks(secret)) == []
    assert parse_keys(jwks({**secret, "alg": "RS256"})) == []
    with pytest.raises(InvalidToken):
        check(signed(b"0" * 32, "one", "HS256"), key_set=jwks(secret))


def test_a_key_is_used_by_its_own_algorithms_alone() -> None:
    only_rs512 = jwks(jwk(rsa_key(), "one", alg="RS512"))
    assert check(signed(algorithm="RS512"), key_set=only_rs512).user == "alice"
    with pytest.raises(InvalidToken, match="no key"):
        check(signed(algorithm="RS256"), key_set=only_rs512)
    with pytest.raises(InvalidToken, match="no key"):
        check(signed(ec_key(), "one", "ES256"))


@pytest.mark.parametrize(
    "headers",
    [
        {"jwk": jwk(rsa_key("mallory"))},
        {"jku": "http://127.0.0.1:1/keys"},
        {"x5u": "http://127.0.0.1:1/cert"},
        {"x5c": ["MIIB"]},
        {"kid": "../../etc/passwd"},
        {"kid": "one' OR 1=1"},
    ],
    ids=lambda headers: next(iter(headers)),
)
def test_a_token_does_not_say_which_key_it_is_checked_by(headers: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        check(signed(rsa_key("mallory"), headers=headers))


@pytest.mark.parametrize(
    "headers", [{"crit": ["b64"], "b64": False}, {"crit": []}, {"crit": ["exp"]}, {"b64": False}], ids=str
)
def test_headers_that_would_change_the_meaning_are_refused(headers: dict[str, Any]) -> None:
    signing = f"{encoded({'alg': 'RS256', 'kid': 'one', **headers})}.{encoded(claims())}"
    signature = signed().rpartition(".")[2]
    with pytest.raises(InvalidToken):
        check(f"{signing}.{signature}")


def test_every_byte_of_a_token_counts() -> None:
    token = signed()
    for pos in range(0, len(token), 7):
        other = "A" if token[pos] != "A" else "B"
        with pytest.raises(InvalidToken):
            check(token[:pos] + other + token[pos + 1 :])
        with pytest.raises(InvalidToken):
            check(token[:pos])
    header, _, signature = token.split(".")
    with pytest.raises(InvalidToken):
        check(f"{header}.{encoded(claims(sub='admin'))}.{signature}")


@pytest.mark.parametrize(
    "own",
    [
        {"exp": FromNow(-60)}, {"exp": None}, {"exp": "soon"}, {"exp": float("inf")}, {"exp": [1]},
        {"exp": 10**400}, {"exp": 10**15}, {"exp": True}, {"iat": None}, {"iat": FromNow(700)}, {"iat": "x"},
        {"iat": True}, {"exp": FromNow(-15)}, {"exp": "9999999999"},
        {"nbf": FromNow(90)},
        {"nbf": {}}, {"iss": "mallory"}, {"iss": None}, {"iss": ["issuer"]}, {"aud": "another"}, {"aud": None},
        {"aud": []}, {"aud": {"kafka": 1}}, {"aud": [1]}, {"sub": None}, {"sub": ""}, {"sub": "  "}, {"sub": 1},
        {"sub": ["alice"]}, {"sub": "a\nb"}, {"scope": ""}, {"scope": [""]}, {"scope": [1]}, {"scope": ["a", "a"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_token_that_is_not_meant_for_now_and_here_is_refused(own: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        check(signed(**own))


@pytest.mark.parametrize(
    "own",
    [
        {"iat": FromNow(-60), "exp": FromNow(-15)}, {"iat": FromNow(90)}, {"nbf": FromNow(15)},
        {"aud": ["x", "other"]}, {"scope": "read write"}, {"scope": ["read"]}, {"scope": 1}, {"scope": {"a": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_clocks_may_differ_and_one_of_several_audiences_will_do(own: dict[str, Any]) -> None:
    assert check(signed(**own)).user == "alice"


def test_what_is_not_expected_is_not_asked_for() -> None:
    lax = EXPECTED._replace(expected_audience=(), expected_issuer=None)
    assert check(signed(iss=None, aud=None), lax).user == "alice"
    assert check(signed(iss="x", aud="y"), lax).user == "alice"
    assert check(signed(email="a@b"), lax._replace(sub_claim_name="email")).user == "a@b"


@pytest.mark.parametrize(
    "token",
    [
        "", ".", "..", "...", "a.b.c", "a", "=.=.=", encoded(b"[" * 100_000) + ".e30.AA", encoded([]) + ".e30.AA",
        encoded({"alg": "RS256", "kid": 1}) + ".e30.AA", encoded(b"1" * 10_000) + ".e30.AA",
        encoded(b'{"alg":"RS256","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}") + ".e30.AA", "A" * 500_000,
        encoded({"alg": "RS256", "kid": "k" * 400_000}) + ".e30.AA", "." * 400_000, "\ud800.\ud800.\ud800",
    ],
    ids=lambda token: token[:20],
)  # fmt: skip
def test_nonsense_is_refused_and_raises_nothing_else(token: str) -> None:
    begun_ns = time.thread_time_ns()
    with pytest.raises(InvalidToken):
        check(token)
    assert time.thread_time_ns() - begun_ns < 2e9, "it takes little work"


def test_signed_nonsense_is_refused_and_raises_nothing_else() -> None:
    import jwt.api_jws

    sign = jwt.api_jws.PyJWS().encode
    for payload in (b"", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"exp":1e999,"iat":1}', b'{"exp":NaN,"iat":1}'):
        with pytest.raises(InvalidToken):
            check(sign(payload, rsa_key(), "RS256", headers={"kid": "one"}))


def test_nobody_has_a_name_that_kafkas_protocol_cannot_say() -> None:
    assert check(signed(sub="é" * 16_383)).user == "é" * 16_383
    for absurd in ("é" * 16_384, "m" * 60_000):
        with pytest.raises(InvalidToken, match="its sub is longer than any name"):
            check(signed(sub=absurd))

"""Tokens of OAUTHBEARER: Apache Kafka is shown what pybroker is shown, and both say the same."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from harness.apache_kafka import SERVER_JVM_OPTIONS, ApacheKafka
from harness.broker_probe import free_port

from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.test_oauthbearer import LISTEN, settings_of
from tests.broker.wire_client import WireClient
from tests.security.tokens import FromNow, claims, ec_key, encoded, jwk, jwks, public_pem, rsa_key, signed

pytestmark = pytest.mark.jvm

Address = tuple[str, int]
PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
# A listener of Kafka's wants its mechanisms told to it.
ENABLED = {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "OAUTHBEARER"}


class Answers(NamedTuple):
    """What a login brought: each reply's error, message and bytes, and whether the connection is served then."""

    replies: tuple[tuple[int, str | None, bytes], ...]
    lives: bool
    is_served: bool


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, Address]]:
    """Apache Kafka's listener with logins, and ours, over one key set."""
    folder = tmp_path_factory.mktemp("beside")
    keys = folder / "jwks.json"
    keys.write_bytes(jwks(jwk(rsa_key(), "one"), jwk(ec_key(), "curve")))
    settings = {name: str(value) for name, value in settings_of(keys).items()}
    port = free_port()
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
    with (
        ApacheKafka(
            folder / "kafka",
            {"listener.security.protocol.map": PROTOCOLS, **settings, **ENABLED},
            jvm_options=(*SERVER_JVM_OPTIONS, allowed),
            more_listeners=[f"SASL_PLAINTEXT://127.0.0.1:{port}"],
        ) as kafka,
        Broker(settings_of(keys), listen=LISTEN) as ours,
    ):
        yield (kafka.host, port), (ours.host, ours.port)


def log_in(address: Address, first: bytes) -> Answers:
    """Show ``first``; a challenge is answered as RFC 7628 has it."""
    with WireClient(address) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
        replies = []
        lives = False
        for told in (first, b"\x01"):
            reply = client.ask(SaslAuthenticateRequest(auth_bytes=told), 2)
            if reply is None:
                break
            replies.append((reply.error_code, reply.error_message, bytes(reply.auth_bytes)))
            lives = reply.session_lifetime_ms > 0
            if reply.error_code or not reply.auth_bytes:
                break
        served = client.ask(MetadataRequest(topics=[]), 9)
        return Answers(tuple(replies), lives, served is not None)


def shown(token: str, header: str = "n,,", extensions: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def unsigned(header: dict[str, Any]) -> str:
    return f"{encoded(header)}.{encoded(claims())}."


def signed_with_the_public_key() -> str:
    signing = unsigned({"alg": "HS256", "kid": "one"}).rpartition(".")[0]
    return f"{signing}.{encoded(hmac.digest(public_pem(rsa_key()), signing.encode(), 'sha256'))}"


def damaged() -> str:
    body, _, signature = signed().rpartition(".")
    return f"{body}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"


def with_another_body() -> str:
    header, _, signature = signed().split(".")
    return f"{header}.{encoded(claims(sub='mallory'))}.{signature}"


TOKENS: dict[str, Callable[[], str]] = {
    "sound": signed,
    "of a curve": lambda: signed(ec_key(), "curve", "ES256"),
    "PS256": lambda: signed(algorithm="PS256"),
    "RS512": lambda: signed(algorithm="RS512"),
    "an algorithm of another key": lambda: signed(key_id="curve"),
    "no key named": lambda: signed(key_id=None),
    "an unknown key named": lambda: signed(key_id="two"),
    "another's key": lambda: signed(rsa_key("mallory")),
    "no signature": lambda: unsigned({"alg": "none", "kid": "one"}),
    "a signature by the public key": signed_with_the_public_key,
    "a damaged signature": damaged,
    "another body": with_another_body,
    "expired": lambda: signed(exp=FromNow(-60)),
    "expired within the tolerance": lambda: signed(iat=FromNow(-60), exp=FromNow(-10)),
    "expires before it was issued": lambda: signed(exp=FromNow(-10)),
    "expires before it is valid": lambda: signed(nbf=FromNow(20), exp=FromNow(10)),
    "expires at a number in quotes": lambda: signed(exp=str(claims()["exp"])),
    "issued at a truth": lambda: signed(iat=True),
    "never expires": lambda: signed(exp=None),
    "expires at no number": lambda: signed(exp="soon"),
    "expires at a fraction": lambda: signed(exp=claims()["exp"] + 0.5),
    "issued in the future": lambda: signed(iat=FromNow(600)),
    "issued after it expires": lambda: signed(iat=FromNow(5000), exp=FromNow(4000)),
    "issued nowhen": lambda: signed(iat=None),
    "issued at no number": lambda: signed(iat="now"),
    "not yet valid": lambda: signed(nbf=FromNow(600)),
    "valid within the tolerance": lambda: signed(nbf=FromNow(10)),
    "of nobody": lambda: signed(sub=None),
    "of an empty name": lambda: signed(sub=""),
    "of a blank name": lambda: signed(sub="  "),
    "of a number": lambda: signed(sub=7),
    "of several": lambda: signed(sub=["alice", "bob"]),
    "for another audience": lambda: signed(aud="another"),
    "for several audiences": lambda: signed(aud=["another", "kafka"]),
    "for no audience": lambda: signed(aud=None),
    "for a number": lambda: signed(aud=7),
    "by another issuer": lambda: signed(iss="mallory"),
    "by no issuer": lambda: signed(iss=None),
    "by a number": lambda: signed(iss=7),
    "a scope": lambda: signed(scope="read write"),
    "scopes": lambda: signed(scope=["read", "write"]),
    "a scope of a number": lambda: signed(scope=7),
    "scopes, one of them twice": lambda: signed(scope=["read", "read"]),
    "scopes, one of them blank": lambda: signed(scope=["read", " "]),
    "an empty scope": lambda: signed(scope=""),
    "a scope of an object": lambda: signed(scope={"a": 1}),
    "for an empty list": lambda: signed(aud=[]),
    "for a list of a number": lambda: signed(aud=[1]),
    "for an object": lambda: signed(aud={"kafka": 1}),
    "by a list": lambda: signed(iss=["issuer"]),
    "valid from no number": lambda: signed(nbf={}),
    "expires in a list": lambda: signed(exp=[1]),
    "an unknown critical header": lambda: signed(headers={"crit": ["other"], "other": 1}),
    "two parts": lambda: signed().rpartition(".")[0],
    "four parts": lambda: f"{signed()}.x",
    "no JSON": lambda: f"{encoded(b'{')}.{encoded(b'{')}.{encoded(b'x')}",
    "a list": lambda: f"{encoded([])}.{encoded([])}.{encoded(b'x')}",
    "no base64": lambda: "a!b.c!d.e!f",
    "dots": lambda: "..",
}


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_token_gets_the_answers_that_kafka_gives(brokers: tuple[Address, Address], token: Callable[[], str]) -> None:
    first = shown(token())
    theirs, ours = (log_in(address, first) for address in brokers)
    assert ours == theirs


FIRST: dict[str, Callable[[], bytes]] = {
    "the same authorization id": lambda: shown(signed(), "n,a=alice,"),
    "another authorization id": lambda: shown(signed(), "n,a=bob,"),
    "an empty authorization id": lambda: shown(signed(), "n,a=,"),
    "an escaped authorization id": lambda: shown(signed(sub="a,b"), "n,a=a=2Cb,"),
    "a channel binding": lambda: shown(signed(), "p=tls-unique,,"),
    "a client that could bind": lambda: shown(signed(), "y,,"),
    "no header": lambda: shown(signed(), ""),
    "an extension": lambda: shown(signed(), extensions="trace=on\x01"),
    "an extension twice": lambda: shown(signed(), extensions="trace=on\x01trace=off\x01"),
    "an extension with a digit": lambda: shown(signed(), extensions="trace1=on\x01"),
    "an extension without a value": lambda: shown(signed(), extensions="trace=\x01"),
    "an extension named auth": lambda: shown(signed(), extensions="auth=on\x01"),
    "a scheme in small letters": lambda: shown(signed()).replace(b"Bearer", b"bearer"),
    "a scheme in capitals": lambda: shown(signed()).replace(b"Bearer", b"BEARER"),
    "two blanks": lambda: shown(signed()).replace(b"Bearer ", b"Bearer  "),
    "no token": lambda: shown(""),
    "no auth": lambda: b"n,,\x01trace=on\x01\x01",
    "nothing": lambda: b"",
    "the answer to a challenge": lambda: b"\x01",
    "no end": lambda: shown(signed())[:-1],
    "something behind the end": lambda: shown(signed()) + b"x",
    "no UTF-8": lambda: b"n,,\x01auth=Bearer \xff\xfe\x01\x01",
    "JSON": lambda: json.dumps({"token": signed()}).encode(),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_a_first_message_gets_the_answers_that_kafka_gives(
    brokers: tuple[Address, Address], first: Callable[[], bytes]
) -> None:
    message = first()
    theirs, ours = (log_in(address, message) for address in brokers)
    assert ours == theirs


TRIPPED_OVER: dict[str, Callable[[], bytes]] = {
    "another scheme": lambda: shown(signed()).replace(b"Bearer", b"Basic"),
    "scopes, one of them a number": lambda: shown(signed(scope=["read", 1])),
}


@pytest.mark.parametrize("first", TRIPPED_OVER.values(), ids=TRIPPED_OVER)
def test_what_kafka_trips_over_is_refused_with_an_answer(
    brokers: tuple[Address, Address], first: Callable[[], bytes]
) -> None:
    """Kafka closes without a word: it asks its pattern for a group that it does not have, and casts a number."""
    message = first()
    theirs, ours = (log_in(address, message) for address in brokers)
    assert theirs == Answers((), lives=False, is_served=False)
    assert ErrorCode.SASL_AUTHENTICATION_FAILED in [error for error, _, _ in ours.replies]
    assert not ours.is_served


def test_a_critical_header_that_kafka_knows_is_refused_all_the_same(brokers: tuple[Address, Address]) -> None:
    first = shown(signed(headers={"crit": ["b64"], "b64": True}))
    theirs, ours = (log_in(address, first) for address in brokers)
    assert (theirs.is_served, ours.is_served) == (True, False)

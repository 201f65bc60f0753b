"""OAUTHBEARER over the wire: stock clients with signed tokens, and what becomes of attacks."""

from __future__ import annotations

import asyncio
import hmac
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from pybroker import limits
from pybroker.config.schema import ConfigError
from pybroker.security import key_sets, mechanisms
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient
from tests.security.tokens import claims, encoded, jwk, jwks, public_pem, rsa_key, signed

LISTEN = "SASL_PLAINTEXT://127.0.0.1:0"
OWN = "listener.name.sasl_plaintext.oauthbearer."
ANY_TOPIC = MetadataRequest(topics=None)
CHALLENGE = b'{"status":"invalid_token"}'


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "jwks.json"
    file.write_bytes(jwks(jwk(rsa_key(), "one")))
    return file


ANY_AUDIENCE = {"sasl.oauthbearer.allow.unverified.audience": "true"}
ANY_ISSUER = {"sasl.oauthbearer.allow.unverified.issuer": "true"}


def settings_of(keys: Path, **own: str | int) -> dict[str, str | int]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{OWN}sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        f"{OWN}sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "issuer",
        "connection.failed.authentication.delay.ms": 20,
        **{name.replace("_", "."): value for name, value in own.items()},
    }


@pytest.fixture(scope="module")
def broker(keys: Path) -> Iterator[Broker]:
    with Broker(settings_of(keys), listen=LISTEN) as broker:
        yield broker


class Login(WireClient):
    """A connection that has shown a token; ``answer`` is what it was told."""

    def __init__(self, broker: Broker, token: str) -> None:
        super().__init__((broker.host, broker.port))
        self.answer = self.show(token)

    def show(self, token: str, header: str = "n,,") -> Any:
        self.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        return self.ask(SaslAuthenticateRequest(auth_bytes=f"{header}\x01auth=Bearer {token}\x01\x01".encode()), 2)


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """kafka-python's."""

    def token(self) -> str:
        return signed(sub="carol")


class AioTokens(AioTokenProvider):  # type: ignore[misc]
    """aiokafka's."""

    async def token(self) -> str:
        return signed(sub="carol")


# --- stock clients ---------------------------------------------------------------------------------------------------


def test_a_login_with_a_token_longer_than_a_whole_frame_is_answered(broker: Broker) -> None:
    """It is read in steps, and may be as long as sasl.server.max.receive.size."""
    token = signed(sub="carol", groups=["g" * 80] * 2_000)
    assert len(token) > limits.WHOLE_FRAME_BYTES
    with Login(broker, token) as login:
        assert login.answer.error_code == 0
        assert login.ask(ANY_TOPIC, 9).brokers


def test_stock_clients_log_in_with_signed_tokens(broker: Broker) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
    }  # fmt: skip
    producer = KafkaProducer(sasl_oauth_token_provider=Tokens(), **settings)
    producer.send("oauth", b"from kafka-python").get(PATIENCE_S)
    producer.close()

    async def produce() -> None:
        async with AIOKafkaProducer(sasl_oauth_token_provider=AioTokens(), **settings) as aio:
            await aio.send_and_wait("oauth", b"from aiokafka")

    asyncio.run(produce())
    asked: list[str] = []

    def oauth_cb(config: str) -> tuple[str, float]:
        asked.append(config)
        return signed(), time.time() + 600

    librdkafka: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "none", "oauth_cb": oauth_cb,
    }  # fmt: skip
    admin = AdminClient(librdkafka)
    assert "oauth" in admin.list_topics(timeout=PATIENCE_S).topics
    assert asked
    consumer = KafkaConsumer("oauth", auto_offset_reset="earliest", sasl_oauth_token_provider=Tokens(), **settings)
    assert sorted(next(consumer).value for _ in range(2)) == [b"from aiokafka", b"from kafka-python"]
    consumer.close()


# --- sessions --------------------------------------------------------------------------------------------------------


def test_a_session_lasts_as_long_as_its_token(broker: Broker, keys: Path) -> None:
    with Login(broker, signed(exp=int(time.time()) + 60)) as client:
        assert client.answer.error_code == 0
        assert 50_000 < client.answer.session_lifetime_ms <= 60_000
        assert client.show(signed(sub="mallory")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, "who stays"
    strict = settings_of(keys, connections_max_reauth_ms=5_000)
    with Broker(strict, listen=LISTEN) as shorter, Login(shorter, signed()) as client:
        assert client.answer.session_lifetime_ms == 5_000


def test_a_session_whose_token_has_expired_is_renewed_by_another_or_ends(broker: Broker) -> None:
    with (
        Login(broker, signed(exp=int(time.time()) + 5)) as goes,
        Login(broker, signed(exp=int(time.time()) + 5)) as stays,
    ):
        assert goes.answer.error_code == stays.answer.error_code == 0
        wait_until(lambda: goes.ask(ANY_TOPIC, 9) is None, "the end of the session")
        assert stays.show(signed()).session_lifetime_ms > 60_000
        assert stays.ask(ANY_TOPIC, 9).brokers


# --- attacks ---------------------------------------------------------------------------------------------------------


def unsigned(algorithm: str = "none") -> str:
    return f"{encoded({'alg': algorithm, 'kid': 'one'})}.{encoded(claims())}."


def confused() -> str:
    signing = unsigned("HS256").rpartition(".")[0]
    return f"{signing}.{encoded(hmac.digest(public_pem(rsa_key()), signing.encode(), 'sha256'))}"


@pytest.mark.parametrize(
    "token",
    [
        unsigned(), confused(), signed(rsa_key("mallory")), signed(exp=int(time.time()) - 60),
        signed(iat=int(time.time()) + 99_999), signed(nbf=int(time.time()) + 99_999), signed(aud="another"),
        signed(iss="mallory"), "nonsense", "a" * 400_000,
    ],
    ids=["none", "key confusion", "another key", "expired", "issued in the future", "not yet valid", "audience",
         "issuer", "nonsense", "large"],
)  # fmt: skip
def test_a_token_that_is_not_accepted_gets_the_challenge_and_then_the_end(broker: Broker, token: str) -> None:
    with Login(broker, token) as client:
        assert (client.answer.error_code, bytes(client.answer.auth_bytes)) == (0, CHALLENGE)
        begun = time.monotonic()
        client.send(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        client.send(ANY_TOPIC, 9)
        refused = client.receive()
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED, CHALLENGE.decode()
        )  # fmt: skip
        assert time.monotonic() - begun > 0.015
        assert client.receive() is None


def test_a_token_of_a_gigabyte_is_refused_before_it_is_read(broker: Broker) -> None:
    with WireClient((broker.host, broker.port)) as client:
        client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        client.send_raw(struct.pack(">i", 1 << 30) + bytes(65_536))
        assert client.receive_payload() is None


def test_after_the_challenge_no_other_token_is_looked_at(broker: Broker) -> None:
    with Login(broker, "nonsense") as client:
        good = f"n,,\x01auth=Bearer {signed()}\x01\x01".encode()
        refused = client.ask(SaslAuthenticateRequest(auth_bytes=good), 2)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.ask(ANY_TOPIC, 9) is None


def test_a_token_is_shown_to_no_log(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    token = signed(rsa_key("mallory"))
    with Broker(settings_of(keys), listen=LISTEN) as broker, Login(broker, token) as client:
        client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "the token is not accepted" in told
    assert token not in told
    assert token.rpartition(".")[2] not in told


# --- keys and settings -----------------------------------------------------------------------------------------------


def test_keys_may_be_exchanged_while_the_broker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sets, "UNKNOWN_KEY_MS", 1)
    file = tmp_path / "jwks.json"
    file.write_bytes(jwks(jwk(rsa_key(), "one")))
    with Broker(settings_of(file), listen=LISTEN) as broker:
        file.write_bytes(jwks(jwk(rsa_key("two"), "two")))
        with Login(broker, signed(rsa_key("two"), "two")) as client:
            assert client.answer.auth_bytes == b"", "the first that names the new key waits for it"
        with Login(broker, signed()) as client:
            assert bytes(client.answer.auth_bytes) == CHALLENGE


def test_a_broker_without_keys_lets_nobody_in_until_there_are_some(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    own = {"sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": 1}
    with Broker(settings_of(file, **own), listen=LISTEN) as broker:
        with Login(broker, signed()) as client:
            assert bytes(client.answer.auth_bytes) == CHALLENGE
        file.write_bytes(jwks(jwk(rsa_key(), "one")))

        def is_let_in() -> bool:
            with Login(broker, signed()) as client:
                return not client.answer.auth_bytes

        wait_until(is_let_in, "the keys", 10)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "is not set"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://127.0.0.1/keys"}, "is no URL of https, http or file:///"),
        ({"sasl.oauthbearer.expected.audience": ""}, "expected.audience is not set"),
        ({"sasl.oauthbearer.expected.issuer": ""}, "expected.issuer is not set"),
        ({"sasl.oauthbearer.expected.issuer": "", **ANY_AUDIENCE}, "expected.issuer is not set"),
        ({f"{OWN}sasl.jaas.config": "some.OtherModule required;"}, "login module"),
        (
            {
                f"{OWN}sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.internals."
                "unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
            },
            "callback.handler.class: pybroker loads no Java classes",
        ),
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(keys: Path, changed: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said), Broker({**settings_of(keys), **changed}, listen=LISTEN):
        pass


def test_what_a_token_says_may_be_left_open_where_the_settings_say_so(keys: Path) -> None:
    expected = {"sasl.oauthbearer.expected.audience": "", "sasl.oauthbearer.expected.issuer": ""}
    settings = {**settings_of(keys), **expected, **ANY_AUDIENCE, **ANY_ISSUER}
    with Broker(settings, listen=LISTEN) as broker, Login(broker, signed(aud="another", iss="another")) as client:
        assert not client.answer.auth_bytes


def test_without_the_extra_a_line_names_it(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install '.*\[oauth\]'"), Broker(settings_of(keys), listen=LISTEN):
        pass


def test_the_user_may_be_another_claim(keys: Path) -> None:
    own = {"sasl_oauthbearer_sub_claim_name": "email"}
    with Broker(settings_of(keys, **own), listen=LISTEN) as broker:
        with Login(broker, signed(email="a@b")) as client:
            assert client.answer.error_code == 0
            assert client.show(signed(email="c@d")).error_message.endswith("User.a@b: User.c@d")
        with Login(broker, signed()) as client:
            assert json.loads(bytes(client.answer.auth_bytes)) == {"status": "invalid_token"}

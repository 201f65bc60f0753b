"""Who connects to a SASL listener is known before anything else is served, and stays who it was."""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, UserScramCredentialUpsertion
from confluent_kafka.admin import ScramMechanism as Mechanism
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaConsumer, KafkaProducer

from pybroker.config.schema import ConfigError
from pybroker.security.plain import LOGIN_MODULE as PLAIN_MODULE
from pybroker.security.scram import SHA_256, ScramClient
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient

PREFIX = "listener.name.sasl_plaintext"
JAAS = f'{PLAIN_MODULE} required user_alice="secret-1" user_bob="secret-2";'
SETTINGS: dict[str, str | int] = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": 20,
    "connections.max.reauth.ms": 60_000,  # without it nobody logs in anew
}
SALT = b"salt" * 4
ALICE = b"\0alice\0secret-1"
ANY_TOPIC = MetadataRequest(topics=None)
SESSION_MS = 3_000  # so long that what is asked in its beginning comes in time


def sasl_broker(**settings: str | int) -> Broker:
    return Broker({**SETTINGS, **{key.replace("_", "."): text for key, text in settings.items()}},
                  listen="SASL_PLAINTEXT://127.0.0.1:0")  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with sasl_broker() as broker:
        with connected(broker) as client:
            log_in(client)
            upsertions = [
                ScramCredentialUpsertion(
                    name=user, mechanism=1, iterations=4096, salt=SALT,
                    salted_password=SHA_256.salted(b"secret-3", SALT, 4096),
                )
                for user in ("alice", "carol")
            ]  # fmt: skip
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
            assert [result.error_code for result in client.ask(request, 0).results] == [0, 0]
        yield broker


def connected(broker: Broker) -> WireClient:
    return WireClient((broker.host, broker.port))


def log_in(client: WireClient, token: bytes = ALICE, version: int = 2) -> Any:
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    return client.ask(SaslAuthenticateRequest(auth_bytes=token), version)


def scram_client(user: str, password: bytes) -> ScramClient:
    return ScramClient(SHA_256, user, lambda salt, count: SHA_256.salted(password, salt, count), b"c" * 18)


def settings_of(broker: Broker, mechanism: str, user: str, password: str) -> dict[str, Any]:
    """kafka-python's."""
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


# --- stock clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "user", "password"), [("PLAIN", "bob", "secret-2"), ("SCRAM-SHA-256", "carol", "secret-3")]
)
def test_stock_clients_log_in(broker: Broker, mechanism: str, user: str, password: str) -> None:
    topic = f"stock-{mechanism}"
    settings = settings_of(broker, mechanism, user, password)
    producer = KafkaProducer(**settings)
    producer.send(topic, b"from kafka-python").get(PATIENCE_S)
    producer.close()
    common: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    assert topic in AdminClient(common).list_topics(timeout=PATIENCE_S).topics

    async def produce() -> None:
        async with AIOKafkaProducer(**settings) as aio:
            await aio.send_and_wait(topic, b"from aiokafka")

    asyncio.run(produce())
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **settings)
    assert sorted(next(consumer).value for _ in range(2)) == [b"from aiokafka", b"from kafka-python"]
    consumer.close()


def test_users_are_made_and_described_by_a_stock_client(broker: Broker) -> None:
    common = {"bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.username": "alice"}
    admin = AdminClient({**common, "sasl.mechanism": "PLAIN", "sasl.password": "secret-1"})
    info = ScramCredentialInfo(Mechanism.SCRAM_SHA_512, 8192)
    futures = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("dave", info, b"secret-4")])
    futures["dave"].result(PATIENCE_S)
    described: Any = admin.describe_user_scram_credentials(["dave", "nobody"])
    (found,) = described["dave"].result(PATIENCE_S).scram_credential_infos
    assert (found.mechanism, found.iterations) == (Mechanism.SCRAM_SHA_512, 8192)
    dave = AdminClient(
        {**common, "sasl.username": "dave", "sasl.mechanism": "SCRAM-SHA-512", "sasl.password": "secret-4"}
    )
    assert dave.list_topics(timeout=PATIENCE_S).brokers
    with pytest.raises(KafkaException, match="does not exist"):
        described["nobody"].result(PATIENCE_S)


# --- the order of steps ----------------------------------------------------------------------------------------------


def test_nothing_is_served_before_the_login(broker: Broker) -> None:
    for request, version in ((ANY_TOPIC, 9), (SaslAuthenticateRequest(auth_bytes=ALICE), 2)):
        with connected(broker) as client:
            assert client.ask(request, version) is None
    with connected(broker) as client:
        served = client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        assert {17, 36} <= {api.api_key for api in served.api_keys}
        assert log_in(client).error_code == 0
        assert client.ask(ANY_TOPIC, 9).brokers


def test_what_is_served_is_told_once_before_the_login(broker: Broker) -> None:
    what, unnamed = (ApiVersionsRequest(client_software_name=name, client_software_version="1") for name in ("x", ""))
    with connected(broker) as client:
        assert client.ask(unnamed, 3).error_code == ErrorCode.INVALID_REQUEST
        assert client.ask(what, 3).error_code == 0, "what was refused was not told"
        assert client.ask(what, 3) is None


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(broker: Broker) -> None:
    with connected(broker) as client:
        refused = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert refused.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1) is None


def test_tokens_may_come_bare_behind_the_first_version_of_a_handshake(broker: Broker) -> None:
    with connected(broker) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        client.send_raw(struct.pack(">i", len(ALICE)) + ALICE)
        assert client.receive_payload() == b""
        assert client.ask(ANY_TOPIC, 9).brokers
    with connected(broker) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        client.send_raw(struct.pack(">i", 8) + b"\0alice\0x")
        assert client.receive_payload() is None


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0secret-1", b"\0alice\0", b"alice", b"\xff\xfe"])
def test_a_login_that_fails_is_told_late_and_nothing_behind_it_is_served(broker: Broker, token: bytes) -> None:
    with connected(broker) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        begun = time.monotonic()
        client.send(SaslAuthenticateRequest(auth_bytes=token), 2)
        client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        client.send(ANY_TOPIC, 9)
        refused = client.receive()
        assert time.monotonic() - begun > 0.015
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.receive() is None


def test_requests_behind_a_login_are_served_when_it_succeeds(broker: Broker) -> None:
    with connected(broker) as client:
        client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        client.send(ANY_TOPIC, 9)
        assert [client.receive().error_code for _ in range(2)] == [0, 0]
        assert client.receive().brokers


def test_who_does_not_exist_is_asked_and_refused_like_who_does(broker: Broker) -> None:
    said = []
    for user in ("carol", "nobody"):
        with connected(broker) as client:
            client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            scram = scram_client(user, b"wrong")
            first = client.ask(SaslAuthenticateRequest(auth_bytes=scram.first()), 2)
            last = client.ask(SaslAuthenticateRequest(auth_bytes=scram.final(bytes(first.auth_bytes))), 2)
            said.append((first.error_code, last.error_code, last.error_message))
    assert said[0] == said[1]
    assert said[0][1] == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("length", [524_289, 2**31 - 1, -1, 0x16030100])
def test_more_than_a_login_may_have_is_refused_before_it_is_read(broker: Broker, length: int) -> None:
    with connected(broker) as client:
        client.send_raw(struct.pack(">i", length))
        assert client.receive_payload() is None


@pytest.mark.parametrize(("version", "told_ms"), [(0, 0), (1, 60_000), (2, 60_000)])
def test_a_login_is_answered_in_the_version_of_its_request(version: int, told_ms: int) -> None:
    """From version 1 on the client is told how long its session lasts."""
    with sasl_broker(connections_max_reauth_ms=60_000) as broker, connected(broker) as client:
        answer = log_in(client, version=version)
        assert (answer.error_code, answer.error_message, bytes(answer.auth_bytes)) == (0, "", b"")
        assert answer.session_lifetime_ms == told_ms
        assert client.ask(ANY_TOPIC, 9).brokers


# --- sessions --------------------------------------------------------------------------------------------------------


def test_a_session_ends_unless_its_client_logs_in_anew() -> None:
    with sasl_broker(connections_max_reauth_ms=SESSION_MS) as broker, connected(broker) as client:
        begun = time.monotonic()
        assert log_in(client).session_lifetime_ms == SESSION_MS
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0, "the first time at any time"
        assert client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 2).session_lifetime_ms == SESSION_MS
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(ANY_TOPIC, 9) is not None
        wait_until(lambda: client.ask(ANY_TOPIC, 9) is None, "the end of the session")
        assert time.monotonic() - begun > SESSION_MS / 1_000 - 0.1


def test_a_session_that_has_ended_may_be_renewed() -> None:
    with sasl_broker(connections_max_reauth_ms=50) as broker, connected(broker) as client:
        log_in(client)
        assert log_in(client).error_code == 0
        assert client.ask(ANY_TOPIC, 9).brokers


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0bob\0secret-2", "Cannot change principals during re-authentication from User.alice: User.bob"),
        (b"\0alice\0wrong", "Invalid username or password"),
    ],
)
def test_who_logs_in_anew_stays_the_same(broker: Broker, token: bytes, message: str) -> None:
    with connected(broker) as client:
        log_in(client)
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.send(SaslAuthenticateRequest(auth_bytes=token), 2)
        client.send(ANY_TOPIC, 9)
        refused = client.receive()
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert message in refused.error_message
        assert client.receive() is None


def test_a_login_anew_by_another_mechanism_ends_the_connection_without_a_word(broker: Broker) -> None:
    with connected(broker) as client:
        log_in(client)
        assert client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        assert client.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2) is None
    for mechanism, version in (("ROT-13", 1), ("PLAIN", 0)):
        with connected(broker) as client:
            log_in(client)
            assert client.ask(SaslHandshakeRequest(mechanism=mechanism), version) is None


def test_a_session_without_an_end_is_not_renewed() -> None:
    with sasl_broker(connections_max_reauth_ms=0) as broker, connected(broker) as client:
        assert log_in(client).session_lifetime_ms == 0
        refused = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (refused.error_code, refused.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert client.ask(ANY_TOPIC, 9).brokers, "it goes on"


def test_who_is_logged_in_may_not_go_on_with_a_login(broker: Broker) -> None:
    with connected(broker) as client:
        log_in(client)
        again = client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(ANY_TOPIC, 9).brokers


def test_where_nobody_is_asked_a_login_is_out_of_place(pybroker: Broker) -> None:
    with connected(pybroker) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        refused = client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE


# --- users and settings ----------------------------------------------------------------------------------------------


def test_users_are_altered_by_kafkas_rules(broker: Broker) -> None:
    def upsertion(
        name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"s"
    ) -> ScramCredentialUpsertion:
        return ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=b"p"
        )

    with connected(broker) as client:
        log_in(client)
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)],
            upsertions=[
                upsertion(""), upsertion("few", iterations=4095), upsertion("many", iterations=16_385),
                upsertion("long", salt=bytes(1025)), upsertion("longest", salt=bytes(1024)),
                upsertion("odd", mechanism=7), upsertion("twice"), upsertion("twice"), upsertion("good"),
            ],
        )  # fmt: skip
        results = client.ask(request, 0).results
    assert {result.user: result.error_code for result in results} == {
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "long": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "longest": ErrorCode.NONE,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "good": 0,
    }


def test_passwords_change_while_the_broker_runs_and_are_shown_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    name = f"{PREFIX}.plain.sasl.jaas.config"
    with sasl_broker() as broker, connected(broker) as client:
        log_in(client)

        def alter(text: str) -> Any:
            config = AlterableConfig(name=name, config_operation=0, value=text)
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            return client.ask(request, 1).responses[0]

        refused = alter('NoSuchModule required user_eve="hunter2";')
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert name in refused.error_message
        assert "hunter2" not in refused.error_message
        assert alter(f'{PLAIN_MODULE} required user_eve="hunter2";').error_code == 0
        with connected(broker) as other:
            assert log_in(other, b"\0eve\0hunter2").error_code == 0
        with connected(broker) as other:
            assert log_in(other).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[name])
        described = client.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
        (entry,) = described.results[0].configs
        assert entry.is_sensitive
        assert entry.value is None
        assert "hunter2" not in repr(described)
    assert "hunter2" not in caplog.text
    assert "secret-1" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms names GSSAPI"),
        ({f"{PREFIX}.sasl.enabled.mechanisms": "PLAIN,NTLM"}, f"{PREFIX}.sasl.enabled.mechanisms names NTLM"),
        ({f"{PREFIX}.plain.sasl.jaas.config": "x required;"}, f"{PREFIX}.plain.sasl.jaas.config names a login module"),
        ({f"{PREFIX}.plain.sasl.jaas.config": "hunter2"}, f"{PREFIX}.plain.sasl.jaas.config: Login module control"),
        ({f"{PREFIX}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required; x required;"}, "contains 2 login modules"),
        ({f"{PREFIX}.plain.connections.max.reauth.ms": "soon"}, f"{PREFIX}.plain.connections.max.reauth.ms"),
    ],
)
def test_a_setting_that_cannot_be_is_named_at_the_start(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Broker({**SETTINGS, **settings}, listen="SASL_PLAINTEXT://127.0.0.1:0").start()
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_plain_needs_its_users() -> None:
    with pytest.raises(ConfigError, match=r"plain\.sasl\.jaas\.config is not set"):
        Broker({"sasl.enabled.mechanisms": "PLAIN"}, listen="SASL_PLAINTEXT://127.0.0.1:0").start()

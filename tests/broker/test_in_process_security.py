"""``Broker(security=...)``: stock clients get in by the settings that it gives them, and nobody else does."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE_S
from kafka import KafkaConsumer, KafkaProducer

from pybroker.testing import Broker, Cluster, Security
from pybroker.testing.security import MECHANISMS

USERS = {"alice": 'alice\'s "secret" \\ one', "bob@example": "bob, secret=;"}


SECURED = [Security("SASL_SSL"), Security("SASL_PLAINTEXT"), Security("SSL", {"shop": ""}, client_auth=True)]


@pytest.fixture(scope="module", params=["SSL", "SASL_PLAINTEXT", "SASL_SSL", "SSL with certificates"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    protocol = request.param.split()[0]
    with Broker(security=Security(protocol, USERS, client_auth="certificates" in request.param)) as broker:
        yield broker


def sends_by_all(broker: Broker, topic: str, **who: Any) -> None:
    producer = KafkaProducer(**broker.client_settings("kafka-python", **who))
    producer.send(topic, b"kafka-python").get(PATIENCE_S)
    producer.close()
    assert topic in AdminClient(broker.client_settings("confluent-kafka", **who)).list_topics(timeout=PATIENCE_S).topics

    async def produce() -> None:
        async with AIOKafkaProducer(**broker.client_settings("aiokafka", **who)) as aio:
            await aio.send_and_wait(topic, b"aiokafka")

    asyncio.run(produce())
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **broker.client_settings("kafka-python", **who))
    assert sorted(next(consumer).value for _ in range(2)) == [b"aiokafka", b"kafka-python"]
    consumer.close()


@pytest.mark.parametrize("user", USERS)
def test_stock_clients_get_in_by_the_settings_that_the_broker_gives(broker: Broker, user: str) -> None:
    sends_by_all(broker, f"by-{user.partition('@')[0]}", user=user)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_users_log_in_by_every_mechanism(mechanism: str) -> None:
    with Broker(security=Security("SASL_SSL", USERS)) as broker:
        sends_by_all(broker, "t", mechanism=mechanism, user="bob@example")


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_a_wrong_password_does_not_get_in(protocol: str) -> None:
    with Broker(security=protocol) as broker:
        wrong = broker.client_settings("confluent-kafka") | {"sasl.password": "wrong"}
        with pytest.raises(KafkaException):
            AdminClient(wrong | {"log_level": 0}).list_topics(timeout=2)


def test_another_authority_is_not_trusted() -> None:
    with Broker(security="SSL") as one, Broker(security="SSL") as other:
        context = ssl.create_default_context(cafile=str(one.certificates / "ca.pem"))
        for broker in (one, other):
            with socket.create_connection((broker.host, broker.port)) as plain:
                if broker is one:
                    context.wrap_socket(plain, server_hostname="localhost").close()
                    continue
                with pytest.raises(ssl.SSLCertVerificationError):
                    context.wrap_socket(plain, server_hostname="localhost")


def test_users_are_principals_of_acls_by_login_and_by_certificate() -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    for security in (Security("SASL_PLAINTEXT", USERS), Security("SSL", USERS, client_auth=True)):
        with Broker(settings, security=security) as broker:
            broker.create_topic("t")
            allowed, denied = (
                AdminClient(broker.client_settings("confluent-kafka", user=user)).list_topics(timeout=PATIENCE_S).topics
                for user in USERS
            )
            assert "t" in allowed
            assert "t" not in denied


def test_what_was_made_ends_with_the_broker() -> None:
    with Broker(security=Security("SASL_SSL", client_auth=True)) as broker:
        certificates = broker.certificates
        assert {each.name for each in certificates.iterdir()} == {"ca.pem", "ca.key", "broker.pem", "alice.pem"}
    assert not certificates.parent.exists()


@pytest.mark.parametrize("security", SECURED, ids=["SASL_SSL", "SASL_PLAINTEXT", "certificates"])
def test_brokers_of_a_cluster_ask_their_clients_and_each_other(security: Security) -> None:
    """All three have to have a record before it is acknowledged, and none has another listener than the secured one."""
    with Cluster(3, security=security) as cluster:
        for node in cluster.brokers.values():
            assert [endpoint.name for endpoint in node._running().endpoints] == [security.protocol]
        cluster.create_topic("t", replication_factor=3, configs={"min.insync.replicas": 3})
        with KafkaProducer(acks="all", **cluster.client_settings("kafka-python")) as producer:
            assert producer.send("t", b"one").get(PATIENCE_S).offset == 0
            victim = next(iter(cluster.brokers))
            cluster.kill(victim)
            cluster.restart(victim)
            assert producer.send("t", b"two").get(PATIENCE_S).offset == 1
        topics = AdminClient(cluster.client_settings("confluent-kafka")).list_topics(timeout=PATIENCE_S).topics
        assert "t" in topics
        certificates = cluster.certificates
    assert not certificates.exists()


def test_a_stranger_gets_into_no_broker_of_a_cluster() -> None:
    with Cluster(2, security="SASL_SSL") as cluster:
        wrong = cluster.client_settings("confluent-kafka") | {"sasl.password": "wrong", "log_level": 0}
        for node in cluster.brokers.values():
            for stranger in (wrong, {"log_level": 0}):
                with pytest.raises(KafkaException):
                    AdminClient({**stranger, "bootstrap.servers": node.bootstrap}).list_topics(timeout=2)


def test_a_cluster_without_security_gives_settings_too(pybroker_cluster: Cluster) -> None:
    assert pybroker_cluster.client_settings("kafka-python")["bootstrap_servers"] == pybroker_cluster.bootstrap


def test_a_broker_without_security_gives_settings_too(pybroker: Broker) -> None:
    assert pybroker.client_settings("kafka-python") == {
        "bootstrap_servers": pybroker.bootstrap,
        "security_protocol": "PLAINTEXT",
    }


def test_javas_settings_name_pem_files_and_the_login_module() -> None:
    with Broker(security=Security("SASL_SSL", USERS)) as broker:
        settings = broker.client_settings("java", mechanism="PLAIN")
    assert settings["ssl.truststore.type"] == "PEM"
    assert settings["sasl.mechanism"] == "PLAIN"
    assert settings["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        r'username="alice" password="alice' + r"'s \"secret\" \\ one" + '";'
    )


@pytest.mark.parametrize(
    "security", [Security("TLS"), Security("SASL_PLAINTEXT", client_auth=True), Security("SSL", users={}), "SASL"]
)
def test_what_cannot_be_is_refused_when_it_is_said(security: Security | str) -> None:
    with pytest.raises(ValueError, match=r"security protocol|client_auth|users"):
        Broker(security=security)


def test_nobody_gets_settings_that_there_are_not() -> None:
    with Broker(security="SSL") as broker:
        for wrong in ({"library": "ruby"}, {"user": "mallory"}, {"mechanism": "PLAIN"}):
            with pytest.raises(ValueError, match="there are"):
                broker.client_settings(**{"library": "kafka-python", **wrong})


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pybroker.security.certificate_authority", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '.*\[tls\]'"):
        Broker(security="SSL").start()
    with Broker(security="SASL_PLAINTEXT"):
        pass


def test_the_fixture_takes_security(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef pybroker_security():\n    return 'SASL_SSL'\n"
    )
    (tmp_path / "test_it.py").write_text(
        "from kafka import KafkaProducer\n\ndef test_it(pybroker, pybroker_topic):\n"
        "    producer = KafkaProducer(**pybroker.client_settings('kafka-python'))\n"
        "    producer.send(pybroker_topic, b'x').get(20)\n    producer.close()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout

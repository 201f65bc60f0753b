"""The commands of security beside Apache Kafka: they serve its brokers, and what they make serves its clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.apache_kafka import CONFIG_COMMAND, STORAGE_TOOL, TOPIC_COMMAND, ApacheKafka, run_kafka_tool

from pybroker.security.certificate_authority import write_certificates
from pybroker.security.first_users import first_users
from pybroker.testing import Broker, Security
from tests.cli.command import CommandLine

pytestmark = [pytest.mark.jvm]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with ApacheKafka(tmp_path_factory.mktemp("kafka") / "kafka") as kafka:
        yield CommandLine(kafka.bootstrap)


def test_users_of_apache_kafka_are_made_changed_and_deleted(kafka: CommandLine) -> None:
    kafka.ok("users", "create", "bob", "-m", "SCRAM-SHA-256", "-m", "SCRAM-SHA-512", stdin=b"first\n")
    kafka.ok("users", "alter", "bob", "--iterations", "8192", "-m", "SCRAM-SHA-256", stdin=b"second\n")
    tool = ("--bootstrap-server", kafka.bootstrap, "--describe", "--entity-type", "users", "--entity-name", "bob")
    described = run_kafka_tool(CONFIG_COMMAND, *tool).stdout
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    assert [each["iterations"] for each in kafka.json("users", "list")] == [8192, 4096]
    kafka.ok("users", "delete", "bob")
    assert kafka.json("users", "list") == []
    refused = kafka.run("users", "delete", "bob")
    assert b"user bob: RESOURCE_NOT_FOUND" in refused.stderr


def test_settings_of_apache_kafka_are_altered_and_described(kafka: CommandLine) -> None:
    kafka.ok("topics", "create", "t")
    for of, setting in (
        (("--topic", "t"), "retention.ms=1000"),
        (("--group", "g"), "consumer.session.timeout.ms=50000"),
        (("--broker", "1"), "log.cleaner.threads=2"),
        (("--broker-defaults",), "log.cleaner.threads=2"),
        (("--client-metrics", "m"), "interval.ms=1000"),
    ):
        kafka.ok("configs", "alter", *of, "-s", setting)
        shown = {each["name"]: each for each in kafka.json("configs", "describe", *of)}
        name, _, value = setting.partition("=")
        assert shown[name]["value"] == value
        assert shown[name]["source"].startswith("DYNAMIC_")
    assert kafka.json("configs", "describe", "--broker-logger", "1")


@pytest.mark.parametrize("stores", ["PEM", "PKCS12"])
def test_kafkas_own_clients_get_in_by_the_certificates_that_were_made(stores: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    write_certificates(keys, servers={"broker": ["localhost", "127.0.0.1"]}, clients=["alice"])
    password = (keys / "store.password").read_text().strip()
    pem, p12 = stores == "PEM", f"ssl.truststore.password={password}\nssl.keystore.password={password}\n"
    client = tmp_path / "client.properties"
    client.write_text(
        f"security.protocol=SSL\nssl.truststore.type={stores}\nssl.keystore.type={stores}\n"
        f"ssl.truststore.location={keys / ('ca.pem' if pem else 'truststore.p12')}\n"
        f"ssl.keystore.location={keys / ('alice.pem' if pem else 'alice.p12')}\n" + ("" if pem else p12)
    )
    settings = {
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys / "ca.pem"),
    }
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker:
        broker.create_topic("secured")
        tool = ("--bootstrap-server", broker.bootstrap, "--command-config", str(client), "--list")
        assert run_kafka_tool(TOPIC_COMMAND, *tool).stdout.split() == ["secured"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafkas_own_clients_get_in_by_the_settings_that_a_tests_broker_gives(mechanism: str, tmp_path: Path) -> None:
    security = Security("SASL_SSL", users={"alice": "it's =; secret"})
    with Broker(security=security) as broker:
        broker.create_topic("secured")
        client = tmp_path / "client.properties"
        settings = broker.client_settings("java", mechanism=mechanism)
        client.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        tool = ("--bootstrap-server", broker.bootstrap, "--command-config", str(client), "--list")
        assert run_kafka_tool(TOPIC_COMMAND, *tool).stdout.split() == ["secured"]


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-256=[name=alice,password=secret]",
        'SCRAM-SHA-512=[name="alice",iterations=8192,password="a b"]',
        "SCRAM-SHA-256=[name=alice,salt=MWx2NHBkbnc0ZndxN25vdGN4bTB5eTFrN3E=,saltedpassword=mT0yyUUxnlgaC99HhgRcQA==]",
    ],
)
def test_users_of_the_start_are_written_as_kafkas_storage_tool_takes_them(text: str, tmp_path: Path) -> None:
    assert first_users([text])
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path / 'data'}\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
    )
    formatted = ("format", "--config", str(file), "--cluster-id", "pybrokerCompatTestsIdA", "--add-scram", text)
    run_kafka_tool(STORAGE_TOOL, *formatted)

"""The commands of security beside Apache Kafka: they serve its brokers, and what they make serves its clients."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from harness.apache_kafka import ACL_COMMAND, CONFIG_COMMAND, STORAGE_TOOL, TOPIC_COMMAND, ApacheKafka, run_kafka_tool
from harness.broker_probe import free_port, host_and_port
from harness.waiting import PATIENCE_S, wait_until
from harness.wire import Client
from kafka import KafkaConsumer, KafkaProducer

from pybroker.security.certificate_authority import write_certificates
from pybroker.security.first_users import first_users
from pybroker.security.scram import LOGIN_MODULE as SCRAM_MODULE
from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker, Security
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from pybroker_protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest
from tests.cli.command import CommandLine
from tests.cli.test_tenants_command import ROOT
from tests.cli.test_tenants_command import SETTINGS as LOGINS

pytestmark = [pytest.mark.jvm]

# Who comes by the plain listener may do everything, and who has logged in as root.
PROPERTIES = {
    **{name: str(value) for name, value in LOGINS.items()},
    "super.users": "User:ANONYMOUS;User:root",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "delegation.token.secret.key": "the key",
    **{
        f"listener.name.sasl_plaintext.{mechanism}.sasl.jaas.config": f"{SCRAM_MODULE} required;"
        for mechanism in ("scram-sha-256", "scram-sha-512")
    },
}


@pytest.fixture(scope="module")
def sasl_address() -> str:
    """Where clients of Apache Kafka log in."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def kafka(sasl_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    directory = tmp_path_factory.mktemp("kafka") / "kafka"
    with ApacheKafka(directory, PROPERTIES, more_listeners=[f"SASL_PLAINTEXT://{sasl_address}"]) as kafka:
        yield CommandLine(kafka.bootstrap)


@pytest.fixture(scope="module")
def with_login(kafka: CommandLine, sasl_address: str) -> CommandLine:
    """The same broker by its second listener; who it is says ``ROOT``, or other options."""
    return CommandLine(sasl_address)


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


def registered_by_hand(kafka: CommandLine, broker_id: int) -> None:
    """Have Kafka's controller know a broker that was never started: it is as one that is stopped."""
    with Client(host_and_port(kafka.bootstrap)) as client:
        known = client.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
        cluster = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
    (listeners,) = (each for each in kafka.json("configs", "describe", "--broker", "1") if each["name"] == "listeners")
    (url,) = re.findall(r"CONTROLLER://([^,]+)", listeners["value"])
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster.cluster_id,
        incarnation_id=uuid.uuid4().bytes,
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)],
        features=[
            Feature(name=each.name, min_supported_version=each.min_version, max_supported_version=each.max_version)
            for each in known.supported_features
        ],
        rack="upstairs",
        log_dirs=[uuid.uuid4().bytes],
    )
    with Client(host_and_port(url)) as controller:
        assert controller.ask(request, 2).error_code == 0


def test_brokers_of_apache_kafka_are_listed_and_those_that_are_gone_unregistered(kafka: CommandLine) -> None:
    host, port = kafka.bootstrap.split(":")
    alive = {"id": 1, "host": host, "port": int(port), "rack": None, "fenced": False, "controller": True}
    assert kafka.json("brokers", "list") == [alive]
    registered_by_hand(kafka, 2)
    gone = {"id": 2, "host": host, "port": 1, "rack": "upstairs", "fenced": True, "controller": False}
    wait_until(lambda: kafka.json("brokers", "list") == [alive, gone], "the broker has learnt of another one")
    assert [line.split("\t")[3] for line in kafka.lines("brokers", "list")] == ["STATE", "running", "fenced"]
    assert kafka.json("brokers", "unregister", "2") == [{"id": 2, "status": "unregistered"}]
    wait_until(lambda: kafka.json("brokers", "list") == [alive], "the broker has learnt that it is gone")
    unknown = kafka.run("brokers", "unregister", "2")
    assert unknown.returncode == 1
    assert b"broker 2: " in unknown.stderr
    assert b"not currently registered" in unknown.stderr


def test_acls_of_apache_kafka_are_added_listed_and_removed(kafka: CommandLine) -> None:
    of_anna = ("-p", "User:anna", "-t", "orders", "-g", "readers", "-o", "read", "-o", "describe-configs")
    assert len(kafka.json("acls", "add", *of_anna)) == 4
    of_bert = ("--deny", "-p", "User:bert", "-t", "ord", "--prefixed", "-o", "all", "--host", "10.0.0.1")
    kafka.json("acls", "add", *of_bert)
    wait_until(lambda: len(kafka.json("acls", "list")) == 5, "the broker has learnt of all")
    described = run_kafka_tool(ACL_COMMAND, "--bootstrap-server", kafka.bootstrap, "--list").stdout
    assert "principal=User:bert, host=10.0.0.1, operation=ALL, permissionType=DENY" in described
    assert {each["name"] for each in kafka.json("acls", "list", "-t", "orders")} == {"orders", "ord"}
    (of_bert_shown,) = kafka.json("acls", "list", "-p", "User:bert")
    assert (of_bert_shown["pattern"], of_bert_shown["permission"]) == ("prefixed", "deny")
    removed = kafka.json("acls", "remove", "-t", "orders", "-o", "read")
    assert [(each["name"], each["operation"]) for each in removed] == [("orders", "read")]
    assert len(kafka.json("acls", "remove", "--all")) == 4
    wait_until(lambda: kafka.json("acls", "list") == [], "the broker has learnt that all are gone")
    refused = kafka.run("acls", "add", "-t", "t", "-p", "anna", "-o", "read")
    assert refused.returncode == 2
    assert b"anna" in refused.stderr


def test_quotas_of_apache_kafka_are_set_described_and_removed(kafka: CommandLine) -> None:
    kafka.ok("quotas", "set", "--client-id", "c", "producer_byte_rate=1048576", "request_percentage=12.5")
    kafka.ok("quotas", "set", "--user", "u", "--client-defaults", "consumer_byte_rate=2e6")
    expected = [
        {"entity": {"client-id": "c"}, "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}},
        {"entity": {"client-id": None, "user": "u"}, "quotas": {"consumer_byte_rate": 2e6}},
    ]
    wait_until(lambda: len(kafka.json("quotas", "describe")) == 2, "the broker has learnt of both")
    assert [kafka.json("quotas", "describe", *of) for of in (("--client-id", "c"), ("--user", "u"))] == [
        [each] for each in expected
    ]
    entity = ("--entity-type", "clients", "--entity-name", "c")
    described = run_kafka_tool(CONFIG_COMMAND, "--bootstrap-server", kafka.bootstrap, "--describe", *entity).stdout
    assert "producer_byte_rate=1048576.0" in described
    kafka.ok("quotas", "remove", "--client-id", "c", "producer_byte_rate", "request_percentage")
    kafka.ok("quotas", "remove", "--user", "u", "--client-defaults", "consumer_byte_rate")
    wait_until(lambda: kafka.json("quotas", "describe") == [], "the broker has learnt that both are gone")
    refused = kafka.run("quotas", "set", "--client-id", "c", "connection_creation_rate=1")
    assert refused.returncode == 1
    assert b"connection_creation_rate" in refused.stderr


def test_tokens_of_apache_kafka_are_created_described_renewed_and_ended(
    with_login: CommandLine, tmp_path: Path
) -> None:
    def described(*options: str) -> list[Any]:
        return [shown for shown in with_login.json("tokens", "describe", *options, *ROOT) if shown["id"] == made["id"]]

    made = with_login.json("tokens", "create", "--renewer", "bob", "--lifetime", "2h", *ROOT)
    wait_until(described, "the broker has learnt of the token")
    (shown,) = described("--owner", "root", "--hmacs")
    assert (shown["owner"], shown["requester"], shown["renewers"]) == ("User:root", "User:root", ["User:bob"])
    assert (shown["hmac"], shown["max_expires_ms"]) == (made["hmac"], made["max_expires_ms"])
    holder = tmp_path / "holder.properties"
    holder.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="{made["id"]}" password="{made["hmac"]}" tokenauth=true;\n'
    )
    tool = ("--bootstrap-server", with_login.bootstrap, "--command-config", str(holder), "--list")
    run_kafka_tool(TOPIC_COMMAND, *tool)
    as_holder = ("--command-config", str(holder))
    with_login.ok("topics", "list", *as_holder)
    refused = with_login.run("consume", "any", *as_holder)
    assert (refused.returncode, b"a login by a delegation token" in refused.stderr) == (1, True)
    assert (
        with_login.json("tokens", "renew", made["id"], "--period", "10m", *ROOT)["expires_ms"] < made["max_expires_ms"]
    )
    with_login.ok("tokens", "expire", made["id"], *ROOT)
    wait_until(lambda: not described(), "the broker has learnt that the token is over")
    failed = with_login.run("tokens", "renew", made["id"], *ROOT)
    assert (failed.returncode, failed.stdout) == (1, b"")


def test_tokens_need_a_login_at_apache_kafka_too(kafka: CommandLine) -> None:
    failed = kafka.run("tokens", "create")
    assert failed.returncode == 1
    assert b"DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in failed.stderr


def test_a_tenant_of_apache_kafka_is_made_used_listed_and_deleted(with_login: CommandLine) -> None:
    (made,) = with_login.json("tenants", "create", "acme", "--producer-byte-rate", "1000000", *ROOT)
    (other,) = with_login.json("tenants", "create", "other", "-u", "web", "--mechanism", "SCRAM-SHA-256", *ROOT)
    wait_until(lambda: len(with_login.json("tenants", "list", *ROOT)) == 2, "the broker has learnt of both")
    mine, theirs = login_of(made), login_of(other)
    wait_until(lambda: with_login.run("topics", "list", *mine).returncode == 0, "the user is let in")
    wait_until(lambda: with_login.run("topics", "list", *theirs).returncode == 0, "the other's user is let in")
    with_login.ok("topics", "create", "acme.orders", *mine)
    settings: dict[str, Any] = {
        "bootstrap_servers": with_login.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": made["mechanism"],
        "sasl_plain_username": "acme",
        "sasl_plain_password": made["password"],
    }
    with closing(KafkaProducer(**settings)) as producer:
        assert producer.send("acme.orders", b"one").get(PATIENCE_S).offset == 0
    reader = KafkaConsumer("acme.orders", group_id="acme.readers", auto_offset_reset="earliest", **settings)
    with closing(reader) as consumer:
        assert next(consumer).value == b"one"
    assert with_login.json("topics", "list", *theirs) == []
    refused = with_login.run("topics", "create", "acme.more", *theirs)
    assert refused.returncode == 1
    assert b"authoriz" in refused.stderr.lower()
    shown = {each["tenant"]: each for each in with_login.json("tenants", "list", *ROOT)}
    assert shown["acme"] == {
        "tenant": "acme",
        "principal": "User:acme",
        "quotas": {"producer_byte_rate": 1e6},
        "topics": 1,
    }
    assert b"has 1 topic:" in with_login.run("tenants", "delete", "acme", *ROOT).stderr
    gone = with_login.json("tenants", "delete", "acme", "--with-topics", *ROOT)
    traces = {"principals": ["User:acme"], "acls": 3, "tokens": 0, "groups": 1, "topics": 1}
    assert gone == {"tenant": "acme", **traces, "status": "deleted"}
    with_login.json("tenants", "delete", "other", *ROOT)
    wait_until(lambda: with_login.json("tenants", "list", *ROOT) == [], "the broker has learnt that both are gone")
    assert with_login.run("topics", "list", *mine).returncode == 1, "who is gone cannot log in"
    assert with_login.json("users", "list", *ROOT) == []
    for what in (("acls", "list"), ("quotas", "describe")):
        assert with_login.json(*what, *ROOT) == []


def login_of(made: dict[str, Any]) -> list[str]:
    """The options by which a tenant's user runs commands."""
    user, password = made["principal"].removeprefix("User:"), made["password"]
    login = (f"sasl.mechanism={made['mechanism']}", f"sasl.username={user}", f"sasl.password={password}")
    return [option for setting in ("security.protocol=SASL_PLAINTEXT", *login) for option in ("-X", setting)]


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

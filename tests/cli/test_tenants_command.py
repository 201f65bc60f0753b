"""``pybroker tenants``: made, listed and deleted, and what a tenant may not do to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from harness.waiting import PATIENCE_S
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from pybroker.security.plain import LOGIN_MODULE
from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker
from tests.cli.command import CommandLine

SETTINGS: dict[str, str | int | float] = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:root",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{LOGIN_MODULE} required user_root="r" user_guest="g";',
    "connection.failed.authentication.delay.ms": 20,
}
LOGIN = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=root", "sasl.password=r")
ROOT = [option for setting in LOGIN for option in ("-X", setting)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        yield broker


class Tenants:
    """The command as an administrator runs it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._command = CommandLine(broker.bootstrap)

    def json(self, *arguments: str) -> Any:
        return self._command.json("tenants", *arguments, *ROOT)

    def refused(self, *arguments: str) -> str:
        done = self._command.run("tenants", *arguments, *ROOT)
        assert done.returncode in (1, 2), done.stdout
        return done.stderr.decode()

    def told(self, *arguments: str) -> str:
        """What the command says beside its result."""
        done = self._command.run("tenants", *arguments, *ROOT)
        assert done.returncode == 0, done.stderr
        return done.stderr.decode()

    def topics(self) -> list[str]:
        """The names of all topics."""
        return [row["name"] for row in self._command.json("topics", "list", *ROOT)]

    def left(self, name: str) -> str:
        """Delete what a former tenant has left: what is there all the same."""
        return self._command.run("tenants", "delete", name, "--with-topics", "--remains", *ROOT).stderr.decode()

    def login(self, made: dict[str, Any]) -> list[str]:
        """The options by which a user that was made runs commands."""
        common = self.common(made)
        names = ("security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
        return [option for name in names for option in ("-X", f"{name.replace('_', '.')}={common[name]}")]

    def common(self, made: dict[str, Any]) -> dict[str, Any]:
        """kafka-python's settings for a user that was made."""
        return {
            "bootstrap_servers": self.broker.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": made["mechanism"],
            "sasl_plain_username": made["principal"].removeprefix("User:"),
            "sasl_plain_password": made["password"],
        }


@pytest.fixture
def tenants(broker: Broker) -> Iterator[Tenants]:
    tenants = Tenants(broker)
    yield tenants
    for name in {row["tenant"] for row in tenants.json("list")}:
        tenants.json("delete", name, "--with-topics")


def test_a_tenant_is_made_used_listed_and_deleted(tenants: Tenants) -> None:
    (made,) = tenants.json("create", "acme", "--producer-byte-rate", "1000000", "--request-percentage", "25")
    assert (made["tenant"], made["principal"], made["mechanism"]) == ("acme", "User:acme", "SCRAM-SHA-512")
    common = tenants.common(made)
    with closing(KafkaProducer(**common)) as producer:
        assert producer.send("acme.orders", b"one").get(PATIENCE_S).offset == 0
    with closing(
        KafkaConsumer("acme.orders", group_id="acme.readers", auto_offset_reset="earliest", **common)
    ) as consumer:
        assert next(consumer).value == b"one"
    (row,) = tenants.json("list")
    assert row == {
        "tenant": "acme",
        "principal": "User:acme",
        "quotas": {"producer_byte_rate": 1e6, "request_percentage": 25.0},
        "topics": 1,
    }
    assert "has 1 topic:" in tenants.refused("delete", "acme")
    assert len(tenants.json("list")) == 1, "a refusal takes nothing"
    gone = tenants.json("delete", "acme", "--with-topics")
    counts = {"acls": 3, "tokens": 0, "groups": 1, "topics": 1}
    assert gone == {"tenant": "acme", "principals": ["User:acme"], **counts, "status": "deleted"}
    assert tenants.json("list") == []
    assert "no tenant acme" in tenants.refused("delete", "acme")
    left = CommandLine(tenants.broker.bootstrap)
    assert left.run("topics", "list", *tenants.login(made)).returncode == 1, "who is gone cannot log in"
    for what in ("acls", "quotas"):
        assert left.json(what, "list" if what == "acls" else "describe", *ROOT) == []


def test_who_deletes_a_tenant_is_told_of_connections_that_last_and_meet_the_next_one(tenants: Tenants) -> None:
    (made,) = tenants.json("create", "acme")
    with closing(KafkaProducer(**tenants.common(made), max_block_ms=1000 * PATIENCE_S)) as producer:
        producer.send("acme.first", b"1").get(PATIENCE_S)
        told = tenants.told("delete", "acme", "--with-topics")
        assert "Open connections of its users stay until they end, or have to log in again" in told
        assert "connections.max.reauth.ms" in told
        tenants.json("create", "acme")
        producer.send("acme.second", b"2").get(PATIENCE_S)
    assert "acme.second" in tenants.topics()


def test_who_deletes_what_has_no_users_is_told_nothing_of_connections(tenants: Tenants) -> None:
    assert tenants.told("delete", "nobody", "--remains") == ""


def test_several_users_of_a_tenant_share_its_names(tenants: Tenants) -> None:
    certificate = "User:CN=scan,O=Acme"
    made = tenants.json(
        *("create", "acme", "-u", "web", "-u", "etl", "--principal", certificate, "--mechanism", "SCRAM-SHA-256")
    )
    assert [(row["principal"], row["password"] is None) for row in made] == [
        ("User:acme.web", False),
        ("User:acme.etl", False),
        (certificate, True),
    ]
    web, etl = (tenants.common(row) for row in made[:2])
    with closing(KafkaProducer(**web)) as producer:
        producer.send("acme.clicks", b"x").get(PATIENCE_S)
    with closing(KafkaConsumer("acme.clicks", auto_offset_reset="earliest", **etl)) as consumer:
        assert next(consumer).value == b"x"
    assert {row["principal"] for row in tenants.json("list")} == {row["principal"] for row in made}


def test_who_was_taken_into_a_tenant_keeps_login_and_quotas_when_it_goes(tenants: Tenants) -> None:
    command = CommandLine(tenants.broker.bootstrap)
    made = command.run("users", "create", "ada", *ROOT, stdin=b"ada-secret\n")
    assert made.returncode == 0, made.stderr
    command.json("quotas", "set", "--user", "ada", "producer_byte_rate=1000", *ROOT)
    tenants.json("create", "acme", "--principal", "User:ada", "-u", "web")
    tenants.json("delete", "acme")
    assert [row["user"] for row in command.json("users", "list", *ROOT)] == ["ada"]
    assert [row["entity"] for row in command.json("quotas", "describe", *ROOT)] == [{"user": "ada"}]
    command.json("quotas", "remove", "--user", "ada", "producer_byte_rate", *ROOT)
    command.json("users", "delete", "ada", *ROOT)


def test_a_tenant_sees_and_touches_nothing_of_another(tenants: Tenants) -> None:
    (acme,), (other,) = tenants.json("create", "acme"), tenants.json("create", "acme-2")
    mine = tenants.common(acme)
    with closing(KafkaProducer(**mine)) as producer:
        producer.send("acme.orders", b"secret").get(PATIENCE_S)
    with closing(
        KafkaConsumer("acme.orders", group_id="acme.readers", auto_offset_reset="earliest", **mine)
    ) as consumer:
        next(consumer)
        consumer.commit()
    command, login = CommandLine(tenants.broker.bootstrap), tenants.login(other)
    for what in ("topics", "groups"):
        assert command.json(what, "list", *login) == []
    for refused in (
        ("topics", "describe", "acme.orders"),
        ("topics", "delete", "acme.orders"),
        ("topics", "create", "acme.more"),
        ("topics", "create", "acme"),
        ("topics", "create", "elsewhere"),
        ("topics", "alter", "acme.orders", "--set", "retention.ms=1"),
        ("groups", "delete", "acme.readers"),
        ("produce", "acme.orders"),
        ("acls", "list"),
        ("acls", "add", "-t", "acme.orders", "-p", "User:acme-2", "-o", "all"),
        ("quotas", "describe"),
        ("quotas", "set", "--user", "acme", "producer_byte_rate=1"),
        ("tenants", "list"),
        ("tenants", "create", "third"),
    ):
        done = command.run(*refused, *login, stdin=b"forged\n")
        assert done.returncode == 1, (refused, done.stdout)
        assert b"authoriz" in (done.stdout + done.stderr).lower(), (refused, done.stderr)
    read = command.run("consume", "acme.orders", "--offset", "beginning", *login)
    assert (read.returncode, read.stdout) == (1, b"")
    assert command.json("topics", "create", "acme-2.own", *login)
    theirs = command.json("topics", "list", *ROOT)
    assert {row["name"] for row in theirs if row["name"].startswith("acme")} == {"acme.orders", "acme-2.own"}


def test_names_that_could_meet_anothers_are_no_tenants(tenants: Tenants) -> None:
    """Kafka refuses a topic a_b where there is a.b: with an underscore one tenant could take names from another."""
    for name in ("a.b", "a_b", "", "a b", "ä", "a" * 61, "*"):
        assert "letters, digits and hyphens" in tenants.refused("create", name)
    assert "letters, digits and hyphens" in tenants.refused("create", "acme", "-u", "a.b")
    assert "TYPE:NAME" in tenants.refused("create", "acme", "--principal", "anna")
    assert "no such mechanism" in tenants.refused("create", "acme", "--mechanism", "PLAIN")
    tenants.json("create", "acme")
    assert "exists" in tenants.refused("create", "acme")
    assert "belongs to the tenant acme" in tenants.refused("create", "umbrella", "--principal", "User:acme")


def test_a_user_who_is_there_already_keeps_its_password(tenants: Tenants) -> None:
    made = tenants.json("create", "acme", "-u", "web")
    CommandLine(tenants.broker.bootstrap).json("acls", "remove", "-p", "User:acme.web", *ROOT)
    assert "user acme.web: there already" in tenants.refused("create", "acme", "-u", "web")
    with closing(KafkaProducer(**tenants.common(made[0]), max_block_ms=2_000)) as web, pytest.raises(KafkaError):
        web.send("acme.x", b"").get(PATIENCE_S)  # it may log in, and is allowed nothing
    tenants.json("delete", "acme", "--remains")

"""``pybroker tenants``: a next tenant of a name meets nothing of the former one, and nobody becomes one who is more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaConsumer, KafkaProducer

from pybroker.testing import Broker
from tests.cli.command import CommandLine
from tests.cli.test_tenants_command import ROOT, SETTINGS, Tenants


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        **SETTINGS,
        "super.users": "User:root;User:admin",
        "group.min.session.timeout.ms": 1_000,
        "delegation.token.secret.key": "the key",
    }
    with Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def command(broker: Broker) -> CommandLine:
    return CommandLine(broker.bootstrap)


@pytest.fixture
def tenants(broker: Broker) -> Iterator[Tenants]:
    tenants = Tenants(broker)
    yield tenants
    for name in ("acme", "other"):
        tenants.json("delete", name, "--with-topics", "--remains")


def everything(command: CommandLine) -> dict[str, Any]:
    """What root can see of the cluster."""
    asked = {
        "users": ("users", "list"),
        "acls": ("acls", "list"),
        "quotas": ("quotas", "describe"),
        "groups": ("groups", "list"),
        "tokens": ("tokens", "describe"),
        "topics": ("topics", "list"),
    }
    return {what: command.json(*words, *ROOT) for what, words in asked.items()}


def reads(common: dict[str, Any], topic: str, group: str) -> None:
    """A member comes, reads a record, commits and goes."""
    with closing(KafkaConsumer(topic, group_id=group, auto_offset_reset="earliest", **common)) as consumer:
        next(consumer)
        consumer.commit()


def test_nothing_of_a_tenant_outlives_it(tenants: Tenants, command: CommandLine) -> None:
    before = everything(command)
    (web,) = tenants.json("create", "acme", "-u", "web", "--producer-byte-rate", "1000000")
    login, common = tenants.login(web), tenants.common(web)
    with closing(KafkaProducer(**common)) as producer:
        producer.send("acme.orders", b"x").get(PATIENCE_S)
    reads(common, "acme.orders", "acme.readers")
    for group in ("acme.readers", "acme.of-nobody"):
        command.json("configs", "alter", "--group", group, "-s", "consumer.session.timeout.ms=50000", *ROOT)
    command.json("tokens", "create", *login)
    command.json("quotas", "set", "--user", "acme.web", "--client-id", "etl", "consumer_byte_rate=9", *ROOT)
    for of in (
        ("-p", "User:acme.web", "-t", "shared", "-o", "read"),
        ("-p", "User:partner", "-t", "acme.orders", "-o", "read"),
        ("-p", "User:partner", "-t", "acme.o", "--prefixed", "-o", "write"),
        ("-p", "User:partner", "-t", "elsewhere", "-o", "write"),
    ):
        command.json("acls", "add", *of, *ROOT)
    gone = tenants.json("delete", "acme", "--with-topics")
    counted = {name: gone[name] for name in ("acls", "tokens", "groups", "topics")}
    assert counted == {"acls": 6, "tokens": 1, "groups": 1, "topics": 1}
    left = everything(command)
    assert [each["name"] for each in left.pop("acls")] == ["elsewhere"], "what is not about the tenant stays"
    before.pop("acls")
    assert left == before
    for group in ("acme.readers", "acme.of-nobody"):
        settings = command.json("configs", "describe", "--group", group, *ROOT)
        assert all(not each["source"].startswith("DYNAMIC") for each in settings)
    command.json("acls", "remove", "-p", "User:partner", *ROOT)


def test_a_token_of_a_deleted_tenant_lets_nobody_in_when_there_is_a_next_one(
    tenants: Tenants, command: CommandLine
) -> None:
    """Whoever has it is its owner by name, and the next tenant's user has the same one."""
    (made,) = tenants.json("create", "acme")
    token = command.json("tokens", "create", *tenants.login(made))
    tenants.json("delete", "acme")
    (again,) = tenants.json("create", "acme")
    assert command.json("tokens", "describe", *tenants.login(again)) == []
    assert token["id"]


def test_a_token_that_another_owns_and_a_tenant_would_be_told_is_named_and_no_tenant_made(
    tenants: Tenants, command: CommandLine
) -> None:
    """Its owner alone may end it: whoever asked for it is told its secret all the same (KIP-373)."""
    (acme,), (other,) = tenants.json("create", "acme"), tenants.json("create", "other")
    of_user = ("-p", "User:acme", "--user", "User:other", "-o", "create-tokens")
    command.json("acls", "add", *of_user, *ROOT)
    token = command.json("tokens", "create", "--owner", "other", *tenants.login(acme))
    told = tenants.refused("delete", "acme")
    assert f"delegation token {token['id']}" in told
    assert "User:other alone" in told
    assert token["id"] in tenants.refused("create", "acme")
    command.json("tokens", "expire", token["id"], *tenants.login(other))
    assert tenants.json("create", "acme")


@pytest.mark.parametrize("of_it", ["topic", "group", "user", "ACL", "quotas"])
def test_no_tenant_meets_what_is_there_already(tenants: Tenants, command: CommandLine, of_it: str) -> None:
    (made,) = tenants.json("create", "other")
    if of_it == "topic":
        command.json("topics", "create", "acme.old", *ROOT)
    elif of_it == "group":
        command.json("acls", "add", "-p", "User:other", "-g", "acme.old", "-o", "all", *ROOT)
        with closing(KafkaProducer(**tenants.common(made))) as producer:
            producer.send("other.t", b"x").get(PATIENCE_S)
        reads(tenants.common(made), "other.t", "acme.old")
        command.json("acls", "remove", "-g", "acme.old", *ROOT)
    elif of_it == "user":
        assert command.run("users", "create", "acme.old", *ROOT, stdin=b"secret\n").returncode == 0
    elif of_it == "ACL":
        command.json("acls", "add", "-p", "User:partner", "-t", "acme.old", "-o", "read", *ROOT)
    else:
        command.json("quotas", "set", "--user", "acme.old", "--client-id", "x", "producer_byte_rate=1", *ROOT)
    told = tenants.refused("create", "acme")
    assert "acme.old" in told
    assert of_it in told
    assert "no tenant acme" in tenants.refused("delete", "acme", "--with-topics"), "it may be anybody's"
    tenants.json("delete", "acme", "--with-topics", "--remains")
    assert tenants.json("create", "acme")


def test_a_tenant_whose_groups_have_members_goes_only_with_all_that_it_has(tenants: Tenants) -> None:
    (made,) = tenants.json("create", "acme")
    common = tenants.common(made)
    with closing(KafkaProducer(**common)) as producer:
        producer.send("acme.orders", b"x").get(PATIENCE_S)
    session = {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 300, "enable_auto_commit": False}
    with closing(
        KafkaConsumer("acme.orders", group_id="acme.readers", auto_offset_reset="earliest", **session, **common)
    ) as member:
        next(member)
        assert "has 1 topic:" in tenants.refused("delete", "acme")
        left = tenants.refused("delete", "acme", "--with-topics")
        assert "group acme.readers" in left
        assert "NON_EMPTY_GROUP: " in left
    assert "acme.readers" in tenants.refused("create", "acme")
    wait_until(lambda: not tenants.left("acme"), "the end of the member's session")


def test_no_tenant_is_who_may_do_more(tenants: Tenants, command: CommandLine) -> None:
    """Who runs the command, a super user without a password of SCRAM's, and whoever nobody knows."""
    for name in ("root", "admin", "ANONYMOUS"):
        assert f"{name} " in tenants.refused("create", name)
    assert command.json("acls", "list", *ROOT) == command.json("users", "list", *ROOT) == []


def test_nobody_is_taken_in_who_is_everybody_or_another_tenants(tenants: Tenants) -> None:
    for everybody in ("User:*", "User:ANONYMOUS"):
        assert "stands for all clients" in tenants.refused("create", "acme", "--principal", everybody)
    assert "user root runs this command" in tenants.refused("create", "acme", "--principal", "User:root")
    tenants.json("create", "other")
    assert "belongs to the tenant other" in tenants.refused("create", "acme", "--principal", "User:other.new")

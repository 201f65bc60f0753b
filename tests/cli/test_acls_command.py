"""``pybroker acls`` against a running broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker
from tests.cli.command import CommandLine


@pytest.fixture
def guarded() -> Iterator[CommandLine]:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Broker(settings=settings) as broker:
        yield CommandLine(broker.bootstrap)


def test_acls_are_added_listed_and_removed(guarded: CommandLine) -> None:
    added = guarded.json(
        *("acls", "add", "-p", "User:anna", "-t", "orders", "-g", "readers", "-o", "read", "-o", "DESCRIBE_CONFIGS")
    )
    assert len(added) == 4
    assert {
        "permission": "allow",
        "principal": "User:anna",
        "host": "*",
        "operation": "describe-configs",
        "resource": "topic",
        "name": "orders",
        "pattern": "literal",
    } in added
    denied = ("acls", "add", "--deny", "-p", "User:bert", "-t", "ord", "--prefixed", "-o", "all", "--host", "10.0.0.1")
    (prefixed,) = guarded.json(*denied)
    assert (prefixed["permission"], prefixed["pattern"], prefixed["host"]) == ("deny", "prefixed", "10.0.0.1")
    assert {each["name"] for each in guarded.json("acls", "list", "-t", "orders")} == {"orders", "ord"}
    assert len(guarded.json("acls", "list")) == 5
    assert {each["principal"] for each in guarded.json("acls", "list", "-p", "User:bert")} == {"User:bert"}
    planned = guarded.json("acls", "remove", "-t", "orders", "-o", "read", "--dry-run")
    removed = guarded.json("acls", "remove", "-t", "orders", "-o", "read")
    assert planned == removed
    assert [(each["name"], each["operation"]) for each in removed] == [("orders", "read")]
    assert len(guarded.json("acls", "remove", "--all")) == 4
    assert guarded.json("acls", "list") == []


def test_what_makes_no_sense_is_told_in_a_line(guarded: CommandLine) -> None:
    for arguments in (("add", "-t", "t"), ("remove",), ("add", "-t", "t", "-p", "User:a", "-o", "fly")):
        assert guarded.run("acls", *arguments).returncode == 2


@pytest.mark.parametrize("principal", ["anna", "User:", ":anna"])
def test_a_principal_has_a_type_and_a_name_before_a_broker_is_asked(principal: str) -> None:
    nowhere = CommandLine("127.0.0.1:1")
    for arguments in (("add", "-t", "t", "-o", "read"), ("list",), ("remove",)):
        refused = nowhere.run("acls", *arguments, "-p", principal)
        assert refused.returncode == 2
        assert b"a principal is TYPE:NAME, like User:anna" in refused.stderr


def test_broker_without_an_authorizer_says_so(cli: CommandLine) -> None:
    refused = cli.run("acls", "list")
    assert refused.returncode == 1
    assert b"No Authorizer is configured" in refused.stderr

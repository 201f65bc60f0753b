"""What commands say to a user who lacks a permission: Kafka's error, and which one it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker
from tests.cli.command import CommandLine

USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="a" user_alice="a";'
TOPICS = ("described", "hidden", "read", "written")


def as_user(name: str) -> list[str]:
    login = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.username={name}", "sasl.password=a")
    return [option for setting in login for option in ("-X", setting)]


@pytest.fixture(scope="module")
def cli() -> Iterator[CommandLine]:
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
    }
    with Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        line = CommandLine(broker.bootstrap)
        line.ok("topics", "create", *TOPICS, "-p", "1", *as_user("admin"))
        for topic, operation in (("described", "describe"), ("read", "read"), ("written", "write")):
            line.ok("acls", "add", "-p", "User:alice", "-t", topic, "-o", operation, *as_user("admin"))
        line.ok("acls", "add", "-p", "User:alice", "-g", "hers", "-o", "read", *as_user("admin"))
        yield line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["consume", "hidden"], "topic hidden: TOPIC_AUTHORIZATION_FAILED: the user lacks the permission DESCRIBE"),
        (["consume", "nowhere"], "topic nowhere: TOPIC_AUTHORIZATION_FAILED: the user lacks the permission DESCRIBE"),
        (["consume", "described"], "topic described: TOPIC_AUTHORIZATION_FAILED: the user lacks the permission READ"),
        (
            ["consume", "described", "-g", "hers"],
            "topic described: TOPIC_AUTHORIZATION_FAILED: the user lacks the permission READ",
        ),
        (
            ["consume", "read", "-g", "other"],
            "group other: GROUP_AUTHORIZATION_FAILED: the user lacks the permission READ",
        ),
        (
            ["topics", "create", "new"],
            "topic new: TOPIC_AUTHORIZATION_FAILED: The user lacks a permission for the topic",
        ),
        (["topics", "delete", "read"], "topic read: TOPIC_AUTHORIZATION_FAILED: The user lacks a permission for the"),
        (
            ["acls", "list"],
            "ACLs: CLUSTER_AUTHORIZATION_FAILED: The user lacks a permission for the cluster, which `pybroker",
        ),
        (["produce", "hidden"], "record 1: TOPIC_AUTHORIZATION_FAILED: The user lacks a permission for the topic"),
        (["produce", "described"], "record 1: TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_a_missing_permission_is_named(cli: CommandLine, arguments: list[str], message: str) -> None:
    options = ["-e"] if arguments[0] == "consume" else []
    finished = cli.run(*arguments, *options, *as_user("alice"), stdin=b"a\n")
    (line,) = finished.stderr.decode().splitlines()
    assert line.startswith(f"pybroker: {message}")
    assert finished.returncode == 1
    assert finished.stdout == b""


def test_who_has_the_permissions_writes_and_reads(cli: CommandLine) -> None:
    cli.ok("produce", "written", *as_user("alice"), stdin=b"a\n")
    cli.ok("produce", "read", *as_user("admin"), stdin=b"b\n")
    # Without a group no permission for one is wanted.
    assert cli.ok("consume", "read", "-e", *as_user("alice")) == b"b\n"
    assert cli.ok("consume", "read", "-e", "-g", "hers", *as_user("alice")) == b"b\n"


def test_a_topic_that_does_not_exist_is_no_missing_permission(cli: CommandLine) -> None:
    """The line is that of the commands that administer."""
    cli.ok("topics", "create", "somewhere", *as_user("admin"))
    missing = "UNKNOWN_TOPIC_OR_PARTITION: The cluster has no such topic"
    for arguments, told in (
        (("consume", "nowhere", "-e"), f"topic nowhere: {missing}."),
        (("topics", "describe", "nowhere"), f"topic nowhere: {missing}."),
        (("consume", "somewhere", "-e", "-p", "7"), f"somewhere-7: {missing} or partition."),
        (("partitions", "elect", "somewhere:7"), f"somewhere-7: {missing} or partition."),
    ):
        finished = cli.run(*arguments, *as_user("admin"))
        assert (finished.returncode, finished.stderr.decode()) == (1, f"pybroker: {told}\n"), arguments

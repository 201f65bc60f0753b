"""Kafka's own tools for permissions, users and quotas: kafka-acls and kafka-configs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.apache_kafka import ACL_COMMAND, CONFIG_COMMAND, run_kafka_tool

from conformance.broker_under_test import OwnBroker, start_own_broker

pytestmark = pytest.mark.jvm

TOOL_TIMEOUT_S = 90
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    directory: Path = tmp_path_factory.mktemp("guarded")
    broker = start_own_broker(directory, SETTINGS)
    yield broker
    broker.stop()


@pytest.fixture
def tool(guarded: OwnBroker) -> Tool:
    """Runs a tool; returns what it printed, of which the lines of its log are no part."""

    def run(main_class: str, *arguments: str) -> str:
        where = "--bootstrap-server", guarded.bootstrap
        return run_kafka_tool(main_class, *where, *arguments, timeout_s=TOOL_TIMEOUT_S).stdout

    return run


def test_acls_are_added_listed_and_removed(tool: Tool) -> None:
    anna = "--allow-principal", "User:anna"
    added = tool(ACL_COMMAND, "--add", *anna, "--topic", "team-", "--resource-pattern-type", "prefixed", "--producer")
    assert "principal=User:anna, host=*, operation=WRITE, permissionType=ALLOW" in added
    tool(ACL_COMMAND, "--add", "--deny-principal", "User:bert", "--operation", "Read", "--group", 'with "quotes"')
    listed = tool(ACL_COMMAND, "--list")
    assert "resourceType=TOPIC, name=team-, patternType=PREFIXED" in listed
    assert 'resourceType=GROUP, name=with "quotes", patternType=LITERAL' in listed
    assert listed.count("permissionType=ALLOW") == 3  # of a producer: WRITE, DESCRIBE, CREATE
    matching = tool(ACL_COMMAND, "--list", "--topic", "team-a", "--resource-pattern-type", "match")
    assert "team-" in matching
    assert "quotes" not in matching
    tool(ACL_COMMAND, "--remove", "--force", "--topic", "team-", "--resource-pattern-type", "prefixed")
    assert "team-" not in tool(ACL_COMMAND, "--list")


def test_users_of_scram_are_made_described_and_deleted(tool: Tool) -> None:
    of_anna = "--entity-type", "users", "--entity-name", "anna"
    # One after another: Kafka takes no two credentials of one user in a request.
    for credential in ("SCRAM-SHA-256=[iterations=8192,password=a]", "SCRAM-SHA-512=[password=b]"):
        told = tool(CONFIG_COMMAND, "--alter", "--add-config", credential, *of_anna)
        assert "Completed updating config for user anna" in told
    described = tool(CONFIG_COMMAND, "--describe", *of_anna)
    assert "SCRAM credential configs for user-principal 'anna' are" in described
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        tool(CONFIG_COMMAND, "--alter", "--delete-config", mechanism, *of_anna)
    assert "SCRAM-SHA" not in tool(CONFIG_COMMAND, "--describe", *of_anna)


@pytest.mark.parametrize(
    ("entity", "quota", "described_as"),
    [
        (("users", "bert"), "producer_byte_rate=1048576", "user-principal 'bert' are producer_byte_rate=1048576.0"),
        (("clients", "etl"), "request_percentage=12.5", "client-id 'etl' are request_percentage=12.5"),
        (("ips", "10.0.0.1"), "connection_creation_rate=5", "ip '10.0.0.1' are connection_creation_rate=5.0"),
        (("ips", None), "connection_creation_rate=50", "the default ip are connection_creation_rate=50.0"),
    ],
    ids=["user", "client", "address", "every address"],
)
def test_quotas_are_set_described_and_removed(
    tool: Tool, entity: tuple[str, str | None], quota: str, described_as: str
) -> None:
    kind, name = entity
    whose = ("--entity-type", kind, *(("--entity-default",) if name is None else ("--entity-name", name)))
    assert "Completed updating" in tool(CONFIG_COMMAND, "--alter", "--add-config", quota, *whose)
    assert described_as in tool(CONFIG_COMMAND, "--describe", *whose)
    tool(CONFIG_COMMAND, "--alter", "--delete-config", quota.partition("=")[0], *whose)
    assert quota.partition("=")[0] not in tool(CONFIG_COMMAND, "--describe", *whose)

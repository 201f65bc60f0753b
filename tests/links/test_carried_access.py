"""ACLs and quotas of the source come over the wire on request; users are named, because passwords cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.waiting import wait_until

from pybroker.cluster.image.link_states import MIRRORING
from pybroker.testing import Broker
from tests.cli.command import CommandLine
from tests.links.linked import image_of, link, set_link, wait_for_state

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker(AUTHORIZER) as running:
        running.create_topic("orders")
        command = CommandLine(running.bootstrap)
        command.ok("acls", "add", "-t", "orders", "-p", "User:alice", "-o", "read")
        command.ok("acls", "add", "-t", "payments", "-p", "User:alice", "-o", "read")
        command.ok("quotas", "set", "--user", "alice", "producer_byte_rate=1000000")
        command.ok("users", "create", "alice", stdin=b"secret\n")
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker(AUTHORIZER) as running:
        yield running


def mirror(here: Broker, source: Broker, **settings: str) -> None:
    link(here, source, **settings)
    wait_for_state(here, "orders", MIRRORING)


def acls_of(side: Broker) -> set[tuple[str, str]]:
    """What the ACLs are of, and whose."""
    return {(acl.resource_name, acl.principal) for acl in image_of(side).acls.values()}


def test_access_is_carried_on_request_and_what_is_not_is_described(source: Broker, here: Broker) -> None:
    mirror(here, source)
    assert (acls_of(here), dict(image_of(here).quotas)) == (set(), {})
    set_link(here.bootstrap, acls="User:*", quotas="*", users="*")
    wait_until(lambda: acls_of(here) == {("orders", "User:alice")}, "the ACLs")
    wait_until(
        lambda: dict(image_of(here).quotas) == {(("user", "alice"),): {"producer_byte_rate": 1_000_000.0}}, "the quotas"
    )
    links = CommandLine(here.bootstrap)
    document = links.json("links", "describe", "west")
    users = "users: passwords cannot be read from a cluster, so these have to be made here: alice (SCRAM-SHA-512)"
    assert document["not_carried"] == ["acls: 1 of topics that the link does not mirror", users]
    assert links.lines("links", "describe", "west")[-2:] == document["not_carried"]
    links.ok("users", "create", "alice", stdin=b"another\n")
    wait_until(lambda: len(links.json("links", "describe", "west")["not_carried"]) == 1, "a user who is here now")


def test_an_acl_that_is_revoked_at_the_source_is_revoked_here_and_no_other(source: Broker, here: Broker) -> None:
    command = CommandLine(here.bootstrap)
    command.ok("acls", "add", "-t", "orders", "-p", "User:bob", "-o", "read")
    mirror(here, source, acls="User:*")
    both = {("orders", "User:alice"), ("orders", "User:bob")}
    wait_until(lambda: acls_of(here) == both, "the ACLs")
    CommandLine(source.bootstrap).ok("acls", "remove", "-t", "orders", "-p", "User:alice", "-o", "read")
    wait_until(lambda: acls_of(here) == {("orders", "User:bob")}, "what is left")


def test_a_source_that_does_not_tell_is_said_so_and_its_topics_are_mirrored(here: Broker) -> None:
    with Broker() as open_to_all:
        open_to_all.create_topic("orders")
        mirror(here, open_to_all, acls="*")
        told = ("acls: the source has none, because it has no authorizer",)
        wait_until(lambda: image_of(here).links["west"].not_carried == told, "why nothing is carried")

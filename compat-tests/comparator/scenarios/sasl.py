"""SASL where nobody logs in, and users of SCRAM."""

from __future__ import annotations

from typing import Any

from comparator.boundaries import vary
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario

UNKNOWN, SHA_256, SHA_512 = range(3)
SALT, PASSWORD = b"salt-of-16-bytes", b"p" * 32


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096, **fields: Any) -> Tree:
    """A user's credential, as an administrator's client makes it."""
    credential = {"name": name, "mechanism": mechanism, "iterations": iterations}
    return {**credential, "salt": SALT, "salted_password": PASSWORD, **fields}


def deletion(name: str, mechanism: int = SHA_256) -> Tree:
    return {"name": name, "mechanism": mechanism}


def in_order(reply: Tree) -> Tree:
    """A reply about users with what has no order in one."""
    if not isinstance(reply, dict):
        return reply
    results = [
        {**each, "credential_infos": sorted(each["credential_infos"], key=str)} if "credential_infos" in each else each
        for each in reply["results"]
    ]
    return {**reply, "results": sorted(results, key=str)}


def alter(broker: Broker, note: str, upsertions: list[Tree] | None = None, deletions: list[Tree] | None = None) -> None:
    fields: dict[str, Any] = {"deletions": deletions or [], "upsertions": upsertions or []}
    broker.begin("AlterUserScramCredentials", 0, note, **fields).reply(in_order)


def await_mechanisms(broker: Broker, name: str, count: int) -> None:
    """Until the broker knows so many credentials of a user."""

    def are_there() -> bool:
        (found,) = broker.quietly("DescribeUserScramCredentials", 0, users=[{"name": name}])["results"]
        return len(found["credential_infos"]) == count

    broker.wait_until(are_there, f"{count} credentials of {name}")


@scenario
def nobody_logs_in_on_a_plaintext_listener(broker: Broker) -> None:
    for version in broker.versions("SaslHandshake"):
        broker.call("SaslHandshake", version, "plain", mechanism="PLAIN")
        broker.call("SaslHandshake", version, "unknown", mechanism="ROT-13")
    for version in broker.versions("SaslAuthenticate"):
        broker.call("SaslAuthenticate", version, "a name and a password", auth_bytes=b"\0anna\0secret")
        broker.call("SaslAuthenticate", version, "nothing", auth_bytes=b"")
    broker.check_alive("requests are served all the same")


@scenario
def boundaries_of_sasl(broker: Broker) -> None:
    vary(broker, "SaslHandshake", lambda _version, _name: {"mechanism": "PLAIN"})
    vary(broker, "SaslAuthenticate", lambda _version, _name: {"auth_bytes": b"\0anna\0secret"})


@scenario
def users_of_scram_come_and_go(broker: Broker) -> None:
    alter(broker, "two of a user at once", [upsertion("anna"), upsertion("anna", SHA_512, 8192)])
    alter(broker, "one of a user", [upsertion("anna")])
    alter(broker, "another of that user", [upsertion("anna", SHA_512, 8192)])
    await_mechanisms(broker, "anna", 2)
    alter(broker, "another one, and one anew", [upsertion("bert"), upsertion("anna", iterations=5000)])
    await_mechanisms(broker, "bert", 1)
    describe(broker, "all", None)
    describe(broker, "none named", [])
    describe(broker, "some, one unknown", ["bert", "nobody"])
    describe(broker, "one twice", ["anna", "anna", "bert"])
    describe(broker, "no name", [""])
    alter(broker, "one of two goes", deletions=[deletion("anna")])
    await_mechanisms(broker, "anna", 1)
    describe(broker, "what is left", ["anna"])
    alter(broker, "one goes that is gone", deletions=[deletion("anna")])
    alter(broker, "the rest goes", deletions=[deletion("anna", SHA_512), deletion("bert")])
    await_mechanisms_gone(broker)
    describe(broker, "nobody is left", None)


def await_mechanisms_gone(broker: Broker) -> None:
    broker.wait_until(
        lambda: not broker.quietly("DescribeUserScramCredentials", 0, users=None)["results"], "users that are gone"
    )


def describe(broker: Broker, note: str, users: list[str] | None) -> None:
    named = None if users is None else [{"name": name} for name in users]
    broker.begin("DescribeUserScramCredentials", 0, note, users=named).reply(in_order)


@scenario
def what_is_no_credential_of_scram(broker: Broker) -> None:
    alter(broker, "nothing")
    alter(broker, "no name", [upsertion("")], [deletion("")])
    alter(broker, "no mechanism", [upsertion("anna", UNKNOWN)])
    alter(broker, "a mechanism of the future", [upsertion("anna", 9)])
    alter(broker, "a deletion without a mechanism", deletions=[deletion("anna", UNKNOWN)])
    alter(broker, "too few iterations", [upsertion("anna", iterations=4095)])
    alter(broker, "too few iterations for the longer one", [upsertion("anna", SHA_512, 4095)])
    alter(broker, "too many iterations", [upsertion("anna", iterations=16385)])
    alter(broker, "twice", [upsertion("anna"), upsertion("anna")])
    alter(broker, "put and taken", [upsertion("anna")], [deletion("anna")])
    alter(broker, "a sound one of another user beside a bad one", [upsertion("bert"), upsertion("anna", 9)])
    alter(broker, "taken though never put", deletions=[deletion("nobody")])
    await_mechanisms(broker, "bert", 1)
    alter(broker, "bert goes", deletions=[deletion("bert")])
    await_mechanisms_gone(broker)


@scenario
def boundaries_of_users_of_scram(broker: Broker) -> None:
    def altered(_version: int, name: str) -> Tree:
        return {"deletions": [], "upsertions": [upsertion(name)]}

    vary(broker, "AlterUserScramCredentials", altered, narrow=in_order)
    vary(broker, "DescribeUserScramCredentials", lambda _version, name: {"users": [{"name": name}]}, narrow=in_order)
    delete_everybody(broker)


def delete_everybody(broker: Broker) -> None:
    """Scenarios come in any order, and others wait until nobody is left."""
    found = broker.quietly("DescribeUserScramCredentials", 0, users=None)["results"]
    deletions = [deletion(each["user"], info["mechanism"]) for each in found for info in each["credential_infos"]]
    broker.quietly("AlterUserScramCredentials", 0, deletions=deletions, upsertions=[])
    await_mechanisms_gone(broker)

"""DescribeClientQuotas and AlterClientQuotas: what may be set for whom, what filters find, texts of refusals."""

from __future__ import annotations

from typing import Any

from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
USER, CLIENT, IP = "user", "client-id", "ip"
BYTES, OTHER_BYTES, PERCENT = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATIONS, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"

Entity = tuple[tuple[str, str | None], ...]
FENCE: Entity = ((USER, "fence"),)


def entry(entity: Entity, *quotas: tuple[str, float | None]) -> Tree:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas],
    }


def alter(broker: Broker, version: int, note: str, *entries: Tree, validate_only: bool = False) -> None:
    """Change quotas, and note what is told of each entity, texts and all."""
    reply = broker.quietly("AlterClientQuotas", version, entries=list(entries), validate_only=validate_only)
    told = [(parts(each), each["error_code"], each["error_message"]) for each in reply["entries"]]
    broker.note(f"{note}, version {version}", sorted(told, key=repr))
    settle(broker)


def settle(broker: Broker) -> None:
    """Until the broker knows of all that was changed: what is changed last is known last."""
    for value in (1.0, None):
        broker.quietly("AlterClientQuotas", 1, entries=[entry(FENCE, (BYTES, value))], validate_only=False)
        broker.wait_until(lambda value=value: is_fenced(broker) == (value is not None), "what was changed")  # type: ignore[misc]


def is_fenced(broker: Broker) -> bool:
    components = [{"entity_type": kind, "match_type": EXACT, "match": name} for kind, name in FENCE]
    return bool(broker.quietly("DescribeClientQuotas", 1, components=components, strict=True)["entries"])


def describe(broker: Broker, version: int, note: str, *components: Any, strict: bool = False) -> None:
    wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    reply = broker.quietly("DescribeClientQuotas", version, components=wanted, strict=strict)
    found = reply["entries"]
    if found is not None:
        found = sorted(([parts(each), sorted(map(repr, each["values"]))] for each in found), key=repr)
    broker.note(f"{note}, version {version}", [reply["error_code"], reply["error_message"], found])


def parts(each: Tree) -> Tree:
    """Of an entity; they have no order."""
    return sorted(((part["entity_type"], part["entity_name"]) for part in each["entity"]), key=repr)


@scenario
def quotas_are_set_found_and_removed(broker: Broker) -> None:
    for version in broker.versions("AlterClientQuotas"):
        broker.call(
            "AlterClientQuotas", version, "one", entries=[entry(((USER, "u"),), (BYTES, 5.0))], validate_only=False
        )
        both: Entity = ((USER, "u"), (CLIENT, "c"))
        default: Entity = ((USER, None), (CLIENT, None))
        client: Entity = ((CLIENT, "c"),)
        any_client: Entity = ((CLIENT, None),)
        address: Entity = ((IP, "127.0.0.1"),)
        any_address: Entity = ((IP, None),)
        alter(broker, version, "both", entry(both, (BYTES, 1.0), (PERCENT, 0.5)), entry(default, (OTHER_BYTES, 7.0)))
        alter(broker, version, "client", entry(client, (MUTATIONS, 0.25)), entry(any_client, (BYTES, 8e6)))
        alter(broker, version, "address", entry(address, (CONNECTIONS, 9e3)), entry(any_address, (CONNECTIONS, 1e3)))
        alter(broker, version, "only looked at", entry(both, (BYTES, None)), validate_only=True)
        for strict in (False, True):
            note = "strict" if strict else "not strict"
            describe(broker, version, f"{note}: all", strict=strict)
            for kind in (USER, CLIENT, IP):
                describe(broker, version, f"{note}: {kind} default", (kind, DEFAULT, None), strict=strict)
                describe(broker, version, f"{note}: {kind} any", (kind, SPECIFIED, None), strict=strict)
            describe(broker, version, f"{note}: by name", (USER, EXACT, "u"), strict=strict)
            describe(broker, version, f"{note}: both", (USER, EXACT, "u"), (CLIENT, EXACT, "c"), strict=strict)
            describe(broker, version, f"{note}: nobody", (USER, EXACT, "nobody"), strict=strict)
        broker.call(
            "DescribeClientQuotas",
            version,
            "one",
            components=[{"entity_type": CLIENT, "match_type": DEFAULT}],
            strict=True,
        )
        alter(broker, version, "removed, and one that is not there", entry(both, (BYTES, None), (MUTATIONS, None)))
        alter(broker, version, "set again", entry(both, (PERCENT, 0.5)))
        describe(broker, version, "after that", (CLIENT, EXACT, "c"))
        alter(broker, version, "the rest", *(
            entry(entity, *((key, None) for key in (BYTES, OTHER_BYTES, PERCENT, MUTATIONS)))
            for entity in (both, default, client, any_client, ((USER, "u"),))
        ), entry(address, (CONNECTIONS, None)), entry(any_address, (CONNECTIONS, None)))  # fmt: skip
        describe(broker, version, "nothing is left")


@scenario
def quotas_that_are_refused(broker: Broker) -> None:
    for version in broker.versions("AlterClientQuotas"):
        user: Entity = ((USER, "u"),)
        for note, entity, quota in (
            ("below zero", user, (BYTES, -1.0)),
            ("zero", user, (PERCENT, 0.0)),
            ("a fraction of a byte", user, (BYTES, 1.5)),
            ("far too large", user, (BYTES, 1e30)),
            ("connections, far too many", ((IP, "10.0.0.1"),), (CONNECTIONS, 3e9)),
            ("a fraction of a connection", ((IP, "10.0.0.1"),), (CONNECTIONS, 1.5)),
            ("unknown key", user, ("no_such_rate", 1.0)),
            ("key of addresses", user, (CONNECTIONS, 1.0)),
            ("key of clients", ((IP, None),), (BYTES, 1.0)),
            ("no entity", (), (BYTES, 1.0)),
            ("unknown type", (("group", "g"),), (BYTES, 1.0)),
            ("empty name", ((USER, ""),), (BYTES, 1.0)),
            ("address and user", ((IP, "10.0.0.1"), (USER, "u")), (BYTES, 1.0)),
            ("no address", ((IP, "not an address"),), (CONNECTIONS, 1.0)),
            ("type twice", ((USER, "a"), (USER, "b")), (BYTES, None)),
            ("unknown key removed", user, ("no_such_rate", None)),
        ):
            alter(broker, version, note, entry(entity, quota))
        alter(broker, version, "one of two", entry(user, (BYTES, -1.0)), entry(((CLIENT, "c"),), (BYTES, None)))
        alter(broker, version, "key twice", entry(((USER, "u"), (CLIENT, "c")), (BYTES, 1.0), (BYTES, 2.0)))
        alter(broker, version, "entity twice", entry(user, (BYTES, 3.0)), entry(user, (BYTES, 4.0)))
        describe(broker, version, "what that left")
        alter(broker, version, "back", entry(user, (BYTES, None)))


@scenario
def filters_that_make_no_sense(broker: Broker) -> None:
    for version in broker.versions("DescribeClientQuotas"):
        for note, *components in (
            ("empty type", ("", SPECIFIED, None)),
            ("unknown type", ("group", SPECIFIED, None)),
            ("twice", (USER, SPECIFIED, None), (USER, DEFAULT, None)),
            ("no name", (USER, EXACT, None)),
            ("name of a default", (USER, DEFAULT, "u")),
            ("name of any", (USER, SPECIFIED, "u")),
            ("unknown kind", (USER, 3, None)),
            ("address and user", (IP, SPECIFIED, None), (USER, SPECIFIED, None)),
        ):
            describe(broker, version, note, *components)

"""AlterPartitionReassignments, ListPartitionReassignments and unregistrations, where there is one broker alone."""

from __future__ import annotations

from typing import Any

from comparator.broker import Broker
from comparator.registry import scenario

TIMEOUT_MS = 10_000

# Partitions and where they should go; None takes back what is under way.
Wanted = list[tuple[int, list[int] | None]]


def move(broker: Broker, version: int, note: str, *topics: tuple[str, Wanted], **more: Any) -> Any:
    wanted = [
        {"name": name, "partitions": [{"partition_index": index, "replicas": replicas} for index, replicas in moved]}
        for name, moved in topics
    ]
    return broker.call("AlterPartitionReassignments", version, note, timeout_ms=TIMEOUT_MS, topics=wanted, **more)


@scenario
def reassignments_in_every_version(broker: Broker) -> None:
    broker.prepare_topic("moved", 2)
    for version in broker.versions("AlterPartitionReassignments"):
        move(broker, version, "to where they are", ("moved", [(0, [1]), (1, [1])]))
        move(broker, version, "nothing under way is taken back", ("moved", [(0, None), (1, None)]))
        move(broker, version, "to no such broker", ("moved", [(0, [1, 2]), (1, [-1])]))
        move(broker, version, "to nobody", ("moved", [(0, [])]))
        move(broker, version, "to the same broker twice", ("moved", [(0, [1, 1])]))
        move(broker, version, "unknown partitions", ("moved", [(2, [1]), (-1, [1]), (2, None), (0, [1])]))
        move(broker, version, "unknown topics", ("no-such-topic", [(0, [1])]), ("", [(0, None)]), ("moved", [(0, [1])]))
        move(broker, version, "a partition twice", ("moved", [(0, [1]), (0, None)]))
        move(broker, version, "a topic twice", ("moved", [(0, [1])]), ("moved", [(0, [1]), (1, [1])]))
        move(broker, version, "no partitions", ("moved", []), ("no-such-topic", []))
        move(broker, version, "nothing")
        if version >= 1:
            keep = {"allow_replication_factor_change": False}
            move(broker, version, "as many replicas as before", ("moved", [(0, [1])]), **keep)
            move(broker, version, "more replicas, of which one is unknown", ("moved", [(0, [1, 2])]), **keep)
            move(broker, version, "fewer replicas", ("moved", [(0, [])]), **keep)
            move(broker, version, "taken back", ("moved", [(0, None)]), **keep)
            move(broker, version, "nothing, as much as before", **keep)


def listing(broker: Broker, note: str, *topics: tuple[str, list[int]]) -> Any:
    wanted = [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
    return broker.call("ListPartitionReassignments", 0, note, timeout_ms=TIMEOUT_MS, topics=wanted)


@scenario
def nothing_is_under_way(broker: Broker) -> None:
    broker.prepare_topic("not-moved", 2)
    listing(broker, "a topic", ("not-moved", [0, 1]))
    listing(broker, "unknown ones", ("not-moved", [2, -1]), ("no-such-topic", [0]), ("", []))
    listing(broker, "the same twice", ("not-moved", [0, 0]), ("not-moved", [0]))
    listing(broker, "no topics")
    broker.call("ListPartitionReassignments", 0, "everything", timeout_ms=TIMEOUT_MS, topics=None)


@scenario
def nobody_is_unregistered_who_is_not_there(broker: Broker) -> None:
    for broker_id in (0, 2, -1, 2**31 - 1, -(2**31)):
        broker.call("UnregisterBroker", 0, f"broker {broker_id}", broker_id=broker_id)


@scenario
def no_controller_is_unregistered_that_is_not_there(broker: Broker) -> None:
    for controller_id in (0, 2, -1, 2**31 - 1, -(2**31)):
        broker.call("UnregisterController", 0, f"controller {controller_id}", controller_id=controller_id)

"""ElectLeaders, where each partition's only replica leads it already."""

from __future__ import annotations

from typing import Any

from comparator.broker import Broker
from comparator.registry import scenario

PREFERRED, UNCLEAN = 0, 1


def elect(broker: Broker, version: int, note: str, *topics: tuple[str, list[int]], kind: int = PREFERRED) -> Any:
    wanted = [{"topic": name, "partitions": partitions} for name, partitions in topics]
    given = {"election_type": kind} if version >= 1 else {}
    return broker.call("ElectLeaders", version, note, topic_partitions=wanted, timeout_ms=10_000, **given)


@scenario
def elections_in_every_version(broker: Broker) -> None:
    broker.prepare_topic("elected", 2)
    for version in broker.versions("ElectLeaders"):
        elect(broker, version, "preferred", ("elected", [0, 1]))
        elect(broker, version, "unknown ones", ("elected", [1, 2, -1]), ("no-such-topic", [0]), ("", [0]))
        elect(broker, version, "the same twice", ("elected", [0, 0]))
        elect(broker, version, "no partitions", ("elected", []))
        elect(broker, version, "nothing")
        if version >= 1:
            elect(broker, version, "unclean", ("elected", [0, 2]), kind=UNCLEAN)
            elect(broker, version, "unknown type", ("elected", [0, 2]), kind=2)
            elect(broker, version, "negative type", kind=-1)


@scenario
def elections_in_all_partitions(broker: Broker) -> None:
    """What other scenarios left behind is in the reply, too."""
    broker.prepare_topic("elected-with-all", 2)
    for kind in (PREFERRED, UNCLEAN):
        reply = broker.quietly("ElectLeaders", 2, election_type=kind, topic_partitions=None, timeout_ms=10_000)
        results = {result["topic"]: result["partition_result"] for result in reply["replica_election_results"]}
        broker.note(f"type {kind}", [reply["error_code"], results["elected-with-all"]])

"""Settings of replicas that are throttled (KIP-73): of topics, told by each broker alike, and of each broker."""

from __future__ import annotations

from functools import partial
from typing import Any

from comparator.broker import Broker
from comparator.cluster import Cluster
from comparator.registry import cluster_scenario
from comparator.scenarios.configs import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, alter, describe

SIDES = ("leader", "follower")
REPLICAS = [f"{side}.replication.throttled.replicas" for side in SIDES]
RATES = [f"{side}.replication.throttled.rate" for side in SIDES]


def told(broker: Broker, kind: int, name: str, keys: list[str]) -> dict[str, str]:
    """The values of settings."""
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (result,) = broker.quietly("DescribeConfigs", 4, resources=[asked])["results"]
    return {each["name"]: each["value"] for each in result["configs"]}


@cluster_scenario
def throttled_replicas_of_a_topic(cluster: Cluster) -> None:
    cluster.prepare_topic("throttled", [[1, 2], [2, 3]])

    def is_told(broker: Broker, values: tuple[str, str]) -> bool:
        return told(broker, TOPIC, "throttled", REPLICAS) == dict(zip(REPLICAS, values, strict=True))

    def change(broker_id: int, note: str, operation: int, values: tuple[Any, Any], leads_to: tuple[str, str]) -> None:
        entries = [(name, operation, value) for name, value in zip(REPLICAS, values, strict=True)]
        alter(cluster.brokers[broker_id], f"{note}, at {broker_id}", TOPIC, "throttled", *entries)
        for each in cluster.brokers.values():
            each.wait_until(partial(is_told, each, leads_to), note)
        for number, each in cluster.brokers.items():
            for version in each.versions("DescribeConfigs"):
                told_by = f"{note}, by {number}"
                describe(each, version, told_by, (TOPIC, "throttled", REPLICAS), include_synonyms=True)

    change(1, "set", SET, ("0:1,1:2", "0:2,1:3"), ("0:1,1:2", "0:2,1:3"))
    change(2, "more", APPEND, ("2:3", "2:1"), ("0:1,1:2,2:3", "0:2,1:3,2:1"))
    change(3, "fewer", SUBTRACT, ("0:1", "1:3"), ("1:2,2:3", "0:2,2:1"))
    for note, value in (("no replica", "x"), ("no broker", "0:"), ("a negative one", "0:-1"), ("spaces", " 0:1 , 1:2")):
        for broker_id in cluster.ids:
            entries = [(name, SET, value) for name in REPLICAS]
            alter(
                cluster.brokers[broker_id], f"{note}, at {broker_id}", TOPIC, "throttled", *entries, validate_only=True
            )
    change(1, "all", SET, ("*", "*"), ("*", "*"))
    change(2, "none", DELETE, (None, None), ("", ""))


@cluster_scenario
def throttled_rates_of_brokers(cluster: Cluster) -> None:
    def change(asked: int, note: str, name: str, operation: int, value: str | None) -> None:
        entries = [(rate, operation, value) for rate in RATES]
        alter(cluster.brokers[asked], f"{note}, at {asked}", BROKER, name, *entries)

    def describe_each(note: str) -> None:
        for broker_id, broker in cluster.brokers.items():
            for name in (str(broker_id), ""):
                described = (BROKER, name, RATES)
                describe(broker, 4, f"{note}, of {name!r}, by {broker_id}", described, include_synonyms=True)

    def own_rates() -> list[dict[str, str]]:
        return [told(broker, BROKER, str(broker_id), RATES) for broker_id, broker in cluster.brokers.items()]

    def wait(*values: str) -> None:
        wanted = [dict.fromkeys(RATES, value) for value in values] or at_first
        cluster.brokers[1].wait_until(lambda: own_rates() == wanted, f"rates {wanted}")

    at_first = own_rates()
    describe_each("at first")
    for broker_id in cluster.ids:
        change(broker_id, "its own", str(broker_id), SET, str(1_000_000 * broker_id))
    wait("1000000", "2000000", "3000000")
    describe_each("its own")
    change(2, "of all", "", SET, "5000000")
    change(2, "no longer its own", "2", DELETE, None)
    wait("1000000", "5000000", "3000000")
    describe_each("of all")
    for value in ("-1", "0", "fast"):
        for broker_id in cluster.ids:
            change(broker_id, f"{value} of all", "", SET, value)
            change(broker_id, f"{value} of its own", str(broker_id), SET, value)
    change(1, "of all no more", "", DELETE, None)
    for broker_id in cluster.ids:
        change(broker_id, "its own no more", str(broker_id), DELETE, None)
    wait()
    describe_each("in the end")

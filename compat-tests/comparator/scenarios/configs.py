"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources, UpdateFeatures and DescribeLogDirs."""

from __future__ import annotations

from typing import Any

from harness.batches import batch

from comparator.broker import Broker
from comparator.registry import scenario

UNKNOWN, TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 0, 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(
    broker: Broker, version: int, note: str, *resources: tuple[int, str, list[str] | None], **more: Any
) -> Any:
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in resources
    ]
    return broker.call("DescribeConfigs", version, note, resources=asked, **more)


def alter(broker: Broker, note: str, kind: int, name: str, *entries: tuple[str, int, str | None], **more: Any) -> Any:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in entries]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    return broker.call("IncrementalAlterConfigs", 1, note, resources=resources, **more)


@scenario
def describe_a_topic_in_every_version(broker: Broker) -> None:
    broker.prepare_topic("described", retention_ms="123456", cleanup_policy="compact")
    for version in broker.versions("DescribeConfigs"):
        describe(broker, version, "everything", (TOPIC, "described", None))
        describe(broker, version, "with synonyms", (TOPIC, "described", None), include_synonyms=True)
        keys = ["retention.ms", "no.such.config", "segment.bytes"]
        describe(broker, version, "some keys", (TOPIC, "described", keys))
        describe(broker, version, "no keys", (TOPIC, "described", []))


@scenario
def describe_documentation(broker: Broker) -> None:
    broker.prepare_topic("documented")
    reply = broker.quietly(
        "DescribeConfigs",
        4,
        resources=[{"resource_type": TOPIC, "resource_name": "documented", "configuration_keys": None}],
        include_documentation=True,
    )
    undocumented = [entry["name"] for entry in reply["results"][0]["configs"] if not entry["documentation"]]
    broker.note("configs without documentation", undocumented)


@scenario
def describe_the_broker(broker: Broker) -> None:
    for version in broker.versions("DescribeConfigs"):
        describe(broker, version, "everything", (BROKER, "1", None))
    describe(broker, 4, "with synonyms", (BROKER, "1", None), include_synonyms=True)
    describe(broker, 4, "cluster-wide defaults", (BROKER, "", None), include_synonyms=True)
    describe(broker, 4, "another broker", (BROKER, "99", None))
    describe(broker, 4, "not a number", (BROKER, "one", None))


@scenario
def describe_resources_that_are_not_there(broker: Broker) -> None:
    for kind, name in (
        (TOPIC, "described-missing"),
        (TOPIC, "no good"),
        (TOPIC, ""),
        (BROKER_LOGGER, "99"),
        (BROKER_LOGGER, ""),
        (GROUP, "described-group"),
        (GROUP, ""),
        (CLIENT_METRICS, "described-subscription"),
        (CLIENT_METRICS, ""),
        (UNKNOWN, "x"),
        (77, "x"),
    ):
        describe(broker, 4, f"type {kind}, name {name!r}", (kind, name, None))
    describe(broker, 4, "nothing")


@scenario
def topic_configs_change_at_once(broker: Broker) -> None:
    broker.prepare_topic("altered")

    def change(note: str, *entries: tuple[str, int, str | None], **more: Any) -> None:
        alter(broker, note, TOPIC, "altered", *entries, **more)

    change("set", ("retention.ms", SET, "5000"))
    change("append to a list", ("cleanup.policy", APPEND, "compact"))
    change("append what is there", ("cleanup.policy", APPEND, "compact"))
    change("subtract", ("cleanup.policy", SUBTRACT, "delete"))
    change("subtract what is not there", ("cleanup.policy", SUBTRACT, "delete"))
    change("append to a number", ("retention.ms", APPEND, "1"))
    change("delete", ("retention.ms", DELETE, None))
    change("delete what is not set", ("retention.ms", DELETE, None))
    change("unknown name", ("no.such.config", SET, "1"))
    change("unknown name, delete", ("no.such.config", DELETE, None))
    change("bad value", ("segment.bytes", SET, "small"))
    change("null value", ("segment.bytes", SET, None))
    change("unknown operation", ("segment.bytes", 9, "1048576"))
    change("the same name twice", ("segment.ms", SET, "1000"), ("segment.ms", SET, "2000"))
    change("one good, one bad", ("segment.ms", SET, "7000"), ("segment.bytes", SET, "x"))
    change("validate only", ("segment.ms", SET, "9000"), validate_only=True)
    change("nothing")
    broker.wait_until(lambda: _value(broker, "altered", "cleanup.policy") == "compact", "the changes to be visible")
    describe(broker, 4, "afterwards", (TOPIC, "altered", None), include_synonyms=True)


@scenario
def resources_that_cannot_be_altered(broker: Broker) -> None:
    entry = ("retention.ms", SET, "5000")
    for kind, name in ((TOPIC, "altered-missing"), (TOPIC, ""), (TOPIC, "no good"), (UNKNOWN, "x"), (77, "x")):
        alter(broker, f"type {kind}, name {name!r}", kind, name, entry)
    alter(broker, "another broker", BROKER, "99", ("log.cleaner.threads", SET, "2"))
    alter(broker, "not a number", BROKER, "one", ("log.cleaner.threads", SET, "2"))
    alter(broker, "read-only", BROKER, "1", ("log.dirs", SET, "/tmp/x"))
    alter(broker, "read-only for all", BROKER, "", ("process.roles", SET, "broker"))
    alter(broker, "bad value", BROKER, "", ("log.retention.ms", SET, "soon"))
    alter(broker, "unknown name", BROKER, "", ("no.such.config", SET, "1"))
    # It is taken, for a plug-in may know it; other scenarios must not find it.
    broker.wait_until(lambda: _has_config(broker, "no.such.config"), "the unknown setting")
    alter(broker, "unknown name, deleted", BROKER, "", ("no.such.config", DELETE, None))
    broker.wait_until(lambda: not _has_config(broker, "no.such.config"), "the unknown setting to be gone")


@scenario
def broker_configs_change_at_once(broker: Broker) -> None:
    broker.prepare_topic("inherits")
    alter(broker, "for one broker", BROKER, "1", ("log.retention.bytes", SET, "987654321"))
    alter(broker, "for all brokers", BROKER, "", ("log.segment.bytes", SET, "123456789"))
    broker.wait_until(lambda: _value(broker, "inherits", "retention.bytes") == "987654321", "the broker's default")
    broker.wait_until(lambda: _value(broker, "inherits", "segment.bytes") == "123456789", "the cluster's default")
    keys = ["retention.bytes", "segment.bytes"]
    describe(broker, 4, "a topic inherits", (TOPIC, "inherits", keys), include_synonyms=True)
    keys = ["log.retention.bytes", "log.segment.bytes"]
    describe(broker, 4, "the broker", (BROKER, "1", keys), include_synonyms=True)
    describe(broker, 4, "the default", (BROKER, "", None), include_synonyms=True)
    alter(broker, "undo for one", BROKER, "1", ("log.retention.bytes", DELETE, None))
    alter(broker, "undo for all", BROKER, "", ("log.segment.bytes", DELETE, None))
    broker.wait_until(lambda: _value(broker, "inherits", "segment.bytes") == "1073741824", "the default again")


@scenario
def the_minimum_of_in_sync_replicas(broker: Broker) -> None:
    """While eligible leader replicas are tracked it is set for all brokers together, and for none alone."""
    broker.prepare_topic("in-sync")
    name = "min.insync.replicas"

    def is_told(value: str) -> bool:
        return _value(broker, "in-sync", name) == value

    def replace(note: str, resource: str, *entries: tuple[str, str | None]) -> None:
        configs = [{"name": key, "value": value} for key, value in entries]
        resources = [{"resource_type": BROKER, "resource_name": resource, "configs": configs}]
        broker.call("AlterConfigs", 2, note, resources=resources)

    def describe_all(note: str) -> None:
        for kind, resource, keys in ((TOPIC, "in-sync", [name]), (BROKER, "1", [name]), (BROKER, "", None)):
            describe(broker, 4, f"{note}, of {kind} {resource!r}", (kind, resource, keys), include_synonyms=True)

    describe_all("at first")
    alter(broker, "for one broker", BROKER, "1", (name, SET, "2"))
    alter(broker, "for one broker, validated only", BROKER, "1", (name, SET, "2"), validate_only=True)
    alter(broker, "none for one broker", BROKER, "1", (name, DELETE, None))
    alter(broker, "none for all", BROKER, "", (name, DELETE, None))
    alter(broker, "none for all, validated only", BROKER, "", (name, DELETE, None), validate_only=True)
    alter(broker, "too small for all", BROKER, "", (name, SET, "0"))
    replace("nothing for all", "")
    replace("another setting for all", "", ("num.io.threads", "9"))
    replace("for one broker, replaced", "1", (name, "2"))
    alter(broker, "for all", BROKER, "", (name, SET, "2"))
    broker.wait_until(lambda: is_told("2"), "the minimum")
    describe_all("raised")
    replace("replaced for all", "", (name, "1"))
    broker.wait_until(lambda: is_told("1"), "the minimum again")


@scenario
def broker_loggers(broker: Broker) -> None:
    kafka_logger = "org.apache.kafka.clients"
    alter(broker, "unknown level", BROKER_LOGGER, "1", (kafka_logger, SET, "LOUD"))
    alter(broker, "unknown logger", BROKER_LOGGER, "1", ("no.such.logger", SET, "DEBUG"))
    alter(broker, "append", BROKER_LOGGER, "1", ("root", APPEND, "DEBUG"))
    alter(broker, "the root's level", BROKER_LOGGER, "1", ("root", SET, "INFO"))
    alter(broker, "delete the root", BROKER_LOGGER, "1", ("root", DELETE, None))
    describe(broker, 4, "the root", (BROKER_LOGGER, "1", ["root"]))


@scenario
def groups_and_client_metrics(broker: Broker) -> None:
    alter(broker, "group", GROUP, "configured-group", ("consumer.session.timeout.ms", SET, "50000"))
    # A setting that brokers have no name for.
    alter(broker, "group, its own", GROUP, "configured-group", ("share.auto.offset.reset", SET, "earliest"))
    alter(broker, "group, too low", GROUP, "configured-group", ("consumer.session.timeout.ms", SET, "1"))
    alter(broker, "group, unknown", GROUP, "configured-group", ("no.such.config", SET, "1"))
    alter(broker, "group without a name", GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    alter(broker, "metrics", CLIENT_METRICS, "subscription", ("interval.ms", SET, "60000"))
    alter(broker, "metrics, names", CLIENT_METRICS, "subscription", ("metrics", SET, "org.apache.kafka"))
    alter(broker, "metrics, match", CLIENT_METRICS, "subscription", ("match", SET, "client_id=nobody"))
    alter(broker, "metrics, bad match", CLIENT_METRICS, "subscription", ("match", SET, "nonsense"))
    alter(broker, "metrics, too often", CLIENT_METRICS, "subscription", ("interval.ms", SET, "1"))
    alter(broker, "metrics, unknown", CLIENT_METRICS, "subscription", ("no.such.config", SET, "1"))
    broker.wait_until(lambda: _is_listed(broker, CLIENT_METRICS, "subscription"), "the subscription")
    describe(broker, 4, "group", (GROUP, "configured-group", None), include_synonyms=True)
    describe(broker, 4, "metrics", (CLIENT_METRICS, "subscription", None), include_synonyms=True)
    broker.call("ListConfigResources", 0)
    broker.call("ListConfigResources", 1, "metrics and groups", resource_types=[CLIENT_METRICS, GROUP])
    broker.call("ListConfigResources", 1, "brokers", resource_types=[BROKER, BROKER_LOGGER])
    broker.call("ListConfigResources", 1, "unknown type", resource_types=[77])
    names = ("interval.ms", DELETE, None), ("metrics", DELETE, None), ("match", DELETE, None)
    alter(broker, "metrics, delete", CLIENT_METRICS, "subscription", *names)
    settings = ("consumer.session.timeout.ms", DELETE, None), ("share.auto.offset.reset", DELETE, None)
    alter(broker, "group, delete", GROUP, "configured-group", *settings)


@scenario
def alter_configs_replaces_everything(broker: Broker) -> None:
    broker.prepare_topic("replaced", retention_ms="5000")

    def replace(version: int, note: str, name: str, *entries: tuple[str, str | None], **more: Any) -> None:
        configs = [{"name": key, "value": value} for key, value in entries]
        resources = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}]
        broker.call("AlterConfigs", version, note, resources=resources, **more)

    for version in broker.versions("AlterConfigs"):
        replace(version, "set", "replaced", ("segment.ms", str(10_000 + version)))
        replace(version, "bad value", "replaced", ("segment.ms", "x"))
        replace(version, "unknown topic", "replaced-missing", ("segment.ms", "1"))
    replace(2, "null", "replaced", ("segment.ms", None))
    replace(2, "one name twice", "replaced", ("segment.ms", "1"), ("segment.ms", "2"))
    replace(2, "validate only", "replaced", ("segment.ms", "77"), validate_only=True)
    broker.wait_until(lambda: _value(broker, "replaced", "segment.ms") == "10002", "the change to be visible")
    describe(broker, 4, "retention is back at its default", (TOPIC, "replaced", ["segment.ms", "retention.ms"]))
    replace(2, "nothing resets everything", "replaced")
    broker.wait_until(lambda: _value(broker, "replaced", "segment.ms") == "604800000", "the default")


@scenario
def altering_one_resource_twice(broker: Broker) -> None:
    broker.prepare_topic("altered-twice")
    configs = [{"name": "segment.ms", "config_operation": SET, "value": "1000"}]
    resource = {"resource_type": TOPIC, "resource_name": "altered-twice", "configs": configs}
    for version in broker.versions("IncrementalAlterConfigs"):
        broker.call("IncrementalAlterConfigs", version, "twice in one request", resources=[resource, resource])


@scenario
def replacing_one_resource_twice(broker: Broker) -> None:
    broker.prepare_topic("replaced-twice")
    configs = [{"name": "segment.ms", "value": "1000"}]
    resource = {"resource_type": TOPIC, "resource_name": "replaced-twice", "configs": configs}
    broker.call_in_vain("AlterConfigs", 2, "twice in one request", resources=[resource, resource])


@scenario
def update_features(broker: Broker) -> None:
    def update(version: int, note: str, feature: str, level: int, upgrade_type: int = 1, **more: Any) -> None:
        updates = [
            {
                "feature": feature,
                "max_version_level": level,
                "upgrade_type": upgrade_type,
                "allow_downgrade": upgrade_type > 1,
            }
        ]
        broker.call("UpdateFeatures", version, note, feature_updates=updates, timeout_ms=10_000, **more)

    for version in broker.versions("UpdateFeatures"):
        update(version, "unknown feature", "no.such.feature", 1)
        update(version, "level out of range", "group.version", 99)
        update(version, "negative level", "group.version", -1)
        update(version, "downgrade by an upgrade", "group.version", 0, validate_only=True)
        update(version, "the level it has", "group.version", 1, validate_only=True)
        update(version, "unknown upgrade type", "group.version", 1, upgrade_type=9, validate_only=True)
        tracked = "eligible.leader.replicas.version"
        update(version, "eligible replicas, out of range", tracked, 2)
        update(version, "eligible replicas, the level it has", tracked, 1, validate_only=True)
        update(version, "eligible replicas, downgrade by an upgrade", tracked, 0, validate_only=True)
        update(version, "eligible replicas, safe downgrade", tracked, 0, 2, validate_only=True)
        broker.call("UpdateFeatures", version, "nothing", feature_updates=[], timeout_ms=10_000)


@scenario
def eligible_replicas_off_and_on_again(broker: Broker) -> None:
    """What the feature sets for all brokers stays when it goes, may be removed then, and comes back with it."""
    name, feature = "min.insync.replicas", "eligible.leader.replicas.version"

    def update(note: str, level: int, upgrade_type: int) -> None:
        updates = [{"feature": feature, "max_version_level": level, "upgrade_type": upgrade_type}]
        broker.call("UpdateFeatures", 2, note, feature_updates=updates, timeout_ms=10_000)
        broker.wait_until(lambda: _level(broker, feature) == level, f"level {level}")

    def describe_for_all(note: str) -> None:
        describe(broker, 4, note, (BROKER, "", None), include_synonyms=True)

    update("off", 0, 2)
    describe_for_all("without it")
    alter(broker, "none for all", BROKER, "", (name, DELETE, None))
    broker.wait_until(lambda: _of_all_brokers(broker) == [], "the minimum to be gone")
    alter(broker, "for one broker", BROKER, "1", (name, SET, "1"))
    update("on", 1, 1)
    broker.wait_until(lambda: _of_all_brokers(broker) == [name], "the minimum to be back")
    describe_for_all("with it")
    describe(broker, 4, "of one broker", (BROKER, "1", [name]), include_synonyms=True)


@scenario
def describe_log_dirs(broker: Broker) -> None:
    broker.prepare_topic("sized", partitions=2)
    data = [{"name": "sized", "partition_data": [{"index": 0, "records": batch(b"x" * 1000)}]}]
    broker.quietly("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data)
    for version in broker.versions("DescribeLogDirs"):
        topics = [{"topic": "sized", "partitions": [0, 1]}]
        broker.call("DescribeLogDirs", version, "both partitions", topics=topics)
        broker.call(
            "DescribeLogDirs", version, "one of them, one unknown", topics=[{"topic": "sized", "partitions": [0, 9]}]
        )
        broker.call("DescribeLogDirs", version, "unknown topic", topics=[{"topic": "sized-missing", "partitions": [0]}])
        broker.call("DescribeLogDirs", version, "no topics", topics=[])


def _has_config(broker: Broker, name: str) -> bool:
    asked = [{"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}]
    reply = broker.quietly("DescribeConfigs", 4, resources=asked)
    return name in [entry["name"] for entry in reply["results"][0]["configs"]]


def _level(broker: Broker, feature: str) -> int:
    reply = broker.quietly("ApiVersions", 4, client_software_name="comparator", client_software_version="1")
    levels = {found["name"]: found["max_version_level"] for found in reply["finalized_features"]}
    level: int = levels.get(feature, 0)
    return level


def _of_all_brokers(broker: Broker) -> list[str]:
    asked = [{"resource_type": BROKER, "resource_name": "", "configuration_keys": None}]
    reply = broker.quietly("DescribeConfigs", 4, resources=asked)
    return [entry["name"] for entry in reply["results"][0]["configs"]]


def _value(broker: Broker, topic: str, name: str) -> str:
    asked = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": [name]}]
    reply = broker.quietly("DescribeConfigs", 4, resources=asked)
    value: str = reply["results"][0]["configs"][0]["value"]
    return value


def _is_listed(broker: Broker, kind: int, name: str) -> bool:
    reply = broker.quietly("ListConfigResources", 1, resource_types=[kind])
    return name in [resource["resource_name"] for resource in reply["config_resources"]]

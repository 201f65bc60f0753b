"""Rules between settings: refused at start and at run time alike, and harmless where an older store breaks them."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.connections import OVERRIDES, parse_overrides
from pybroker.config.group_settings import CONSUMER_ASSIGNORS
from pybroker.config.resources import BROKER, DELETE, AlterConfigOp, Outcome
from pybroker.config.rules import RESIZABLE_POOLS, RULES
from pybroker.config.schema import CLUSTER, ConfigError
from pybroker.coordinators.group.assignors import ASSIGNORS
from pybroker_protocol.errors import ErrorCode
from tests.config.config_support import Configs

OK = Outcome(ErrorCode.NONE)
ZERO_PER_IP = "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
ONE_MEBIBYTE = "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."

# What Apache Kafka answers to the same settings.
REFUSED = [
    ({OVERRIDES: "127.0.0.1:abc"}, "Invalid value abc for configuration max.connections.per.ip.overrides"),
    ({OVERRIDES: "foo"}, "Error parsing configuration property 'max.connections.per.ip.overrides'"),
    ({OVERRIDES: "h:1,foo"}, "Error parsing configuration property 'max.connections.per.ip.overrides'"),
    ({OVERRIDES: "h:"}, "for configuration max.connections.per.ip.overrides"),
    ({OVERRIDES: "h:99999999999"}, "Invalid value 99999999999"),
    ({OVERRIDES: "[::1]:5"}, "contains invalid addresses : [::1]"),
    ({OVERRIDES: "a_b!:5"}, "contains invalid addresses : a_b!"),
    ({"max.connections.per.ip": "0"}, ZERO_PER_IP),
    ({"max.connections.per.ip": "0", OVERRIDES: ","}, ZERO_PER_IP),
    ({"group.consumer.assignors": "foo"}, "group.consumer.assignors may name uniform, range"),
    ({"group.consumer.assignors": "uniform,foo"}, "no other class can be loaded"),
    ({"group.consumer.assignors": "Uniform"}, "no other class can be loaded"),
    ({"group.consumer.assignors": ",".join(CONSUMER_ASSIGNORS)}, "names an assignor twice"),
    (
        {"group.consumer.min.heartbeat.interval.ms": "20000"},
        "group.consumer.max.heartbeat.interval.ms must be greater than or equal to "
        "group.consumer.min.heartbeat.interval.ms",
    ),
    (
        {"group.consumer.heartbeat.interval.ms": "1"},
        "group.consumer.heartbeat.interval.ms must be greater than or equal to "
        "group.consumer.min.heartbeat.interval.ms",
    ),
    (
        {"group.consumer.heartbeat.interval.ms": "20000"},
        "group.consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
    ),
    ({"group.consumer.session.timeout.ms": "1"}, "equal to group.consumer.min.session.timeout.ms"),
    ({"group.consumer.session.timeout.ms": "100000"}, "equal to group.consumer.max.session.timeout.ms"),
    ({"group.consumer.min.session.timeout.ms": "70000"}, "equal to group.consumer.min.session.timeout.ms"),
    ({"group.consumer.assignment.interval.ms": "99999"}, "equal to group.consumer.max.assignment.interval.ms"),
    (
        {"group.consumer.max.heartbeat.interval.ms": "50000", "group.consumer.heartbeat.interval.ms": "46000"},
        "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
    ),
    ({"group.share.heartbeat.interval.ms": "1"}, "equal to group.share.min.heartbeat.interval.ms"),
    ({"group.share.record.lock.duration.ms": "1000"}, "equal to group.share.min.record.lock.duration.ms"),
    ({"group.share.partition.max.record.locks": "10000"}, "equal to group.share.partition.max.record.locks"),
    ({"group.share.max.share.sessions": "5"}, "equal to group.share.max.size"),
    ({"group.streams.session.timeout.ms": "1"}, "equal to group.streams.min.session.timeout.ms"),
    ({"group.streams.num.standby.replicas": "3"}, "equal to group.streams.max.standby.replicas"),
    ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
    ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
    ({"log.retention.minutes": "0"}, "log.retention.ms must be unlimited"),
    ({"log.cleaner.threads": "0"}, "Log cleaner threads should be at least 1"),
    ({"log.cleaner.threads": "128"}, ONE_MEBIBYTE),
    ({"log.cleaner.dedupe.buffer.size": "1048576"}, ONE_MEBIBYTE),
    ({"queued.max.request.bytes": "10"}, "queued.max.request.bytes must be larger or equal to"),
    ({"inter.broker.listener.name": "FOO"}, "inter.broker.listener.name must be a listener name defined in"),
    ({"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name must be a listener name defined in"),
    ({"cordoned.log.dirs": "*,/x", "log.dirs": "/x"}, "When cordoned.log.dirs is set to *, it must not contain other"),
    (
        {"cordoned.log.dirs": "/y,/x,/z", "log.dirs": "/x"},
        "must be present in log.dirs or log.dir. Missing entries : /y,/z",
    ),
    ({"process.roles": "controller"}, "process.roles must name the broker role"),
]
ACCEPTED = [
    {OVERRIDES: "foo:1"},
    {OVERRIDES: "::1:5"},
    {OVERRIDES: " 127.0.0.1 : 5 , h:6,"},
    {OVERRIDES: "127.0.0.1:-1"},
    {"max.connections.per.ip": "0", OVERRIDES: "h:1"},
    {"group.consumer.assignors": "range,uniform"},
    {"group.consumer.assignors": ",".join(name for name in CONSUMER_ASSIGNORS if "." in name)},
    {"log.cleaner.dedupe.buffer.size": "1048577"},
    {"log.cleaner.threads": "127"},
    {"log.retention.ms": "-5"},
    {"group.min.session.timeout.ms": "20", "group.max.session.timeout.ms": "10"},
    {"queued.max.request.bytes": "0"},
    {"inter.broker.listener.name": "plaintext"},
    {"cordoned.log.dirs": "*"},
    {"cordoned.log.dirs": "/x", "log.dirs": "/x,/y"},
]
# Changes of a running broker with Kafka's defaults; the same were refused by Apache Kafka with INVALID_REQUEST.
REFUSED_CHANGES = [
    ("log.cleaner.threads", "0", "Log cleaner threads should be at least 1"),
    ("log.cleaner.threads", "3", "Log cleaner threads cannot be increased to more than double the current value 1"),
    ("num.io.threads", "1000", "for num.io.threads=1000, value should not be greater than double the current value 8"),
    ("num.io.threads", "3", "for num.io.threads=3, value should be at least half the current value 8"),
    ("background.threads", "21", "value should not be greater than double the current value 10"),
    ("num.network.threads", "7", "value should not be greater than double the current value 3"),
    ("num.replica.fetchers", "3", "value should not be greater than double the current value 1"),
    ("num.recovery.threads.per.data.dir", "5", "value should not be greater than double the current value 2"),
    ("remote.log.reader.threads", "100", "value should not be greater than double the current value 10"),
    ("group.consumer.assignment.interval.ms", "99999", "equal to group.consumer.max.assignment.interval.ms"),
    ("log.cleaner.dedupe.buffer.size", "1", ONE_MEBIBYTE),
    ("max.connections.per.ip", "0", ZERO_PER_IP),
    (OVERRIDES, "foo", "Error parsing configuration property"),
    (OVERRIDES, "127.0.0.1:abc", "Invalid value abc"),
    ("log.roll.ms", "0", "log.roll.ms must be greater than or equal to 1"),
]


@pytest.mark.parametrize(("static", "message"), REFUSED)
def test_settings_that_do_not_go_together_stop_the_start(static: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(static)
    assert message in str(caught.value)


@pytest.mark.parametrize("static", ACCEPTED)
def test_settings_that_go_together_are_accepted(static: dict[str, str]) -> None:
    BrokerConfig(static)


@pytest.mark.parametrize("resource", ["", "1"])
@pytest.mark.parametrize(("name", "value", "message"), REFUSED_CHANGES)
def test_change_is_refused_and_leaves_the_setting_alone(resource: str, name: str, value: str, message: str) -> None:
    configs = Configs()
    before = configs.config[name]
    outcome = configs.alter(BROKER, resource, AlterConfigOp(name, value))
    assert outcome.error_code == ErrorCode.INVALID_REQUEST
    assert message in (outcome.error_message or "")
    assert configs.config[name] == before
    assert configs.overrides(BROKER, resource) == {}


def test_threads_may_double_and_halve_step_by_step() -> None:
    configs = Configs()
    for threads in ("16", "32", "16", "8", "4"):
        assert configs.alter(BROKER, "", AlterConfigOp("num.io.threads", threads)) == OK
    for threads in ("2", "4", "2", "1"):
        assert configs.alter(BROKER, "1", AlterConfigOp("log.cleaner.threads", threads)) == OK


def test_settings_changed_together_are_judged_together() -> None:
    configs = Configs()
    changes = AlterConfigOp("max.connections.per.ip", "0"), AlterConfigOp(OVERRIDES, "10.0.0.1:3")
    assert configs.alter(BROKER, "1", *changes) == OK
    # What the rest stands on cannot be taken away alone.
    outcome = configs.alter(BROKER, "1", AlterConfigOp(OVERRIDES, None, DELETE))
    assert outcome.error_code == ErrorCode.INVALID_REQUEST
    assert configs.alter(BROKER, "1", *(AlterConfigOp(change.name, None, DELETE) for change in changes)) == OK


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        ({OVERRIDES: "127.0.0.1:abc"}, {OVERRIDES: ""}),
        ({"max.connections.per.ip": "0"}, {"max.connections.per.ip": 2**31 - 1}),
        ({"log.cleaner.threads": "0"}, {"log.cleaner.threads": 1}),
        ({"log.cleaner.threads": "0", "log.cleaner.dedupe.buffer.size": "1"}, {"log.cleaner.threads": 1}),
        ({"log.roll.ms": "0"}, {"log.roll.ms": None}),
    ],
)
def test_bad_value_of_an_older_store_is_logged_and_ignored(
    stored: dict[str, str], kept: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig()
    config.apply_dynamic({}, {**stored, "log.retention.ms": "70000"})
    assert {name: config[name] for name in kept} == kept
    assert config["log.retention.ms"] == 70000
    assert all(name in caplog.text for name in stored)
    assert "ignored" in caplog.text


def test_bad_value_of_an_older_store_can_be_mended() -> None:
    configs = Configs()
    configs.config.apply_dynamic({}, {"log.cleaner.threads": "0"})
    assert configs.alter(BROKER, "1", AlterConfigOp("log.cleaner.threads", "2")) == OK
    assert configs.config["log.cleaner.threads"] == 2


def test_last_colon_ends_the_host() -> None:
    assert parse_overrides(" 10.0.0.1 : 5 ,::1:6, h:+7,") == {"10.0.0.1": 5, "::1": 6, "h": 7}
    assert parse_overrides("") == {}


def test_every_assignor_that_may_be_named_exists() -> None:
    assert set(CONSUMER_ASSIGNORS.values()) == {assignor.name for assignor in ASSIGNORS}


def test_rules_name_settings_that_exist_and_pools_those_that_change_at_run_time() -> None:
    assert {name for rule in RULES for name in rule.names} <= set(BROKER_SETTINGS)
    assert all(BROKER_SETTINGS[name].mode == CLUSTER for name in RESIZABLE_POOLS)


def test_rule_reads_no_setting_that_it_does_not_name() -> None:
    values = BrokerConfig({"inter.broker.listener.name": "PLAINTEXT", "queued.max.request.bytes": "200000000"})
    read: set[str] = set()

    class Recording:
        def __getitem__(self, name: str) -> Any:
            read.add(name)
            return values[name]

    for rule in RULES:
        read.clear()
        assert rule.holds(Recording())
        assert read
        assert read <= set(rule.names)

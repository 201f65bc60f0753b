"""The broker's settings: layers, typing, names that are not known, defaults that differ from Kafka's."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pybroker.config.broker import INTERNAL_TOPIC_FACTORS, OVERRIDDEN_DEFAULTS, BrokerConfig, internal_topic_factors
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.schema import ConfigError


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return str(path)


def test_defaults_are_kafkas() -> None:
    config = BrokerConfig()
    assert config["num.partitions"] == 1
    assert config.get_bool("auto.create.topics.enable") is True
    assert config.get_list("log.cleanup.policy") == ("delete",)
    assert config.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.get_str("compression.type") == "producer"
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config.get_int("group.initial.rebalance.delay.ms") == 3000


def test_later_layers_win(tmp_path: Path) -> None:
    file = write(tmp_path, "num.partitions=3\nnum.io.threads=4\nlog.retention.hours=5\n")
    config = BrokerConfig.load(config_file=file, settings=[("num.partitions", "6")], data_dir=str(tmp_path))
    assert (config["num.partitions"], config["num.io.threads"]) == (6, 4)
    config.apply_dynamic({"num.io.threads": "7", "background.threads": "8"}, {"num.io.threads": "9"})
    assert (config["num.io.threads"], config["background.threads"]) == (9, 8)
    config.apply_dynamic({}, {})
    assert (config["num.io.threads"], config["background.threads"]) == (4, 10)


@pytest.mark.parametrize("name", ["listeners", "log.dirs", "pybroker.links.west.topics"])
def test_a_value_that_no_reply_can_show_is_refused_at_the_start_and_a_long_secret_is_none(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: it has 32768 bytes, and 32767 are the most"):
        BrokerConfig.load(settings=[(name, "x" * 32_768)])
    BrokerConfig.load(settings=[("ssl.keystore.password", "x" * 32_768)])


def test_dynamic_change_names_what_changed() -> None:
    config = BrokerConfig()
    assert config.apply_dynamic({"num.io.threads": "8"}, {}) == frozenset()
    assert config.apply_dynamic({"num.io.threads": "9", "foo": "1"}, {}) == {"num.io.threads"}


def test_unreadable_dynamic_value_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig({"num.io.threads": "4"})
    config.apply_dynamic({"num.io.threads": "many"}, {})
    assert config["num.io.threads"] == 4
    assert "Invalid value many for configuration num.io.threads" in caplog.text


def test_data_dir_wins_over_every_log_dir(tmp_path: Path) -> None:
    file = write(tmp_path, "log.dir=/a\nlog.dirs=/b,/c\n")
    assert BrokerConfig.load(config_file=file).log_dirs == ("/b", "/c")
    assert BrokerConfig.load(config_file=file, data_dir="/d").log_dirs == ("/d",)


@pytest.mark.parametrize("name", ["log.dir", "log.dirs"])
def test_two_answers_on_the_command_line_to_where_the_data_lies_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"/d and the setting {name} exclude each other"):
        BrokerConfig.load(data_dir="/d", settings=[(name, "/a,/b")])


def test_data_dir_may_be_several() -> None:
    assert BrokerConfig.load(data_dir="/d,/e").log_dirs == ("/d", "/e")


def test_log_dirs_wins_over_log_dir() -> None:
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == ("/a",)
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b"}).log_dirs == ("/b",)


def test_unknown_name_on_the_command_line_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'num\.partition'; did you mean 'num\.partitions'\?"):
        BrokerConfig.load(settings=[("num.partition", "3")])
    with pytest.raises(ConfigError, match=r"'auto\.create\.topics\.enable'"):
        BrokerConfig.load(settings=[("auto.create.topic.enabled", "true")])


def test_setting_that_only_exists_at_run_time_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="can only be set while the broker runs"):
        BrokerConfig.load(settings=[("leader.replication.throttled.rate", "1")])


def test_settings_of_one_listener_are_known() -> None:
    BrokerConfig.load(settings=[("listener.name.external.ssl.keystore.location", "/k")])
    BrokerConfig.load(settings=[("listener.name.external.scram-sha-256.sasl.jaas.config", "x")])
    with pytest.raises(ConfigError, match="unknown setting"):
        BrokerConfig.load(settings=[("listener.name.external.no.such", "x")])


def test_unknown_name_in_a_file_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig.load(config_file=write(tmp_path, "confluent.metrics=1\nnum.partitions=2\n"))
    assert config["num.partitions"] == 2
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "confluent.metrics" in warnings[0].getMessage()


def test_malformed_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    file = write(tmp_path, r"a=\u12")
    with pytest.raises(ConfigError, match=r"server\.properties: malformed"):
        BrokerConfig.load(config_file=file)


@pytest.mark.parametrize(
    ("static", "message"),
    [
        ({"num.partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited"),
        ({"log.retention.hours": "0"}, "log.retention.ms must be unlimited"),
        ({"node.id": "1", "broker.id": "2"}, "You must set `node.id` to the same value as `broker.id`."),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "Disabling the 'classic' protocol"),
        ({"log.dirs": ""}, "Configuration 'log.dirs' must not be empty"),
    ],
)
def test_unacceptable_settings_stop_the_start(static: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(static)
    assert message in str(caught.value)


@pytest.mark.parametrize("static", [{"broker.id": "7"}, {"node.id": "7"}])
def test_node_id_and_broker_id_are_one(static: dict[str, str]) -> None:
    config = BrokerConfig(static)
    assert (config.node_id, config["broker.id"]) == (7, 7)


def test_node_id_of_the_data_directory_is_adopted() -> None:
    config = BrokerConfig()
    assert not config.is_set("node.id")
    config.adopt_node_id(5)
    assert (config.node_id, config["broker.id"]) == (5, 5)


def test_development_changes_defaults_and_nothing_that_was_set() -> None:
    config = BrokerConfig.load(settings=[("offsets.topic.num.partitions", "9")], dev=True)
    assert config["group.initial.rebalance.delay.ms"] == 0
    assert config["transaction.state.log.num.partitions"] == 5
    assert config["pybroker.fsync.enable"] is False
    assert config["offsets.topic.num.partitions"] == 9


def test_in_a_cluster_of_known_size_internal_topics_have_as_many_replicas_as_it_allows() -> None:
    assert [set(internal_topic_factors(brokers).values()) for brokers in (1, 2, 3, 5)] == [{"1"}, {"2"}, {"3"}, {"3"}]
    assert set(internal_topic_factors(2)) == set(INTERNAL_TOPIC_FACTORS)


def test_every_overridden_default_names_settings_and_a_reason() -> None:
    for row in OVERRIDDEN_DEFAULTS:
        assert row.reason
        assert all(name in BROKER_SETTINGS for name in row.names.split(", "))


def test_candidate_leaves_the_settings_alone() -> None:
    config = BrokerConfig()
    with pytest.raises(ConfigError):
        config.with_dynamic({}, {"log.retention.ms": "0"})
    assert config.with_dynamic({}, {"log.retention.ms": "5"})["log.retention.ms"] == 5
    assert config["log.retention.ms"] is None

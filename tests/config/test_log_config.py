"""A topic's settings: overrides over the broker's over Kafka's, and the check of overrides."""

from __future__ import annotations

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.log_config import LogConfig, validate_topic_configs
from pybroker.config.topic_settings import TOPIC_SETTINGS


def test_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert config.cleanup_policy == frozenset({"delete"})
    assert (config.delete, config.compact) == (True, False)
    assert config.retention_ms == 604_800_000
    assert config.segment_bytes == 1 << 30
    assert config.max_message_bytes == 1_048_588
    assert config.compression_type == "producer"


def test_every_topic_setting_has_an_attribute() -> None:
    config = LogConfig()
    for name in TOPIC_SETTINGS:
        assert config.value(name) == getattr(config, name.replace(".", "_"))


def test_unknown_attribute_is_refused() -> None:
    with pytest.raises(AttributeError):
        LogConfig(retention="1")


def test_overrides_win_over_the_broker() -> None:
    broker = BrokerConfig({"log.retention.ms": "1000", "log.segment.bytes": "2000000", "log.roll.hours": "2"})
    config = LogConfig.from_overrides({"retention.ms": "5", "cleanup.policy": "compact,delete"}, broker)
    assert config.retention_ms == 5
    assert config.segment_bytes == 2_000_000
    assert config.segment_ms == 7_200_000
    assert config.compact
    assert config.delete


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-7"}, -1),
    ],
)
def test_finest_unit_of_retention_wins(static: dict[str, str], retention_ms: int) -> None:
    assert LogConfig.from_overrides({}, BrokerConfig(static)).retention_ms == retention_ms


def test_topics_without_overrides_share_one_object_until_the_broker_changes() -> None:
    broker = BrokerConfig()
    before = LogConfig.from_overrides({}, broker)
    assert LogConfig.from_overrides({}, broker) is before
    broker.apply_dynamic({"log.retention.ms": "77"}, {})
    assert LogConfig.from_overrides({}, broker).retention_ms == 77


def test_override_that_cannot_be_read_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    overrides = {"retention.ms": "soon", "message.format.version": "2.8", "flush.ms": "5"}
    config = LogConfig.from_overrides(overrides, BrokerConfig())
    assert (config.retention_ms, config.flush_ms) == (604_800_000, 5)
    assert len(caplog.records) == 2


def test_internal_segment_size_goes_below_the_minimum() -> None:
    assert LogConfig().segment_size_bytes == 1 << 30
    assert LogConfig(internal_segment_bytes=100).segment_size_bytes == 100


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.ms": "-1", "cleanup.policy": ""}, None),
        ({"nope": "1", "retention.ms": "x"}, "Unknown topic config name: nope"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        ({"segment.bytes": "1"}, "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        (
            {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "10"},
            "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (10)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
        ({"remote.log.copy.disable": "true"}, None),
        ({"follower.replication.throttled.replicas": "*"}, None),
    ],
)
def test_overrides_are_checked_with_kafkas_messages(overrides: dict[str, str | None], message: str | None) -> None:
    assert validate_topic_configs(overrides, BrokerConfig()) == message


def test_rules_over_several_settings_see_the_brokers() -> None:
    broker = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "50"})
    assert validate_topic_configs({"min.compaction.lag.ms": "100"}) is None
    message = validate_topic_configs({"min.compaction.lag.ms": "100"}, broker)
    assert message is not None
    assert message.startswith("conflict")

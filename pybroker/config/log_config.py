"""One topic's settings, ready to read: what storage and replication look at.

Owns: ``LogConfig``, how overrides and broker settings combine into one, and the check of overrides before they are
accepted.  Owns no table (``topic_settings``).

Invariants:
- A ``LogConfig`` never changes (a change of settings makes a new one), and topics without overrides share one.
- Attributes are named like Kafka's settings with underscores, times in ms, sizes in bytes, -1 no limit.

Counterpart in Kafka: ``org.apache.kafka.storage.internals.log.LogConfig``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

from pybroker.config.schema import ConfigError
from pybroker.config.topic_settings import TOPIC_SETTINGS

log = logging.getLogger("pybroker.config")

_ATTRIBUTES: Final[dict[str, str]] = {name: name.replace(".", "_") for name in TOPIC_SETTINGS}
_DEFAULTS: Final[dict[str, Any]] = {
    _ATTRIBUTES[name]: frozenset(setting.default) if name == "cleanup.policy" else setting.default
    for name, setting in TOPIC_SETTINGS.items()
}


class TopicDefaults(Protocol):
    """What is asked of the broker's settings (``BrokerConfig``)."""

    @property
    def log_config(self) -> LogConfig:
        """What a topic without overrides has."""
        ...

    def topic_defaults(self) -> dict[str, Any]:
        """What the broker's settings say for topic settings, parsed, by the topic's names."""
        ...


class LogConfig:
    """One topic's settings; ``LogConfig()`` has Kafka's defaults, ``LogConfig(segment_bytes=...)`` changes some."""

    __slots__ = tuple(_DEFAULTS)

    cleanup_policy: frozenset[str]  # any of "compact", "delete"; empty keeps everything
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str  # "producer", "uncompressed", "gzip", "snappy", "lz4" or "zstd"
    compression_zstd_level: int
    delete_retention_ms: int
    errors_deadletterqueue_group_enable: bool
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    internal_segment_bytes: int | None
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_decompressed_message_bytes: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str  # "CreateTime" or "LogAppendTime"
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    pybroker_validate_records: bool
    remote_copy_lag_bytes: int
    remote_copy_lag_ms: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    def __init__(self, **attributes: Any) -> None:
        for name, value in (_DEFAULTS | attributes).items():
            setattr(self, name, value)

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> LogConfig:
        """From parsed values by Kafka's names; what is missing has Kafka's default."""
        attributes = {_ATTRIBUTES[name]: value for name, value in values.items()}
        if "cleanup_policy" in attributes:
            attributes["cleanup_policy"] = frozenset(attributes["cleanup_policy"])
        return cls(**attributes)

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str], broker: TopicDefaults) -> LogConfig:
        """A topic's overrides over the broker's settings over Kafka's defaults.

        Overrides were checked when they were accepted. One that is unknown or bad all the same (a data directory of
        another version) is logged and ignored, because the topic's data must stay readable.
        """
        if not overrides:
            return broker.log_config
        values = broker.topic_defaults()
        for name, text in overrides.items():
            try:
                values[name] = _parse(name, text)
            except ConfigError as error:
                log.warning("topic setting ignored: %s", error)
        return cls.of_values(values)

    @property
    def compact(self) -> bool:
        """Whether the cleaner compacts the topic."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether retention deletes old segments."""
        return "delete" in self.cleanup_policy

    @property
    def segment_size_bytes(self) -> int:
        """Size at which a segment rolls: ``segment.bytes``, unless the internal setting of tests says otherwise."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def segment_age_max_ms(self) -> int:
        """Age at which a segment rolls: ``segment.ms``, or earlier where it is to be compacted by then."""
        compact_by_ms = self.max_compaction_lag_ms if self.compact else 0
        return min(self.segment_ms, compact_by_ms) if compact_by_ms > 0 else self.segment_ms

    def value(self, name: str) -> Any:
        """The value of one of Kafka's names."""
        return getattr(self, _ATTRIBUTES[name])


def _parse(name: str, text: str) -> Any:
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return setting.parse(text)


def validate_topic_configs(overrides: Mapping[str, str | None], broker: TopicDefaults | None = None) -> str | None:
    """Why these overrides cannot be accepted (the message for INVALID_CONFIG), or None when they can.

    With ``broker`` rules over several settings also see what the broker's settings say.
    """
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        return f"Null value not supported for topic configs: {','.join(nulls)}"
    values = broker.topic_defaults() if broker is not None else {}
    try:
        for name in overrides:
            if name not in TOPIC_SETTINGS:
                raise ConfigError(f"Unknown topic config name: {name}")
        for name, text in overrides.items():
            assert text is not None
            values[name] = _parse(name, text)
    except ConfigError as error:
        return str(error)
    config = LogConfig.of_values(values)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        return (
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.remote_storage_enable:
        return (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    return None

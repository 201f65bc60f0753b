"""What all logs of a broker share: settings, clock, timers, the cache of open segments.

Owns ``StorageSettings``: the broker-wide settings of storage, under Kafka's names with underscores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker import limits
from pybroker.storage.segment_cache import SegmentCache

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Env
    from pybroker.storage.cleaner.log_cleaner import LogCleaner


class StorageSettings:
    """The broker-wide settings of storage; times in ms."""

    __slots__ = (
        "fsync_before_ack",
        "log_flush_offset_checkpoint_interval_ms",
        "log_retention_check_interval_ms",
        "producer_id_expiration_check_interval_ms",
        "producer_id_expiration_ms",
        "replica_high_watermark_checkpoint_interval_ms",
        "sync",
    )

    def __init__(
        self,
        *,
        fsync_before_ack: bool = False,
        sync: bool = True,
        log_retention_check_interval_ms: int = 300_000,
        log_flush_offset_checkpoint_interval_ms: int = 60_000,
        replica_high_watermark_checkpoint_interval_ms: int = 5_000,
        producer_id_expiration_ms: int = 86_400_000,
        producer_id_expiration_check_interval_ms: int = 600_000,
    ) -> None:
        self.fsync_before_ack = fsync_before_ack
        self.sync = sync  # False: never sync anything, for throw-away brokers (--dev, tests)
        self.log_retention_check_interval_ms = log_retention_check_interval_ms
        self.log_flush_offset_checkpoint_interval_ms = log_flush_offset_checkpoint_interval_ms
        self.replica_high_watermark_checkpoint_interval_ms = replica_high_watermark_checkpoint_interval_ms
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.producer_id_expiration_check_interval_ms = producer_id_expiration_check_interval_ms

    @classmethod
    def of(cls, config: BrokerConfig) -> StorageSettings:
        """Those among the broker's settings."""
        return cls(
            fsync_before_ack=config.get_bool("pybroker.fsync.before.ack"),
            sync=config.get_bool("pybroker.fsync.enable"),
            log_retention_check_interval_ms=config.get_int("log.retention.check.interval.ms"),
            log_flush_offset_checkpoint_interval_ms=config.get_int("log.flush.offset.checkpoint.interval.ms"),
            replica_high_watermark_checkpoint_interval_ms=config.get_int(
                "replica.high.watermark.checkpoint.interval.ms"
            ),
            producer_id_expiration_ms=config.get_int("producer.id.expiration.ms"),
            producer_id_expiration_check_interval_ms=config.get_int("producer.id.expiration.check.interval.ms"),
        )


class LogEnvironment:
    """Handed to every log; one per broker."""

    __slots__ = ("cleaner", "env", "now_ms", "segments", "settings")

    def __init__(self, env: Env, settings: StorageSettings, segments_open_max: int = limits.SEGMENTS_OPEN_MAX) -> None:
        self.env = env
        self.now_ms = env.clock.now_ms
        self.settings = settings
        self.cleaner: LogCleaner | None = None  # made when it first looks for work
        self.segments = SegmentCache(segments_open_max, env.clock.now_ms)


class RestartPoint:
    """What the log directory's checkpoints say of one partition: where to begin, and what is known to be safe."""

    __slots__ = ("high_watermark", "log_start_offset", "recovery_point")

    def __init__(self, recovery_point: int = 0, log_start_offset: int = 0, high_watermark: int = 0) -> None:
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark

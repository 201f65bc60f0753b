"""What a log is given: what all logs of a broker share, and where one log begins.

Owns the shapes:
- ``StorageSettings``: the broker-wide settings of storage, under Kafka's names with underscores.
- ``LogEnvironment``: these, clock, timers, the cache of open segments.
- ``Cleaner``: what a log needs of the cleaner.
- ``LogSetup``: what one log is set up with.
- ``RestartPoint``: what is known of a log that is not open.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pybroker import storage_limits
from pybroker.storage.files.file_names import partition_dir_name
from pybroker.storage.files.segment_cache import SegmentCache

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.log_config import LogConfig
    from pybroker.env import Env
    from pybroker.storage.dirs.log_dir import LogDir
    from pybroker.storage.results import TopicPartition


class StorageSettings:
    """The broker-wide settings of storage; times in ms."""

    __slots__ = (
        "fsync_before_ack",
        "log_flush_offset_checkpoint_interval_ms",
        "log_flush_start_offset_checkpoint_interval_ms",
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
        log_flush_start_offset_checkpoint_interval_ms: int = 60_000,
        replica_high_watermark_checkpoint_interval_ms: int = 5_000,
        producer_id_expiration_ms: int = 86_400_000,
        producer_id_expiration_check_interval_ms: int = 600_000,
    ) -> None:
        self.fsync_before_ack = fsync_before_ack
        self.sync = sync  # False: never sync anything, for throw-away brokers (--dev, tests)
        self.log_retention_check_interval_ms = log_retention_check_interval_ms
        self.log_flush_offset_checkpoint_interval_ms = log_flush_offset_checkpoint_interval_ms
        self.log_flush_start_offset_checkpoint_interval_ms = log_flush_start_offset_checkpoint_interval_ms
        self.replica_high_watermark_checkpoint_interval_ms = replica_high_watermark_checkpoint_interval_ms
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.producer_id_expiration_check_interval_ms = producer_id_expiration_check_interval_ms

    @property
    def syncs_first(self) -> bool:
        """Whether all is synced before it is acknowledged, whatever its topic says."""
        return self.fsync_before_ack and self.sync

    @classmethod
    def of(cls, config: BrokerConfig) -> StorageSettings:
        """Those among the broker's settings."""
        return cls(
            fsync_before_ack=config.get_bool("pybroker.fsync.before.ack"),
            sync=config.get_bool("pybroker.fsync.enable"),
            log_retention_check_interval_ms=config.get_int("log.retention.check.interval.ms"),
            log_flush_offset_checkpoint_interval_ms=config.get_int("log.flush.offset.checkpoint.interval.ms"),
            log_flush_start_offset_checkpoint_interval_ms=config.get_int(
                "log.flush.start.offset.checkpoint.interval.ms"
            ),
            replica_high_watermark_checkpoint_interval_ms=config.get_int(
                "replica.high.watermark.checkpoint.interval.ms"
            ),
            producer_id_expiration_ms=config.get_int("producer.id.expiration.ms"),
            producer_id_expiration_check_interval_ms=config.get_int("producer.id.expiration.check.interval.ms"),
        )


class Cleaner(Protocol):
    """What a log tells the cleaner, and asks it; a log is known by its path."""

    def is_cleaning(self, path: Path) -> bool:
        """Whether a round over the log is under way."""

    def abort(self, path: Path) -> None:
        """End the round over a log, if there is one: nothing of it comes in."""

    def moved(self, source: LogDir, target: LogDir, key: TopicPartition) -> None:
        """The log lies in another log directory, with the same files."""

    def truncated(self, directory: LogDir, key: TopicPartition, offset: int) -> None:
        """What is at and past ``offset`` is not clean, if the log was cleaned so far."""


class LogEnvironment:
    """Handed to every log; one per broker."""

    __slots__ = ("cleaner", "env", "now_ms", "segments", "settings")

    def __init__(
        self, env: Env, settings: StorageSettings, segments_open_max: int = storage_limits.SEGMENTS_OPEN_MAX
    ) -> None:
        self.env = env
        self.now_ms = env.clock.now_ms
        self.settings = settings
        self.cleaner: Cleaner | None = None  # made when it first looks for work
        self.segments = SegmentCache(segments_open_max, env.clock.now_ms)


class LogSetup:
    """What one log is set up with, open or not: whose it is, where it lies, its topic's settings."""

    __slots__ = ("config", "directory", "environment", "partition", "path", "topic", "topic_id")

    def __init__(
        self,
        environment: LogEnvironment,
        directory: LogDir,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
    ) -> None:
        self.environment = environment
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.path: Path = directory.path / partition_dir_name(topic, partition)
        self.config = config


class RestartPoint:
    """What the log directory's checkpoints say of one partition: where to begin, and what is known to be safe."""

    __slots__ = ("had_files", "high_watermark", "log_start_offset", "recovery_point")

    def __init__(
        self, recovery_point: int = 0, log_start_offset: int = 0, high_watermark: int = 0, had_files: bool = False
    ) -> None:
        """``had_files``: it was open before, and had some."""
        self.had_files = had_files
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark

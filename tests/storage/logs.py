"""A log manager with one topic, and shorthands for what tests do to its logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from harness.virtual_world import VirtualWorld

from pybroker.config.broker import BrokerConfig
from pybroker.config.log_config import LogConfig
from pybroker.storage.log.log import Log
from pybroker.storage.log.partition_log import PartitionLog
from pybroker.storage.manager.log_dir_description import LogDirDescription
from pybroker.storage.manager.log_manager import LogManager
from pybroker.storage.results import AppendResult, ReadResult, TopicPartition
from tests.storage.batches import batch, end_marker, parse

TOPIC_ID = b"0123456789abcdef"
CLUSTER_ID = "abcdefghijklmnopqrstuv"
LATEST_PRODUCE = 13
TRANSACTIONAL_FLAG = 0x10


class ModelSettings(TypedDict):
    """The settings of a log that is held against a model."""

    internal_segment_bytes: int
    index_interval_bytes: int
    retention_ms: int


def small_config(**attributes: Any) -> LogConfig:
    """Topic settings with segments small enough to roll in a test."""
    return LogConfig(**{"internal_segment_bytes": 4096, "index_interval_bytes": 256, **attributes})


class Storage:
    """One life of a log manager."""

    def __init__(self, path: Path, world: VirtualWorld, dirs: int = 1, **settings: Any) -> None:
        self.world = world
        self.path = path if dirs == 1 else path.with_name(path.name + "0")
        paths = [path] if dirs == 1 else [path.with_name(f"{path.name}{i}") for i in range(dirs)]
        named = [(name.replace("_", "."), str(value)) for name, value in settings.items()]
        config = BrokerConfig.load(data_dir=",".join(map(str, paths)), settings=named)
        self.all_failed = 0
        self.manager = LogManager(world.env, config, on_all_dirs_failed=self._on_all_failed)
        self.manager.start()
        self.manager.set_cluster(CLUSTER_ID, 1)

    def _on_all_failed(self) -> None:
        self.all_failed += 1

    def log(self, topic: str = "t", partition: int = 0, topic_id: bytes = TOPIC_ID, **attributes: Any) -> Log:
        """The partition's log, opened, with small segments unless the settings say otherwise."""
        return self.partition_log(topic, partition, topic_id, **attributes).open()

    def partition_log(
        self, topic: str = "t", partition: int = 0, topic_id: bytes = TOPIC_ID, **attributes: Any
    ) -> PartitionLog:
        """The same, whether it is open or not."""
        log = self.manager.open(topic, topic_id, partition, small_config(**attributes))
        assert log is not None
        return log

    def shut_and_open(self, log: Log) -> Log:
        """Shut the partition's log, if it is idle, and open it again."""
        partition_log = self.manager.get(log.topic, log.partition)
        assert partition_log is not None
        partition_log.shut()
        return partition_log.open()

    def describe(self, *wanted: TopicPartition) -> list[LogDirDescription]:
        """What DescribeLogDirs tells of some partitions, or of all."""
        described: list[list[LogDirDescription]] = []
        self.manager.describe(wanted or None, {}, described.append)
        while not described:
            assert [name for name, executor in self.world.executors.items() if "-reader-" in name and executor.run()]
        return described.pop()

    def close(self) -> None:
        """Stop cleanly."""
        self.manager.close()

    def kill(self) -> None:
        """End as ``kill -9`` would: nothing is written, the locks fall, descriptors go."""
        if self.manager._closed:
            return
        self.manager._closed = True
        for timer in self.world.timers.pending:
            timer.cancel()
        for log in self.manager.logs():
            log.close_files()
        for state in self.manager._states:
            state.directory._executors.clear()
            state.directory.unlock()


class Client:
    """Appends to one log and collects the results that come later."""

    def __init__(self, log: Log, leader_epoch: int = 0) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.later: list[AppendResult] = []

    def send(
        self, data: bytearray | None = None, version: int = LATEST_PRODUCE, **batch_fields: Any
    ) -> AppendResult | None:
        """Append one batch; the result, or None when it comes later.  A transactional one is verified before."""
        data = batch(**batch_fields) if data is None else data
        if batch_fields.get("attributes", 0) & TRANSACTIONAL_FLAG:
            self.verify(batch_fields["producer_id"], batch_fields["producer_epoch"], batch_fields["sequence"])
        return self.log.append_as_leader(memoryview(data), self.leader_epoch, version, self.later.append)

    def verify(
        self, producer_id: int, producer_epoch: int, sequence: int = 0, supports_epoch_bump: bool = False
    ) -> None:
        """What the transaction coordinator's yes brings about."""
        verifications = self.log.producers.verifications
        asked = verifications.begin(producer_id, producer_epoch, sequence, supports_epoch_bump, 0)
        verifications.succeed(producer_id, asked, producer_epoch)

    def end(
        self, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int = 0, version: int = 1
    ) -> AppendResult:
        """Append the marker that ends a transaction; its result has to come at once."""
        marker = bytes(end_marker(producer_id, producer_epoch, commit, coordinator_epoch))
        result = self.log.append_end_transaction(
            marker, coordinator_epoch, version, self.leader_epoch, self.later.append
        )
        assert result is not None
        return result

    def send_now(self, data: bytearray | None = None, version: int = LATEST_PRODUCE, **fields: Any) -> AppendResult:
        """Append one batch whose result has to come at once."""
        result = self.send(data, version, **fields)
        assert result is not None
        return result

    def fill(self, count: int, size: int = 100, **batch_fields: Any) -> None:
        """Append ``count`` batches of one record of ``size`` bytes."""
        for i in range(count):
            result = self.send_now(values=[b"%06d" % i + bytes(size)], **batch_fields)
            assert result.error_code == 0, result.error_message


def read_now(log: Log, offset: int, max_bytes: int, upper: int, min_one_batch: bool = True) -> ReadResult:
    """The result of a read that does not need the disk."""
    result = log.read(offset, max_bytes, upper, min_one_batch)
    assert isinstance(result, ReadResult)
    return result


def read(log: Log, offset: int, max_bytes: int = 1 << 20, upper: int | None = None) -> list[tuple[int, int, bytes]]:
    """The batches of one successful read up to ``upper`` (the log's end)."""
    result = read_now(log, offset, max_bytes, log.log_end_offset if upper is None else upper)
    assert result.error_code == 0
    return parse(result.records)


def read_all(log: Log) -> list[tuple[int, int, bytes]]:
    """Every batch from the log start on."""
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset:
        batches = read(log, offset)
        if not batches:
            break
        found += batches
        offset = batches[-1][1] + 1
    return found

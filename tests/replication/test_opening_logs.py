"""What a partition shows of a log that is opened, and what is answered where the log cannot be had."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import storage_limits
from pybroker.config.broker import BrokerConfig
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.storage.log import log_loader
from pybroker_protocol.errors import ErrorCode
from tests.replication.replicas import leader_of
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage

CHECK_MS = 300_000  # between two looks of retention
DAY_MS = 86_400_000
Start = Callable[..., tuple[Storage, ReplicaManager]]


@pytest.fixture
def world() -> VirtualWorld:
    return VirtualWorld()


@pytest.fixture
def start(tmp_path: Path, world: VirtualWorld) -> Iterator[Start]:
    """Starts logs over one directory, and the partitions of a topic; what goes on at the end is killed."""
    started: list[Storage] = []

    def make(**settings: Any) -> tuple[Storage, ReplicaManager]:
        storage = Storage(tmp_path / "data", world, **settings)
        started.append(storage)
        named = [(name.replace("_", "."), str(value)) for name, value in settings.items()]
        config = BrokerConfig.load(settings=named)
        return storage, leader_of(world, storage, 4, config)

    yield make
    for storage in started:
        storage.kill()


def test_partition_whose_log_finds_no_descriptor_is_refused_until_it_is_asked_for_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = start()
    Client(first.log()).fill(5)
    first.close()
    storage, replicas = start()

    def no_descriptor(_directory: Path) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(log_loader, "segment_files", no_descriptor)
        for _ in range(2):
            assert replicas.partition("t", 0) is None
            assert replicas.error_of("t", 0) == ErrorCode.KAFKA_STORAGE_ERROR
    assert storage.all_failed == 0
    partition = replicas.partition("t", 0)
    assert partition is not None
    assert (partition.log.log_end_offset, partition.upper_bound(read_committed=False)) == (5, 5)


def test_partition_that_retention_has_looked_at_shows_its_log_and_is_open_while_it_is_used(
    start: Start, world: VirtualWorld
) -> None:
    first, _ = start()
    Client(first.log()).fill(5, timestamp=world.clock.now_ms())
    first.close()
    storage, replicas = start(log_retention_ms=DAY_MS)
    world.advance(CHECK_MS)
    looked_at = storage.manager.get("t", 0)
    assert looked_at is not None
    assert not looked_at.opened
    partition = replicas.partition("t", 0)
    assert partition is not None
    assert partition.partition_log is looked_at
    world.advance(2 * CHECK_MS)
    assert looked_at.opened is partition.log
    assert partition.upper_bound(read_committed=False) == 5


def test_changed_settings_reach_logs_that_nobody_uses(start: Start, world: VirtualWorld) -> None:
    first, _ = start()
    Client(first.log()).fill(5, timestamp=world.clock.now_ms())
    first.close()
    storage, replicas = start(log_retention_ms=-1)
    world.advance(CHECK_MS)
    log = storage.manager.get("t", 0)
    assert log is not None
    assert log.config.retention_ms == -1
    replicas._config = BrokerConfig.load(settings=[("log.retention.ms", "1000")])
    replicas.on_broker_config()
    assert log.config.retention_ms == 1000
    world.advance(CHECK_MS)
    assert log.open().log_start_offset == 5


def test_what_a_killed_process_had_only_written_is_shown_when_it_is_synced_where_every_message_is(
    start: Start, world: VirtualWorld
) -> None:
    first, replicas = start(log_flush_interval_messages=1)
    partition = replicas.partition("t", 0)
    assert partition is not None
    assert partition.append(memoryview(batch()), -1, 1_000, 13, lambda _result: None) is None
    assert partition.upper_bound(read_committed=False) == 0
    first.kill()
    _, replicas = start(log_flush_interval_messages=1)
    partition = replicas.partition("t", 0)
    assert partition is not None
    heard: list[int] = []
    partition.high_watermark_listener = lambda _index, high_watermark: heard.append(high_watermark)
    assert (partition.log.log_end_offset, partition.upper_bound(read_committed=False)) == (1, 0)
    world.run()
    assert partition.upper_bound(read_committed=False) == 1
    assert heard == [1]


@pytest.mark.parametrize("unforeseen", [MemoryError, ValueError])
def test_log_that_could_not_be_opened_by_an_unforeseen_error_is_opened_the_next_time(
    start: Start, monkeypatch: pytest.MonkeyPatch, unforeseen: type[Exception]
) -> None:
    first, _ = start()
    Client(first.log()).fill(5)
    first.close()
    storage, _ = start()

    def fail(_directory: Path) -> Any:
        raise unforeseen

    with monkeypatch.context() as patched:
        patched.setattr(log_loader, "segment_files", fail)
        with pytest.raises(unforeseen):
            storage.log()
    log = storage.log()
    assert log.log_end_offset == 5
    assert Client(log).send_now().base_offset == 5


def test_no_log_is_opened_for_retention_after_the_stop(
    start: Start, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_limits, "PARTITIONS_PER_TURN", 1)
    first, _ = start()
    for index in range(4):
        Client(first.log(partition=index)).fill(1)
    first.close()
    storage, replicas = start()
    used = [replicas.partition("t", index) for index in (2, 3)]
    for partition in used:
        assert partition is not None
        Client(partition.log).fill(1)
    housekeeping = storage.manager._housekeeping
    housekeeping.check_retention()
    housekeeping.checkpoint_high_watermarks()  # a second task that takes several turns
    storage.close()
    looked_at = storage.manager.logs()
    world.advance(CHECK_MS)
    assert storage.manager.logs() == looked_at

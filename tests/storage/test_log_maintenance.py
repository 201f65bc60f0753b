"""Retention, DeleteRecords, truncation, leader epochs, ListOffsets."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.log import retention
from pybroker.storage.log.log import Log
from pybroker.storage.log.partition_log import PartitionLog
from pybroker.storage.log.timestamp_lookup import TimestampLookup
from pybroker.storage.results import OFFSET_OUT_OF_RANGE, ReadResult, TimestampOffset
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage, read, read_all, read_now, small_config

HOUR = 3_600_000
CHECK_MS = 300_000  # between two looks of retention


def timestamp_of(found: TimestampOffset | TimestampLookup | None) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) of what a search by time found at once."""
    assert not isinstance(found, TimestampLookup)
    return None if found is None else (found.timestamp, found.offset, found.leader_epoch)


def test_retention_by_time_drops_whole_segments_below_the_high_watermark(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(retention_ms=HOUR)
    client = Client(log)
    client.fill(60, timestamp=world.clock.now_ms())
    world.clock.pass_ms(HOUR)
    log.update_high_watermark(log.log_end_offset)
    assert log.apply_retention() == 0
    client.fill(20, timestamp=world.clock.now_ms())
    world.clock.pass_ms(1)
    assert log.apply_retention() == 0 or log.log_start_offset > 0
    log.update_high_watermark(log.log_end_offset)
    log.apply_retention()
    assert 0 < log.log_start_offset <= 60
    assert log.log_start_offset == log.segments[0].base_offset
    assert read_now(log, 0, 100, 80).error_code == OFFSET_OUT_OF_RANGE
    assert read_all(log)[-1][1] == 79


def test_retention_never_passes_the_high_watermark(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(retention_ms=1)
    Client(log).fill(60, timestamp=world.clock.now_ms())
    world.clock.pass_ms(HOUR)
    log.update_high_watermark(log.segments[1].base_offset)
    assert log.apply_retention() == 1
    assert log.log_start_offset == log.high_watermark


def test_wholly_expired_log_ends_empty_with_its_offsets_kept(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(retention_ms=1)
    client = Client(log)
    client.fill(30, timestamp=world.clock.now_ms())
    world.clock.pass_ms(HOUR)
    log.update_high_watermark(30)
    log.apply_retention()
    assert (log.log_start_offset, log.log_end_offset, len(log.segments), log.size_bytes) == (30, 30, 1, 0)
    assert client.send_now().base_offset == 30


def test_retention_by_size(storage: Storage) -> None:
    log = storage.log(retention_bytes=6000, retention_ms=-1)
    Client(log).fill(100)
    log.update_high_watermark(100)
    log.apply_retention()
    assert 6000 <= log.size_bytes < 6000 + 4096
    log.update_config(small_config(retention_bytes=-1, retention_ms=-1))
    assert log.apply_retention() == 0


def test_compacted_topic_is_not_cut_by_retention(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(retention_ms=1, retention_bytes=1, cleanup_policy=frozenset({"compact"}))
    client = Client(log)
    for _ in range(50):
        client.send_now(values=[(b"k", bytes(200))])
    world.clock.pass_ms(HOUR)
    log.update_high_watermark(50)
    assert log.apply_retention() == 0


def test_dropped_files_are_renamed_at_once_and_removed_later(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(retention_bytes=1, retention_ms=-1, file_delete_delay_ms=5000)
    Client(log).fill(100)
    log.update_high_watermark(100)
    log.apply_retention()
    assert list(log.path.glob("*.log.deleted"))
    assert not (log.path / "00000000000000000000.log").exists()
    world.advance(5001)
    assert not list(log.path.glob("*.deleted"))
    assert all(int(path.stem) >= log.log_start_offset for path in log.path.glob("*.snapshot"))


def test_housekeeping_applies_retention_on_its_own(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(retention_bytes=1, retention_ms=-1)
    Client(log).fill(100)
    log.update_high_watermark(100)
    world.advance(300_001)
    assert log.log_start_offset > 0


def test_delete_records_moves_the_start_at_once(storage: Storage) -> None:
    log = storage.log()
    Client(log).fill(50)
    log.update_high_watermark(40)
    assert log.increment_log_start_offset(41) == OFFSET_OUT_OF_RANGE
    assert log.increment_log_start_offset(30) == 0
    assert log.increment_log_start_offset(10) == 0
    assert log.log_start_offset == 30
    assert read(log, 30)[0][0] == 30
    assert log.apply_retention() >= 1
    assert log.segments[0].base_offset <= 30


def test_log_start_offset_survives_a_restart(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log()
    Client(log).fill(10)
    log.update_high_watermark(10)
    log.increment_log_start_offset(7)
    storage.close()
    again = Storage(storage.path, world)
    assert again.log().log_start_offset == 7
    again.kill()


def test_truncation_drops_the_end_and_its_epochs(storage: Storage) -> None:
    log = storage.log()
    for epoch in range(3):
        Client(log, leader_epoch=epoch).fill(30)
    log.update_high_watermark(90)
    log.truncate_to(45)
    assert (log.log_end_offset, log.high_watermark) == (45, 45)
    assert log.leader_epochs.entries == [(0, 0), (1, 30)]
    assert [piece[0] for piece in read_all(log)] == list(range(45))
    assert log.active.path().stat().st_size == log.active.size
    Client(log, leader_epoch=5).fill(10)
    assert [piece[0] for piece in read_all(log)] == list(range(55))
    log.truncate_to(1000)
    assert log.log_end_offset == 55


def test_truncation_leaves_views_that_are_out_readable(storage: Storage) -> None:
    log = storage.log(internal_segment_bytes=1 << 20)
    client = Client(log)
    client.fill(100)
    result = log.read(0, 1 << 20, 100, True)
    assert isinstance(result, ReadResult)
    before = bytes(result.records)
    log.truncate_to(10)
    client.fill(50)
    assert bytes(result.records) == before
    assert [piece[0] for piece in read_all(log)] == list(range(60))
    assert log.active.path().stat().st_size == log.active.size


def test_truncation_waits_for_writes_in_flight(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(internal_segment_bytes=1 << 24)
    client = Client(log)
    client.fill(3)
    client.send(values=[bytes(200_000)])
    done: list[int] = []
    log.truncate_to(1, lambda: done.append(log.log_end_offset))
    assert done == []
    world.run()
    assert done == [1]
    assert [result.error_code for result in client.later] == [0]


def test_truncation_takes_producers_back(storage: Storage) -> None:
    log = storage.log()
    client = Client(log)
    for sequence in range(20):
        client.send_now(values=[bytes(500)], producer_id=1, producer_epoch=0, sequence=sequence)
    log.truncate_to(13)
    assert client.send_now(producer_id=1, producer_epoch=0, sequence=13).base_offset == 13


def test_truncation_to_nothing_starts_anew_elsewhere(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log()
    Client(log).fill(50)
    log.truncate_fully_and_start_at(500)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epochs.entries) == (500, 500, [])
    assert [path.name for path in log.path.glob("*.log")] == ["00000000000000000500.log"]
    Client(log).fill(3)
    world.run()
    storage.kill()
    again = Storage(storage.path, world)
    assert (again.log().log_start_offset, again.log().log_end_offset) == (500, 503)
    again.kill()


def test_end_offset_for_epoch(storage: Storage) -> None:
    log = storage.log()
    for epoch, count in ((2, 5), (4, 7), (5, 1)):
        Client(log, leader_epoch=epoch).fill(count)
    expected = {1: (1, 0), 2: (2, 5), 3: (2, 5), 4: (4, 12), 5: (5, 13), 6: (6, 13), 7: (-1, -1), -1: (-1, -1)}
    assert {epoch: log.end_offset_for_epoch(epoch, 6) for epoch in expected} == expected


def test_offset_for_timestamp_finds_the_first_record_at_or_after(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log()
    client = Client(log, leader_epoch=3)
    now = world.clock.now_ms()
    for i in range(40):
        client.send(values=[b"a", bytes(100)], timestamps=[now + i * 10, now + i * 10 + 5])
    for i, target in enumerate(range(now, now + 400, 5)):
        assert timestamp_of(log.offset_for_timestamp(target)) == (target, i, 3)
        assert timestamp_of(log.offset_for_timestamp(target - 4)) == (target, i, 3)
    assert log.offset_for_timestamp(now + 396) is None
    log.update_high_watermark(80)
    log.increment_log_start_offset(33)
    assert timestamp_of(log.offset_for_timestamp(0)) == (now + 165, 33, 3)


def test_offset_for_timestamp_with_timestamps_out_of_order(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log()
    client = Client(log)
    now = world.clock.now_ms()
    stamps = [now + (i * 37) % 100 for i in range(100)]
    for stamp in stamps:
        client.send(values=[bytes(100)], timestamp=stamp)
    for target in range(now - 1, now + 101):
        expected = next(((stamp, i, 0) for i, stamp in enumerate(stamps) if stamp >= target), None)
        assert timestamp_of(log.offset_for_timestamp(target)) == expected
    assert timestamp_of(log.offset_of_max_timestamp()) == (now + 99, stamps.index(now + 99), 0)


def test_empty_log_has_no_max_timestamp(storage: Storage) -> None:
    assert storage.log().offset_of_max_timestamp() is None


def test_index_files_are_kafkas_format_byte_for_byte(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(internal_segment_bytes=1 << 20, index_interval_bytes=300)
    client = Client(log)
    now = world.clock.now_ms()
    for i in range(6):
        client.send(values=[bytes(100)] * 2, timestamp=now + i)
    size = len(batch([bytes(100)] * 2))
    assert size > 150
    storage.close()
    # An entry is due once more than the interval has been written since the last one: before batches 2 and 4.
    entries = [(2 * 2 + 1, 2 * size), (4 * 2 + 1, 4 * size)]
    assert (log.path / "00000000000000000000.index").read_bytes() == b"".join(
        struct.pack(">ii", *entry) for entry in entries
    )
    times = [(now + 2, 5), (now + 4, 9), (now + 5, 11)]
    assert (log.path / "00000000000000000000.timeindex").read_bytes() == b"".join(
        struct.pack(">qi", *entry) for entry in times
    )


@pytest.mark.parametrize("offset", [0, 7, 49])
def test_high_watermark_is_kept_within_the_log(storage: Storage, offset: int) -> None:
    log = storage.log()
    Client(log).fill(50)
    assert log.update_high_watermark(offset) == offset
    assert log.update_high_watermark(1000) == 50
    log.increment_log_start_offset(20)
    assert log.update_high_watermark(3) == 20


def test_retention_reaches_partitions_that_nobody_touched_since_the_start(
    storage: Storage, world: VirtualWorld
) -> None:
    log = storage.log(retention_bytes=1, retention_ms=-1)
    Client(log).fill(100)
    log.update_high_watermark(100)
    storage.close()
    again = Storage(storage.path, world)
    again.manager.open_unused = lambda topic, partition: again.partition_log(
        topic, partition, retention_bytes=1, retention_ms=-1
    )
    world.advance(300_001)
    idle = again.manager.get("t", 0)
    assert idle is not None
    assert idle.opened is None
    log = idle.open()
    assert 0 < log.log_start_offset < log.log_end_offset == 100
    again.kill()


class CleanupSettings(TypedDict):
    """When and how a log is cleaned."""

    cleanup_policy: frozenset[str]
    min_cleanable_dirty_ratio: float


class Unused:
    """The only partition of a broker that has started again, which nobody asks for but the housekeeping."""

    def __init__(self, storage: Storage, world: VirtualWorld, **attributes: Any) -> None:
        self.storage = storage
        self.world = world
        self.attributes = attributes
        self.times_opened = 0
        storage.manager.open_unused = self._open

    def _open(self, topic: str, partition: int) -> PartitionLog:
        self.times_opened += 1
        return self.storage.partition_log(topic, partition, **self.attributes)

    def log_after(self, looks: int) -> PartitionLog:
        """The log when retention has looked at it so many times more."""
        for _ in range(looks):
            self.world.advance(CHECK_MS)
        log = self.storage.manager.get("t", 0)
        assert log is not None
        return log


def test_retention_reaches_an_unused_partition_whenever_something_expires_and_opens_it_only_then(
    make_storage: Callable[..., Storage], world: VirtualWorld
) -> None:
    first = make_storage()
    log = first.log()
    Client(log).fill(30, timestamp=world.clock.now_ms())
    Client(log).fill(30, timestamp=world.clock.now_ms() + 4 * CHECK_MS)
    log.update_high_watermark(60)
    first.close()
    unused = Unused(make_storage(), world, retention_ms=2 * CHECK_MS)
    idle = unused.log_after(2)
    assert (idle.opened, unused.times_opened, idle.open().log_start_offset) == (None, 1, 0)
    idle.shut()
    assert 0 < unused.log_after(1).open().log_start_offset <= 30
    idle.shut()
    assert unused.log_after(3).open().log_start_offset <= 30
    idle.shut()
    assert unused.times_opened == 2
    assert unused.log_after(1).open().log_start_offset == 60
    assert unused.times_opened == 3


def test_retention_looks_at_an_unused_partition_again_when_a_setting_has_changed(
    make_storage: Callable[..., Storage], world: VirtualWorld
) -> None:
    first = make_storage()
    Client(first.log()).fill(60, timestamp=world.clock.now_ms())
    first.manager.logs()[0].open().update_high_watermark(60)
    first.close()
    unused = Unused(make_storage(), world, retention_ms=-1)
    idle = unused.log_after(3)
    assert (idle.opened, unused.times_opened) == (None, 1)
    idle.update_config(small_config(retention_ms=1))
    assert unused.log_after(1).open().log_start_offset == 60


def test_retention_reaches_a_compacted_partition_that_the_cleaner_has_closed_again(
    make_storage: Callable[..., Storage], world: VirtualWorld
) -> None:
    policies: CleanupSettings = {"cleanup_policy": frozenset({"compact", "delete"}), "min_cleanable_dirty_ratio": 1.0}
    first = make_storage()
    log = first.log(**policies)
    for i in range(60):
        Client(log).send_now(values=[(b"%d" % i, bytes(100))], timestamp=world.clock.now_ms())
    log.update_high_watermark(60)
    first.close()
    unused = Unused(make_storage(), world, retention_ms=3 * CHECK_MS, **policies)
    idle = unused.log_after(3)
    assert (idle.opened, idle.open().log_start_offset) == (None, 0)
    idle.shut()
    assert unused.log_after(1).open().log_start_offset == 60


def test_retention_that_fails_for_one_partition_goes_on_with_the_others_and_comes_again(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logs = [storage.log(partition=partition, retention_bytes=1, retention_ms=-1) for partition in range(3)]
    apply_retention = retention.apply_retention

    def failing(log: Log) -> int:
        if log.partition == 1 and world.clock.now_ms() < later:
            raise RuntimeError("a defect")
        return apply_retention(log)

    later = world.clock.now_ms() + 2 * CHECK_MS
    monkeypatch.setattr(retention, "apply_retention", failing)
    for log in logs:
        Client(log).fill(100)
        log.update_high_watermark(100)
    world.advance(CHECK_MS)
    assert [log.log_start_offset > 0 for log in logs] == [True, False, True]
    assert [record.exc_info is not None for record in caplog.records] == [True]
    world.advance(CHECK_MS)
    assert logs[1].log_start_offset > 0


def test_periodic_task_that_fails_runs_again(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = storage.log(flush_ms=5000)
    Client(log).fill(1)
    with monkeypatch.context() as patched:
        patched.setattr(Log, "flush_is_overdue", lambda _self, _now_ms: 1 // 0)
        world.advance(10_000)
    assert log.recovery_point == 0
    assert all(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in caplog.records)
    world.advance(1_000)
    assert log.recovery_point == 1
    assert caplog.records


def test_parked_log_opens_again_as_it_was(storage: Storage) -> None:
    log = storage.log()
    client = Client(log, leader_epoch=2)
    for sequence in range(30):
        client.send(values=[bytes(200)], producer_id=1, producer_epoch=0, sequence=sequence)
    log.update_high_watermark(20)
    expected = read_all(log)
    storage.world.run()
    shut = storage.partition_log()
    shut.shut()
    assert shut.opened is None
    assert len(storage.manager._environment.segments) == 0
    log = client.log = shut.open()
    assert (log.high_watermark, log.log_end_offset, read_all(log)) == (20, 30, expected)
    assert client.send_now(values=[bytes(200)], producer_id=1, producer_epoch=0, sequence=28).base_offset == 28
    assert client.send_now(values=[bytes(200)], producer_id=1, producer_epoch=0, sequence=30).base_offset == 30


@pytest.mark.parametrize("between", ["nothing", "remap", "eviction", "higher truncation"])
def test_truncation_spares_views_of_former_maps(storage: Storage, between: str) -> None:
    log = storage.log(internal_segment_bytes=1 << 20)
    client = Client(log)
    client.fill(100)
    result = log.read(0, 1 << 20, 100, True)
    assert isinstance(result, ReadResult)
    before = bytes(result.records)
    if between == "remap":
        log.update_config(small_config(internal_segment_bytes=1 << 22))
    elif between == "eviction":
        log.active.close()
    elif between == "higher truncation":
        client.fill(10)
        log.truncate_to(100)
    assert len(read(log, 0)) == 100
    log.truncate_to(10)
    client.fill(200)
    assert bytes(result.records) == before
    assert len(read_all(log)) == 210

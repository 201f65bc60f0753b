"""Reads: whole batches, limits, bounds, cold data, pinned maps."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file
from pybroker.storage.files import segment_file as segment_module
from pybroker.storage.files.file_map import FileMap
from pybroker.storage.files.os_file import is_resident  # the kernel's word, whatever the fixtures say
from pybroker.storage.log import log_reader
from pybroker.storage.log.cold_read import ColdRead
from pybroker.storage.log.log_reader import COLD_READ_BYTES_MAX
from pybroker.storage.log.log_rolling import roll
from pybroker.storage.results import (
    CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR,
    OFFSET_OUT_OF_RANGE,
    ReadResult,
)
from tests.storage.batches import batch, parse
from tests.storage.logs import Client, Storage, read, read_all, read_now


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in the page cache, as far as the log can tell."""
    monkeypatch.setattr(os_file, "is_resident", lambda address, start, end: False)
    monkeypatch.setattr(segment_module, "WARM_TAIL_BYTES", -1)


def read_cold(world: VirtualWorld, cold_read: ReadResult | ColdRead) -> ReadResult:
    assert isinstance(cold_read, ColdRead)
    results: list[ReadResult] = []
    cold_read.start(results.append)
    assert results == []
    world.run()
    return results[0]


def test_read_in_the_middle_of_a_batch_returns_the_whole_batch(storage: Storage) -> None:
    log = storage.log()
    client = Client(log)
    client.send(values=[b"a", b"b", b"c"])
    client.send(values=[b"d"])
    assert [piece[:2] for piece in read(log, 1)] == [(0, 2), (3, 3)]


def test_read_at_the_end_is_empty_and_past_it_out_of_range(storage: Storage) -> None:
    log = storage.log()
    Client(log).fill(2)
    assert read(log, 2) == []
    assert read_now(log, 3, 100, 3).error_code == OFFSET_OUT_OF_RANGE
    log.update_high_watermark(2)
    log.increment_log_start_offset(1)
    assert read_now(log, 0, 100, 2).error_code == OFFSET_OUT_OF_RANGE


def test_read_stops_below_the_upper_bound(storage: Storage) -> None:
    log = storage.log()
    Client(log).fill(10)
    assert [piece[0] for piece in read(log, 3, upper=6)] == [3, 4, 5]
    assert read(log, 6, upper=6) == []


@pytest.mark.parametrize("max_bytes", [0, 1, 170, 171, 342, 400, 1000])
def test_read_returns_whole_batches_up_to_max_bytes_but_at_least_one(storage: Storage, max_bytes: int) -> None:
    log = storage.log()
    Client(log).fill(10)
    size = len(read(log, 0)[0][2])
    for offset in range(10):
        count = len(read(log, offset, max_bytes))
        assert count == min(max(1, max_bytes // size), len(read(log, offset)))
        result = read_now(log, offset, max_bytes, 10, min_one_batch=False)
        assert len(result.records) <= max_bytes


def test_lagging_reader_of_sealed_segments_gets_every_batch_once(storage: Storage) -> None:
    log = storage.log()
    Client(log).fill(200)
    for max_bytes in (1, 300, 1000, 1 << 20):
        offset, seen = 0, []
        while offset < 200:
            batches = read(log, offset, max_bytes)
            seen += [piece[0] for piece in batches]
            offset = batches[-1][1] + 1
        assert seen == list(range(200))


def test_read_over_a_hole_of_compaction_goes_on_behind_it(storage: Storage) -> None:
    log = storage.log()
    for base_offset in (0, 5, 9):
        log.append_as_follower(memoryview(batch([b"x"], base_offset=base_offset)))
    for offset, expected in ((1, 5), (5, 5), (6, 9), (9, 9)):
        assert read(log, offset, max_bytes=1)[0][0] == expected


def test_read_over_an_empty_end_of_a_segment_goes_on_in_the_next(storage: Storage) -> None:
    log = storage.log()
    log.append_as_follower(memoryview(batch([bytes(3000)])))
    roll(log, 50)  # as Kafka's follower does
    log.append_as_follower(memoryview(batch([bytes(3000)], base_offset=50)))
    assert [segment.base_offset for segment in log.segments] == [0, 50]
    assert read(log, 1)[0][0] == 50


def test_cold_read_over_an_empty_end_of_a_segment_goes_on_in_the_next(
    storage: Storage, world: VirtualWorld, cold: None
) -> None:
    log = storage.log()
    for base_offset in (0, 50, 90):
        if base_offset:
            roll(log, base_offset)  # as Kafka's follower does
        log.append_as_follower(memoryview(batch([bytes(3000)], base_offset=base_offset)))
    assert [segment.base_offset for segment in log.segments] == [0, 50, 90]
    for offset, expected in ((1, 50), (51, 90)):
        found = read_cold(world, log.read(offset, 1 << 20, 91, True))
        assert parse(found.records)[0][0] == expected
    assert not len(read_cold(world, log.read(1, 1 << 20, 50, True)).records)
    assert not len(read_cold(world, log.read(1, 1 << 20, 91, False)).records)


def test_cold_read_happens_on_the_reader_thread(storage: Storage, world: VirtualWorld, cold: None) -> None:
    log = storage.log()
    Client(log).fill(100)
    for offset in (0, 17, 40, 99):
        whole = read_cold(world, log.read(offset, 1 << 20, 100, True))
        assert parse(whole.records)[0][0] == offset
        cut = read_cold(world, log.read(offset, 500, 100, True))
        assert 1 <= len(parse(cut.records)) <= 2
        one = read_cold(world, log.read(offset, 1, 100, True))
        assert [piece[0] for piece in parse(one.records)] == [offset]
        bounded = read_cold(world, log.read(offset, 1 << 20, offset + 1, True))
        assert [piece[0] for piece in parse(bounded.records)] == [offset]


def test_cold_read_is_small_whatever_is_asked_so_that_nobody_waits_for_its_buffer(
    storage: Storage, world: VirtualWorld, cold: None
) -> None:
    log = storage.log(internal_segment_bytes=1 << 23)
    Client(log).fill(60, size=50_000)
    found = read_cold(world, log.read(0, 55 << 20, 60, True)).records
    assert COLD_READ_BYTES_MAX - 60_000 < len(found) <= COLD_READ_BYTES_MAX
    rest = read_cold(world, log.read(len(parse(found)), 55 << 20, 60, True)).records
    assert parse(rest)[0][0] == len(parse(found))


def test_cold_read_without_minimum_may_be_empty(storage: Storage, world: VirtualWorld, cold: None) -> None:
    log = storage.log()
    Client(log).fill(10)
    assert len(read_cold(world, log.read(0, 1, 10, False)).records) == 0


def test_cold_buffers_count_until_their_last_view_dies(
    storage: Storage, world: VirtualWorld, cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = storage.log(internal_segment_bytes=1 << 20)
    Client(log).fill(100)
    before = log_reader.ColdBuffer.bytes_out
    held = read_cold(world, log.read(0, 5000, 100, True))
    assert log_reader.ColdBuffer.bytes_out == before + len(held.records)
    monkeypatch.setattr(log_reader, "COLD_BUFFER_BYTES_MAX", before + 1)
    assert len(parse(read_cold(world, log.read(0, 5000, 100, True)).records)) == 1
    del held
    assert log_reader.ColdBuffer.bytes_out == before


def test_cold_read_keeps_its_segment_open_while_it_is_deleted(
    storage: Storage, world: VirtualWorld, cold: None
) -> None:
    log = storage.log()
    Client(log).fill(10)
    cold_read = log.read(0, 1 << 20, 10, True)
    results: list[ReadResult] = []
    assert isinstance(cold_read, ColdRead)
    cold_read.start(results.append)
    storage.manager.delete("t", log.topic_id or b"", 10)
    world.run()
    assert len(parse(results[0].records)) == 10
    assert log.segments[0].fd == -1


def test_failing_disk_fails_a_cold_read_and_takes_the_directory_offline(
    storage: Storage, world: VirtualWorld, cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = storage.log()
    Client(log).fill(10)

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    cold_read = log.read(0, 1 << 20, 10, True)
    monkeypatch.setattr(os_file, "pread", fail)
    assert read_cold(world, cold_read).error_code == KAFKA_STORAGE_ERROR
    assert storage.all_failed == 1
    assert read_now(log, 0, 100, 10).error_code == KAFKA_STORAGE_ERROR


def test_bytes_that_are_no_batch_are_corrupt_not_endless(storage: Storage) -> None:
    log = storage.log(index_interval_bytes=1 << 20)
    Client(log).fill(30)
    sealed = log.segments[0]
    os.pwrite(sealed.fd, bytes(200), 300)
    assert read_now(log, sealed.base_offset + 10, 100, 30).error_code == CORRUPT_MESSAGE


def test_residency_is_asked_of_the_kernel_for_old_data(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    log = storage.log()
    Client(log).fill(100)
    monkeypatch.setattr(segment_module, "WARM_TAIL_BYTES", -1)
    assert len(read_all(log)) == 100  # what was just written is in the page cache


def test_evicted_segments_open_again(storage: Storage) -> None:
    log = storage.log()
    storage.manager._environment.segments.open_max = 3
    client = Client(log)
    client.fill(300)
    assert len(log.segments) > 6
    assert len(read_all(log)) == 300
    assert len(storage.manager._environment.segments) <= 4
    client.fill(3)
    assert len(read_all(log)) == 303


def test_bytes_between_counts_over_segments(storage: Storage) -> None:
    log = storage.log()
    Client(log).fill(100)
    size = len(read(log, 0)[0][2])
    assert 0 <= log.bytes_between(90, 100) - 10 * size <= 600  # to the precision of the index
    assert log.bytes_between(100, 100) == 0
    assert log.bytes_between(0, 100) == 100 * size
    assert abs(log.bytes_between(10, 50) - 40 * size) <= 600


def test_kernel_tells_what_is_in_the_page_cache(tmp_path: Path) -> None:
    fd = os_file.open_for_append(tmp_path / "file")
    try:
        os_file.write_fully(fd, os.urandom(1 << 20), 0)
        mapped = os_file.map_for_reading(fd, 1 << 20, 1 << 30, FileMap)
        assert (tmp_path / "file").stat().st_size == 1 << 20
        address = os_file.map_address(mapped)
        assert is_resident(address, 0, 1 << 20)
        assert is_resident(address, 4095, 4097)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        gone = not is_resident(address, 0, 1 << 20)
        if gone:  # Some file systems, tmpfs among them, keep everything.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            os.pread(fd, 10, 500_000)
            assert is_resident(address, 500_000, 500_010)
            assert not is_resident(address, 0, 1 << 20)
        mapped.close()
    finally:
        os.close(fd)


def test_range_of_many_pages_is_resident_only_if_each_of_them_is(tmp_path: Path) -> None:
    size = 5 << 20
    fd = os_file.open_for_append(tmp_path / "file")
    try:
        os_file.write_fully(fd, os.urandom(size), 0)
        mapped = os_file.map_for_reading(fd, size, 1 << 30, FileMap)
        address = os_file.map_address(mapped)
        assert is_resident(address, 3, size - 3)
        os.fsync(fd)
        for missing in (size - mmap.PAGESIZE, (2 << 20) + mmap.PAGESIZE):
            os.posix_fadvise(fd, missing, mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)
            if not is_resident(address, missing, missing + 1):  # tmpfs keeps everything
                assert not is_resident(address, 0, size)
                assert is_resident(address, 0, missing)
                assert is_resident(address, missing - mmap.PAGESIZE - 1, missing - mmap.PAGESIZE + 1)
        mapped.close()
    finally:
        os.close(fd)

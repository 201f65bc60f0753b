"""Appends: offsets, patches, rolling, the writer thread."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file
from pybroker.storage.results import KAFKA_STORAGE_ERROR, RECORD_LIST_TOO_LARGE, AppendResult, ReadResult
from tests.storage.batches import batch, parse
from tests.storage.logs import TOPIC_ID, Client, Storage, read, read_all, small_config


def test_append_assigns_offsets_and_stamps_the_leader_epoch(storage: Storage) -> None:
    log = storage.log()
    client = Client(log, leader_epoch=7)
    first = client.send_now(values=[b"a", b"b", b"c"])
    second = client.send_now(values=[b"d"])
    assert (first.base_offset, first.last_offset, first.leader_epoch) == (0, 2, 7)
    assert (second.base_offset, second.last_offset, log.log_end_offset) == (3, 3, 4)
    stored = read_all(log)
    assert [(base, last) for base, last, _ in stored] == [(0, 2), (3, 3)]
    assert all(struct.unpack_from(">i", data, 12) == (7,) for _, _, data in stored)


def test_no_file_exists_before_the_first_append(storage: Storage) -> None:
    log = storage.log()
    assert log.log_end_offset == 0
    assert not log.path.exists()
    Client(log).send()
    names = sorted(path.name for path in log.path.iterdir())
    assert names == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (log.path / "partition.metadata").read_text() == "version: 0\ntopic_id: MDEyMzQ1Njc4OWFiY2RlZg"


def test_the_file_ends_where_its_data_ends_also_while_mapped(storage: Storage) -> None:
    log = storage.log()
    client = Client(log)
    client.fill(3)
    read_all(log)
    client.fill(3)
    assert log.active.path().stat().st_size == log.active.size == sum(len(data) for _, _, data in read_all(log))


def test_segment_rolls_when_the_next_batch_would_pass_segment_bytes(storage: Storage) -> None:
    log = storage.log()
    Client(log).fill(100)
    assert len(log.segments) > 2
    assert all(0 < segment.size <= 4096 for segment in log.segments)
    assert len(read_all(log)) == 100
    for earlier, later in pairwise(log.segments):
        assert later.base_offset == read(log, later.base_offset - 1)[-1][1] + 1
        assert earlier.sealed
    assert not log.active.sealed


def test_segment_rolls_by_the_records_time(storage: Storage) -> None:
    log = storage.log(segment_ms=1000)
    client = Client(log)
    start = storage.world.clock.now_ms()
    for elapsed in (0, 1000, 1001, 1500, 2002):
        client.send(timestamp=start + elapsed)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_segment_of_records_without_timestamps_rolls_by_its_age(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(segment_ms=1000)
    client = Client(log)
    client.send(timestamp=-1)
    world.clock.pass_ms(1000)
    client.send(timestamp=-1)
    world.clock.pass_ms(1)
    client.send(timestamp=-1)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segment_rolls_when_its_index_is_full(storage: Storage) -> None:
    log = storage.log(segment_index_bytes=48, index_interval_bytes=0, internal_segment_bytes=1 << 20)
    Client(log).fill(12)
    assert len(log.segments) > 1
    assert len(read_all(log)) == 12


def test_segment_rolls_before_relative_offsets_overflow(storage: Storage) -> None:
    log = storage.log(internal_segment_bytes=1 << 20)
    later: list[AppendResult] = []
    most = (1 << 31) - 1
    for _ in range(2):
        log.append_internal(batch(count=most, last_offset_delta=most - 1), 0, later.append)
    assert [segment.base_offset for segment in log.segments] == [0, most]


def test_batch_larger_than_a_segment_is_refused(storage: Storage) -> None:
    result = Client(storage.log()).send_now(values=[bytes(5000)])
    assert result.error_code == RECORD_LIST_TOO_LARGE


def test_large_append_is_readable_and_answered_when_its_bytes_are_written(
    storage: Storage, world: VirtualWorld
) -> None:
    log = storage.log(internal_segment_bytes=1 << 24)
    client = Client(log)
    client.fill(1)
    assert client.send(values=[bytes(200_000)]) is None
    assert log.log_end_offset == 1
    world.executor("writer").work()
    assert log.log_end_offset == 1
    world.executor("writer").deliver()
    assert log.log_end_offset == 2
    assert [result.base_offset for result in client.later] == [1]


def test_small_append_behind_a_large_one_is_copied_and_keeps_its_place(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(internal_segment_bytes=1 << 24)
    client = Client(log)
    client.send(values=[bytes(200_000)])
    small = batch([b"small"])
    assert client.send(small) is None
    small[:] = bytes(len(small))  # the receive buffer is used again at once
    assert log.log_end_offset == 0
    world.run()
    assert [(result.base_offset, result.last_offset) for result in client.later] == [(0, 0), (1, 1)]
    assert b"small" in read(log, 1)[0][2]


def test_append_that_rolls_waits_for_the_writes_in_flight(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(internal_segment_bytes=300_000)
    client = Client(log)
    for _ in range(3):
        assert client.send(values=[bytes(200_000)]) is None
    assert client.send(values=[b"behind"]) is None
    world.run()
    assert [result.base_offset for result in client.later] == [0, 1, 2, 3]
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert len(read_all(log)) == 4


def test_internal_append_takes_immutable_bytes_and_control_batches(storage: Storage) -> None:
    log = storage.log()
    result = log.append_internal(bytes(batch([b"x"], attributes=0x20)), 3, lambda _: None)
    assert result is not None
    assert (result.error_code, result.base_offset) == (0, 0)


def test_follower_append_keeps_offsets_and_epochs(storage: Storage) -> None:
    log = storage.log()
    data = batch([b"a"], base_offset=5, leader_epoch=2) + batch([b"b", b"c"], base_offset=9, leader_epoch=4)
    result = log.append_as_follower(memoryview(data))
    assert (result.error_code, result.base_offset, result.last_offset, log.log_end_offset) == (0, 5, 10, 11)
    # What lies before a batch may have been cleaned away: the epoch may have begun with it.
    assert log.leader_epochs.entries == [(2, 0), (4, 6)]
    assert [piece[:2] for piece in read(log, 7)] == [(9, 10)]


def test_follower_append_stops_at_a_corrupt_batch_and_ignores_a_cut_one(storage: Storage) -> None:
    log = storage.log()
    good, bad = batch([b"a"]), batch([b"b"], base_offset=1, crc=1)
    result = log.append_as_follower(memoryview(good + bad))
    assert result.error_code != 0
    assert log.log_end_offset == 1
    cut = batch([b"b"], base_offset=1)
    assert log.append_as_follower(memoryview(cut[:-3])).error_code == 0
    assert log.log_end_offset == 1


def test_appends_that_wait_for_a_deleted_log_fail(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(internal_segment_bytes=300_000)
    client = Client(log)
    client.send(values=[bytes(200_000)])
    client.send(values=[bytes(200_000)])
    storage.manager.delete("t", TOPIC_ID, 10)
    world.run()
    assert [result.error_code for result in client.later] == [0, KAFKA_STORAGE_ERROR]
    assert client.send_now().error_code == KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("count", [1, 7])
def test_views_stay_good_after_their_segment_is_gone(storage: Storage, world: VirtualWorld, count: int) -> None:
    log = storage.log()
    Client(log).fill(count)
    result = log.read(0, 1 << 20, count, True)
    assert isinstance(result, ReadResult)
    expected = bytes(result.records)
    storage.manager.delete("t", TOPIC_ID, 10)
    world.advance(120_000)
    assert list(storage.path.glob("*-delete")) == []
    assert bytes(result.records) == expected
    assert len(parse(result.records)) == count


def test_segment_size_may_change_at_any_time(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(internal_segment_bytes=1000)
    client = Client(log)
    log.update_config(small_config(internal_segment_bytes=2000))
    client.fill(3)
    assert len(read_all(log)) == 3
    log.update_config(small_config(internal_segment_bytes=1 << 20))
    client.fill(50)
    assert len(log.segments) == 1
    client.send(values=[bytes(200_000)])
    log.update_config(small_config(internal_segment_bytes=1 << 24))
    assert client.send(values=[b"x"]) is None
    world.run()
    assert len(read_all(log)) == 55
    log.update_config(small_config(internal_segment_bytes=500))
    client.fill(2)
    assert len(log.segments) == 2
    assert len(read_all(log)) == 57


def test_follower_append_writes_batches_that_follow_one_another_at_once(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = storage.log()
    log.append_as_follower(memoryview(batch([b"first"], leader_epoch=0)))
    sizes: list[int] = []
    pwrite = os_file.pwrite

    def counted(fd: int, data: Any, at: int) -> int:
        if fd == log.active.fd:
            sizes.append(len(data))
        return pwrite(fd, data, at)

    monkeypatch.setattr(os_file, "pwrite", counted)
    run = [
        batch(
            [b"v"] * 2, base_offset=1 + 2 * number, leader_epoch=0, producer_id=7, producer_epoch=0, sequence=2 * number
        )
        for number in range(5)
    ]
    behind_a_gap = batch([b"v"], base_offset=20, leader_epoch=0)
    of_an_epoch = batch([b"v"], base_offset=21, leader_epoch=3)
    result = log.append_as_follower(memoryview(b"".join([*run, behind_a_gap, of_an_epoch])))
    assert (result.error_code, result.base_offset, result.last_offset) == (0, 1, 21)
    assert sizes == [sum(map(len, run)), len(behind_a_gap), len(of_an_epoch)]
    assert [piece[:2] for piece in read(log, 3)][:1] == [(3, 4)]
    assert log.producers.producers[7].last_sequence == 9
    assert log.leader_epochs.entries == [(0, 0), (3, 21)]


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_follower_append_tells_how_far_it_came(storage: Storage, failing: int) -> None:
    log = storage.log()
    batches = [batch([b"v"], base_offset=number, crc=1 if number == failing else None) for number in range(4)]
    result = log.append_as_follower(memoryview(b"".join(batches)))
    assert result.error_code != 0
    assert (result.base_offset, result.last_offset, log.log_end_offset) == (0, failing - 1, failing)


def test_follower_append_that_cannot_be_written_tells_what_was(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = storage.log()
    log.append_as_follower(memoryview(batch([b"v"])))
    of_an_epoch = batch([b"v"], base_offset=2, leader_epoch=3)
    pwrite, calls = os_file.pwrite, []

    def second_fails(fd: int, data: Any, at: int) -> int:
        calls.append(at)
        if len(calls) > 1:
            raise OSError(5, "no more")
        return pwrite(fd, data, at)

    monkeypatch.setattr(os_file, "pwrite", second_fails)
    result = log.append_as_follower(memoryview(batch([b"v"], base_offset=1) + of_an_epoch))
    assert result.error_code == KAFKA_STORAGE_ERROR
    assert (result.base_offset, result.last_offset) == (1, 1)

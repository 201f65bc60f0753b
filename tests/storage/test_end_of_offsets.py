"""A log that comes to the last offset of 64 bits takes no batch that would pass it, and is read as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import START_MS, VirtualWorld

from pybroker.storage.log.append_run import append_run
from pybroker.storage.log.log import Log
from pybroker.storage.results import CORRUPT_MESSAGE, NONE, OFFSET_OUT_OF_RANGE, RECORD_LIST_TOO_LARGE, AppendResult
from tests.storage.batches import batch
from tests.storage.logs import LATEST_PRODUCE, Client, Storage, read_all, read_now

INT64_END = 1 << 63
LAST = INT64_END - 2  # the log's end behind it is the largest number that can be told
BEGIN = LAST - 2


def ending(storage: Storage, base_offset: int = BEGIN, **settings: Any) -> Log:
    """A log whose one batch lies there."""
    log = storage.log(**settings)
    first = batch(base_offset=base_offset, leader_epoch=0)
    assert log.append_as_follower(memoryview(first)).error_code == NONE
    log.update_high_watermark(base_offset + 1)
    return log


def send(world: VirtualWorld, client: Client, **fields: Any) -> AppendResult:
    """Append a batch; that of the last offset is synced first, as ``flush.messages`` are full with it."""
    result = client.send(**fields)
    if result is None:
        world.run()
        result = client.later.pop()
    return result


def codes(*results: AppendResult) -> list[tuple[int, int]]:
    return [(result.error_code, result.base_offset) for result in results]


@pytest.mark.parametrize("size", [10, 200_000])
def test_batch_that_would_pass_the_last_offset_is_refused_and_one_that_fits_is_taken(
    storage: Storage, world: VirtualWorld, size: int
) -> None:
    client = Client(ending(storage, internal_segment_bytes=1 << 24))
    results = [send(world, client, values=[bytes(size)] * count) for count in (3, 2, 1)]
    assert codes(*results) == [(RECORD_LIST_TOO_LARGE, -1), (NONE, BEGIN + 1), (RECORD_LIST_TOO_LARGE, -1)]
    assert "has 2 left" in (results[0].error_message or "")
    assert client.log.log_end_offset == INT64_END - 1


def test_run_takes_what_fits_and_leaves_the_rest(storage: Storage, world: VirtualWorld) -> None:
    log = ending(storage)
    batches = [memoryview(batch([b"v"] * count)) for count in (1, 2)]
    assert append_run(log, batches, 0, LATEST_PRODUCE) == [BEGIN + 1]
    assert codes(*(send(world, Client(log), data=bytearray(data)) for data in batches[1:])) == [
        (RECORD_LIST_TOO_LARGE, -1)
    ]


def test_refused_batch_is_not_taken_for_appended_by_its_producer(storage: Storage, world: VirtualWorld) -> None:
    client = Client(ending(storage))
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    for _ in range(2):
        assert send(world, client, values=[b"v"] * 2, sequence=0, **fields).base_offset == BEGIN + 1, (
            "a repeat is known"
        )
        assert send(world, client, values=[b"v"], sequence=2, **fields).error_code == RECORD_LIST_TOO_LARGE


def test_marker_and_the_brokers_own_batches_are_refused_there_too(storage: Storage, world: VirtualWorld) -> None:
    client = Client(ending(storage))
    begun = send(world, client, attributes=0x10, producer_id=7, producer_epoch=0, sequence=0, values=[b"v"] * 2)
    assert begun.error_code == NONE
    assert client.end(7, 0, commit=True).error_code == RECORD_LIST_TOO_LARGE
    own = client.log.append_internal(bytes(batch()), 0, client.later.append)
    assert own is not None
    assert own.error_code == RECORD_LIST_TOO_LARGE
    assert client.log.last_stable_offset == BEGIN + 1


@pytest.mark.parametrize("count", [1, 2])
def test_follower_takes_no_batch_past_the_last_offset(storage: Storage, count: int) -> None:
    log = storage.log()
    records = memoryview(batch([b"v"] * count, base_offset=LAST, leader_epoch=0))
    assert log.append_as_follower(records).error_code == (CORRUPT_MESSAGE if count > 1 else NONE)
    assert log.log_end_offset == (0 if count > 1 else LAST + 1)


@pytest.mark.parametrize("is_clean", [True, False])
def test_full_log_is_opened_and_read_as_before(tmp_path: Path, world: VirtualWorld, is_clean: bool) -> None:
    storage = Storage(tmp_path, world)
    log = ending(storage)
    assert send(world, Client(log), values=[b"v"] * 2).error_code == NONE
    log.update_high_watermark(INT64_END - 1)
    before = read_all(log)
    storage.close() if is_clean else storage.kill()
    storage = Storage(tmp_path, world)
    try:
        log = storage.log()
        assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (0, INT64_END - 1, before)
        assert codes(Client(log).send_now()) == [(RECORD_LIST_TOO_LARGE, -1)]
        assert read_now(log, INT64_END - 1, 1 << 20, INT64_END - 1).error_code == NONE
        assert read_now(log, INT64_END, 1 << 20, INT64_END - 1).error_code == OFFSET_OUT_OF_RANGE
    finally:
        storage.kill()


def test_full_log_expires_as_any_other(storage: Storage, world: VirtualWorld) -> None:
    log = ending(storage, retention_ms=1_000, segment_ms=1_000)
    send(world, Client(log), values=[b"v"] * 2)
    log.update_high_watermark(INT64_END - 1)
    log.increment_log_start_offset(BEGIN)
    world.clock.pass_ms(10_000)
    log.apply_retention()
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (INT64_END - 1, INT64_END - 1, 1)
    assert codes(Client(log).send_now()) == [(RECORD_LIST_TOO_LARGE, -1)]


def test_offset_of_a_time_is_found_at_the_end_of_all_offsets(storage: Storage) -> None:
    log = ending(storage)
    client, now = Client(log), START_MS
    client.send_now(timestamp=now + 5)
    found = log.offset_for_timestamp(now + 1)
    assert getattr(found, "offset", None) == BEGIN + 1
    assert log.offset_for_timestamp(INT64_END - 1) is None
    assert getattr(log.offset_of_max_timestamp(), "offset", None) == BEGIN + 1


def test_follower_of_a_compacted_log_takes_a_first_batch_far_past_its_start(
    tmp_path: Path, world: VirtualWorld
) -> None:
    storage = Storage(tmp_path, world)
    far = 3 << 31
    log = ending(storage, far)
    client = Client(log)
    assert client.send_now().base_offset == far + 1
    before = read_all(log)
    assert (log.log_start_offset, [begin for begin, _, _ in before]) == (0, [far, far + 1])
    storage.kill()
    storage = Storage(tmp_path, world)
    try:
        log = storage.log()
        assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (0, far + 2, before)
    finally:
        storage.kill()


def test_segment_rolls_where_relative_offsets_end(storage: Storage) -> None:
    """An index counts offsets from the segment's first one in 31 bits."""
    log = storage.log(internal_segment_bytes=1 << 24)
    client = Client(log)
    client.send_now()
    gap = (1 << 31) - 2
    assert log.append_as_follower(memoryview(batch(base_offset=gap, leader_epoch=0))).error_code == NONE
    assert (client.send_now().base_offset, len(log.segments)) == (gap + 1, 1)
    assert (client.send_now().base_offset, [segment.base_offset for segment in log.segments]) == (gap + 2, [0, gap + 2])

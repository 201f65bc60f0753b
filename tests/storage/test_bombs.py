"""A few bytes that are millions of records: whoever looks at them takes turns with all others, and holds little."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from harness.virtual_world import VirtualExecutor, VirtualWorld

from pybroker.storage.dirs.writer_threads import WRITER_STEPS_AHEAD, WRITER_STEPS_PER_TURN
from pybroker.storage.results import INVALID_RECORD, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, NONE
from pybroker.storage.rules.record_validator import RECORD_ERRORS_MAX
from pybroker_protocol.compression import Compression
from pybroker_protocol.record_codec import build_batch
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage

MakeStorage = Callable[..., Storage]
COUNT = 200_000
TIME_MS = 1_700_000_000_000
LOOKED_INTO: dict[str, dict[str, Any]] = {
    "validated": {"pybroker_validate_records": True},
    "compacted": {"cleanup_policy": frozenset({"compact"})},
    "rewritten": {"compression_type": "gzip"},
}
looked_into = pytest.mark.parametrize("settings", LOOKED_INTO.values(), ids=LOOKED_INTO)


def bomb_of(count: int, key: bytes | None = b"", codec: Compression = Compression.ZSTD) -> bytes:
    return build_batch([(key, b"")] * count, timestamp_ms=TIME_MS, compression=codec)


@cache
def bomb() -> bytes:
    """Made once a test needs it: it takes two seconds, and every process of tests imports this module."""
    return bomb_of(COUNT)


def client(storage: Storage, partition: int, **settings: Any) -> Client:
    return Client(storage.log(partition=partition, internal_segment_bytes=1 << 30, **settings))


def throw_into(storage: Storage, logs: int, settings: dict[str, Any]) -> list[Client]:
    """Logs with a bomb each."""
    clients = [client(storage, partition, **settings) for partition in range(logs)]
    for each in clients:
        assert each.send(bytearray(bomb())) is None
    return clients


def take_turn(world: VirtualWorld) -> None:
    """Each writer thread has one portion, or does one job, and the loop hears of it."""
    for executor in writers(world):
        if executor.jobs:
            executor.work()
        executor.deliver()


def writers(world: VirtualWorld) -> list[VirtualExecutor]:
    return [executor for name, executor in world.executors.items() if "-writer-" in name]


@looked_into
@pytest.mark.parametrize("logs", [1, 20])
def test_append_waits_for_a_portion_of_few_batches_however_many_are_looked_at(
    storage: Storage, world: VirtualWorld, settings: dict[str, Any], logs: int
) -> None:
    bombed = throw_into(storage, logs, settings)
    take_turn(world)
    other = client(storage, 50)
    assert other.send(batch(values=[bytes(200_000)])) is None
    turns = 0
    while not other.later:
        take_turn(world)
        turns += 1
    assert turns <= WRITER_STEPS_AHEAD + 1
    assert not any(each.later for each in bombed)


@looked_into
def test_what_is_quickly_looked_at_does_not_wait_for_all_of_what_takes_long(
    storage: Storage, world: VirtualWorld, settings: dict[str, Any]
) -> None:
    bombed = throw_into(storage, 10, settings)
    ordinary = client(storage, 50, **settings)
    assert ordinary.send(batch(values=[(b"k", bytes(100_000))])) is None
    turns = 0
    while not ordinary.later:
        take_turn(world)
        turns += 1
    assert ordinary.later[0].error_code == NONE
    assert turns <= (len(bombed) + 1) * WRITER_STEPS_PER_TURN
    assert not any(each.later for each in bombed)


@looked_into
def test_what_is_behind_in_the_same_log_keeps_its_place(
    storage: Storage, world: VirtualWorld, settings: dict[str, Any]
) -> None:
    [bombed] = throw_into(storage, 1, settings)
    for size in (200_000, 10):
        assert bombed.send(batch(values=[(b"k", bytes(size))])) is None
    world.run()
    assert [(result.error_code, result.base_offset) for result in bombed.later] == [
        (NONE, 0),
        (NONE, COUNT),
        (NONE, COUNT + 1),
    ]


@looked_into
def test_stop_does_not_wait_for_it_and_nothing_is_acknowledged(
    make_storage: MakeStorage, world: VirtualWorld, settings: dict[str, Any]
) -> None:
    storage = make_storage()
    bombed = throw_into(storage, 10, settings)
    take_turn(world)
    before = sum(executor.portions for executor in writers(world))
    storage.close()
    assert sum(executor.portions for executor in writers(world)) - before <= 2 * len(bombed)
    assert [[result.error_code for result in each.later] for each in bombed] == [[KAFKA_STORAGE_ERROR]] * 10
    again = make_storage()
    assert [again.log(partition=partition, **settings).log_end_offset for partition in range(10)] == [0] * 10


@looked_into
def test_it_is_given_up_where_the_log_takes_nothing_more(
    storage: Storage, world: VirtualWorld, settings: dict[str, Any]
) -> None:
    [bombed] = throw_into(storage, 1, settings)
    take_turn(world)
    bombed.log.retire()
    for _ in range(2):
        take_turn(world)
    assert [result.error_code for result in bombed.later] == [KAFKA_STORAGE_ERROR]
    assert not any(executor.jobs for executor in writers(world))


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec != Compression.NONE])
@pytest.mark.parametrize("target", ["producer", "gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_memory_does_not_go_by_what_a_batch_is_decompressed(
    storage: Storage, world: VirtualWorld, codec: Compression, target: str
) -> None:
    value = bytes(60_000)
    data = build_batch([(b"k", value)] * 200, timestamp_ms=TIME_MS, compression=codec)
    log = storage.log(cleanup_policy=frozenset({"compact"}), compression_type=target, internal_segment_bytes=1 << 30)
    client = Client(log)
    client.send_now(values=[(b"k", b"v")])  # what is loaded at first need
    assert client.send(bytearray(data)) is None
    largest = before = 0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        while not client.later:
            take_turn(world)
            largest = max(largest, tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    assert [result.error_code for result in client.later] == [MESSAGE_TOO_LARGE if target == "uncompressed" else NONE]
    # Some pieces, and what the topic lets a batch be, twice while it is put together.
    assert largest < 2 * log.config.max_message_bytes + (1 << 20)


def test_records_at_fault_are_counted_and_the_first_of_them_named(storage: Storage, world: VirtualWorld) -> None:
    sender = client(storage, 0, cleanup_policy=frozenset({"compact"}))
    assert sender.send(bytearray(bomb_of(30_000, key=None))) is None
    world.run()
    [result] = sender.later
    assert (result.error_code, result.error_message) == (
        INVALID_RECORD,
        "One or more records have been rejected due to 30000 record errors",
    )
    assert [index for index, _ in result.record_errors] == list(range(RECORD_ERRORS_MAX))

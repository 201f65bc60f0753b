"""Producer ids: duplicates, gaps, epochs, expiry, snapshots, transactions' first offsets."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c
from harness.virtual_world import VirtualWorld

from pybroker.storage.log.producer_snapshot import decode_snapshot, encode_snapshot, latest_snapshot, write_snapshot
from pybroker.storage.results import (
    DUPLICATE_SEQUENCE_NUMBER,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
)
from pybroker.storage.rules.producer_state import ProducerStateEntry, ProducerStateManager
from tests.storage.logs import Client, Storage

LAST = (1 << 31) - 1


@pytest.fixture
def client(storage: Storage) -> Client:
    """A client of one log in which producer 1 has appended sequences 0 to 9, one record each."""
    client = Client(storage.log())
    for sequence in range(10):
        assert client.send_now(producer_id=1, producer_epoch=3, sequence=sequence).error_code == 0
    return client


@pytest.mark.parametrize(
    ("epoch", "sequence", "count", "error_code", "base_offset"),
    [
        (3, 10, 1, 0, 10),  # next in line
        (3, 9, 1, 0, 9),  # a repeat of the last
        (3, 5, 1, 0, 5),  # a repeat of the oldest that is remembered
        (3, 4, 1, DUPLICATE_SEQUENCE_NUMBER, -1),
        (3, 0, 1, DUPLICATE_SEQUENCE_NUMBER, -1),
        (3, 0, 5, DUPLICATE_SEQUENCE_NUMBER, -1),
        (3, 11, 1, OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (3, 9, 2, OUT_OF_ORDER_SEQUENCE_NUMBER, -1),  # overlaps what is there
        (3, LAST, 1, DUPLICATE_SEQUENCE_NUMBER, -1),  # just behind, around the corner
        (2, 10, 1, INVALID_PRODUCER_EPOCH, -1),
        (4, 0, 1, 0, 10),
        (4, 10, 1, OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
    ],
)
def test_sequence_rules(
    client: Client, epoch: int, sequence: int, count: int, error_code: int, base_offset: int
) -> None:
    result = client.send_now(values=[b"v"] * count, producer_id=1, producer_epoch=epoch, sequence=sequence)
    assert (result.error_code, result.base_offset) == (error_code, base_offset)
    assert client.log.log_end_offset == (11 if base_offset == 10 else 10)


def test_unknown_producer_may_begin_with_any_sequence(client: Client) -> None:
    assert client.send_now(producer_id=2, producer_epoch=0, sequence=77).error_code == 0
    assert client.send_now(producer_id=2, producer_epoch=0, sequence=79).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequence_wraps_around(storage: Storage) -> None:
    client = Client(storage.log())
    assert client.send_now(values=[b"v"] * 3, producer_id=1, producer_epoch=0, sequence=LAST - 1).error_code == 0
    assert client.send_now(producer_id=1, producer_epoch=0, sequence=1).base_offset == 3
    repeated = client.send_now(values=[b"v"] * 3, producer_id=1, producer_epoch=0, sequence=LAST - 1)
    assert (repeated.base_offset, repeated.last_offset, client.log.log_end_offset) == (0, 2, 4)


def test_old_epoch_cannot_repeat_what_it_wrote(client: Client) -> None:
    client.send_now(producer_id=1, producer_epoch=4, sequence=0)
    assert client.send_now(producer_id=1, producer_epoch=3, sequence=9).error_code == INVALID_PRODUCER_EPOCH


def test_repeat_of_a_batch_in_flight_is_answered_after_it(storage: Storage, world: VirtualWorld) -> None:
    client = Client(storage.log(internal_segment_bytes=1 << 24))
    for _ in range(2):
        assert client.send(values=[bytes(200_000)], producer_id=1, producer_epoch=0, sequence=0) is None
    world.run()
    assert [result.base_offset for result in client.later] == [0, 0]
    assert client.log.log_end_offset == 1


def test_pipelined_batches_in_flight_count_for_the_sequence(storage: Storage, world: VirtualWorld) -> None:
    client = Client(storage.log(internal_segment_bytes=1 << 24))
    client.send(values=[bytes(200_000)], producer_id=1, producer_epoch=0, sequence=0)
    client.send(producer_id=1, producer_epoch=0, sequence=1)
    assert client.send_now(producer_id=1, producer_epoch=0, sequence=3).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    world.run()
    assert [result.base_offset for result in client.later] == [0, 1]


def test_idle_producer_expires(client: Client, world: VirtualWorld) -> None:
    world.advance(600_001)  # the first look, from which on it is idle
    world.advance(86_399_998)
    assert 1 in client.log.producers.producers
    world.advance(600_001)
    assert 1 not in client.log.producers.producers
    world.clock.pass_ms(1)
    assert client.send_now(producer_id=1, producer_epoch=3, sequence=50).error_code == 0


@pytest.mark.parametrize("end", ["close", "kill"])
def test_producer_of_old_events_is_remembered_as_long_as_any_other(
    make_storage: Callable[..., Storage], world: VirtualWorld, end: str
) -> None:
    years_ago = world.clock.now_ms() - 10 * 365 * 86_400_000
    storage = make_storage()
    client = Client(storage.log())
    for sequence in range(3):
        client.send_now(producer_id=1, producer_epoch=0, sequence=sequence, timestamp=years_ago)
    world.advance(86_400_000 // 2)
    assert client.send_now(producer_id=1, producer_epoch=0, sequence=2, timestamp=years_ago).base_offset == 2
    getattr(storage, end)()
    client = Client(make_storage().log())
    repeated = client.send_now(producer_id=1, producer_epoch=0, sequence=2, timestamp=years_ago)
    assert (repeated.base_offset, client.log.log_end_offset) == (2, 3)


def test_snapshot_is_kafkas_format_byte_for_byte(tmp_path: Path) -> None:
    entry = ProducerStateEntry(4, ((3, 7, 100, 104, 999),), 1234, coordinator_epoch=2, current_txn_first_offset=55)
    data = encode_snapshot({9: entry, 10: ProducerStateEntry(0, (), 5)})
    body = struct.pack(">i", 2)
    body += struct.pack(">qhiqiqiq", 9, 4, 7, 104, 4, 1234, 2, 55)
    body += struct.pack(">qhiqiqiq", 10, 0, -1, -1, 0, 5, -1, -1)
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    decoded = decode_snapshot(data)
    assert decoded is not None
    assert decoded[9].batches == ((3, 7, 100, 104, 1234),)
    assert (decoded[9].producer_epoch, decoded[9].current_txn_first_offset, decoded[10].batches) == (4, 55, ())


def test_corrupt_snapshot_is_removed_and_an_earlier_one_taken(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 10, {1: ProducerStateEntry(0, ((0, 0, 9, 9, 1),), 1)}, sync=False)
    write_snapshot(tmp_path, 20, {}, sync=False)
    path = tmp_path / "00000000000000000020.snapshot"
    for damaged in (b"", path.read_bytes()[:-1], path.read_bytes() + b"x", b"\0\2" + path.read_bytes()[2:]):
        path.write_bytes(damaged)
        found = latest_snapshot(tmp_path, 100)
        assert found is not None
        assert found[0] == 10
        assert not path.exists()
    assert latest_snapshot(tmp_path, 9) is None


def test_snapshots_are_written_at_each_roll(storage: Storage) -> None:
    log = storage.log()
    Client(log).fill(100)
    snapshots = sorted(int(path.stem) for path in log.path.glob("*.snapshot"))
    assert snapshots == [segment.base_offset for segment in log.segments][1:]


def test_last_stable_offset_stops_at_the_first_open_transaction(storage: Storage) -> None:
    log = storage.log()
    client = Client(log)
    client.send(values=[b"plain"])
    for producer_id in (1, 2):
        client.send(attributes=0x10, producer_id=producer_id, producer_epoch=0, sequence=0)
    log.update_high_watermark(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    assert client.send_now(producer_id=1, producer_epoch=0, sequence=1).error_code == INVALID_TXN_STATE
    assert Client(log).end(1, 0, commit=True).error_code == 0
    log.update_high_watermark(4)
    assert log.last_stable_offset == 2
    assert Client(log).end(2, 0, commit=False).error_code == 0
    assert log.last_stable_offset == 2  # decided, but the marker is not replicated yet
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5
    assert [aborted.producer_id for aborted in log.aborted_transactions(0, 5)] == [2]
    assert log.aborted_transactions(0, 2) == []


def test_take_back_undoes_an_update() -> None:
    producers = ProducerStateManager(1 << 40)
    producers.take_back([producers.update(1, 0, 0, 0, 0, 1, False)])
    assert producers.producers == {}
    assert producers.update(1, 0, 0, 0, 0, 1, False) == (1, None, None)
    producers.take_back([producers.update(1, 0, 1, 1, 1, 1, True)])
    assert producers.ongoing_txns == {}
    assert producers.check(1, 0, 1, 0, 0) is None


def test_repeats_of_all_in_flight_are_found_after_a_restart_behind_batches_of_any_size(
    make_storage: Callable[..., Storage],
) -> None:
    storage = make_storage()
    client = Client(storage.log(internal_segment_bytes=1 << 20))
    for sequence in range(5):
        client.send(values=[bytes(90_000)], producer_id=1, producer_epoch=0, sequence=sequence)
        client.send(values=[bytes(90_000)], producer_id=2, producer_epoch=0, sequence=sequence)
    storage.close()
    client = Client(make_storage().log(internal_segment_bytes=1 << 20))
    repeated = [
        client.send_now(values=[bytes(90_000)], producer_id=1, producer_epoch=0, sequence=sequence)
        for sequence in range(5)
    ]
    assert [(each.error_code, each.base_offset) for each in repeated] == [(0, 2 * sequence) for sequence in range(5)]


def test_last_batches_of_producers_are_looked_for_in_the_last_segments_alone(
    make_storage: Callable[..., Storage],
) -> None:
    storage = make_storage()
    client = Client(storage.log(internal_segment_bytes=100_000))
    for sequence in range(100):
        client.send(values=[bytes(9_000)], producer_id=1, producer_epoch=0, sequence=sequence)
    storage.close()
    segments = make_storage().log(internal_segment_bytes=100_000).segments
    is_open = [segments[i].fd >= 0 for i in range(len(segments))]
    assert is_open[-1]
    assert not any(is_open[:2])


def test_state_of_producers_is_found_again_by_replay(make_storage: Callable[..., Storage]) -> None:
    storage = make_storage()
    log = storage.log()
    client = Client(log)
    for sequence in range(30):
        client.send(values=[bytes(500)], producer_id=sequence % 3, producer_epoch=0, sequence=sequence // 3)
    expected = {key: entry.batches for key, entry in log.producers.producers.items()}
    storage.close()
    again = make_storage().log()
    assert {key: entry.batches for key, entry in again.producers.producers.items()} == expected

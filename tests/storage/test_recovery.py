"""Starting again: after a clean stop nothing is read, after a crash everything acknowledged is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from zlib import crc32

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file
from pybroker.storage.files.leader_epoch_cache import LeaderEpochCache
from pybroker.storage.files.offset_index import OffsetIndex
from pybroker.storage.log import recovery
from pybroker.storage.log.log import Log
from pybroker.storage.results import Hole
from pybroker.storage.rules.producer_state import ProducerStateEntry
from tests.storage.batches import batch, parse
from tests.storage.logs import TOPIC_ID, Client, Storage, read_all, read_now

MakeStorage = Callable[..., Storage]


def test_clean_stop_and_start_brings_everything_back(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = make_storage()
    log = storage.log()
    client = Client(log, leader_epoch=3)
    client.fill(50)
    for sequence in range(3):
        client.send(producer_id=9, producer_epoch=1, sequence=sequence)
    log.update_high_watermark(51)
    expected = read_all(log)
    producers = {key: vars_of(entry) for key, entry in log.producers.producers.items()}
    storage.close()
    assert (storage.path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'

    again = make_storage().log()
    assert read_all(again) == expected
    assert (again.log_end_offset, again.high_watermark, again.recovery_point) == (53, 51, 53)
    assert again.leader_epochs.entries == [(3, 0)]
    assert producers[9][0] == again.producers.producers[9].producer_epoch
    assert again.producers.producers[9].batches[-1] == producers[9][1][-1]
    assert not (storage.path / ".kafka_cleanshutdown").exists()


def vars_of(entry: ProducerStateEntry) -> tuple[int, tuple[object, ...]]:
    return entry.producer_epoch, entry.batches


def test_start_after_a_clean_stop_reads_no_segment(make_storage: MakeStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = make_storage()
    Client(storage.log()).fill(50)
    storage.close()

    def refuse(*_: object) -> int:
        raise AssertionError("a file was opened")

    monkeypatch.setattr(os_file, "open_for_append", refuse)
    monkeypatch.setattr(os_file, "pread", refuse)
    assert make_storage().partition_log().opened is None


def test_appends_go_on_after_a_restart(make_storage: MakeStorage) -> None:
    for life in range(4):
        storage = make_storage()
        log = storage.log()
        assert log.log_end_offset == 13 * life
        Client(log, leader_epoch=life).fill(13)
        assert len(read_all(log)) == 13 * (life + 1)
        if life % 2:
            storage.close()
        else:
            storage.kill()
    assert make_storage().log().leader_epochs.entries == [(0, 0), (1, 13), (2, 26), (3, 39)]


def test_every_torn_tail_is_cut_at_the_last_whole_batch(make_storage: MakeStorage, tmp_path: Path) -> None:
    storage = make_storage()
    log = storage.log(internal_segment_bytes=1 << 20)
    client = Client(log)
    client.send(values=[b"first"], producer_id=1, producer_epoch=0, sequence=0)
    client.send(values=[b"second", b"third"], producer_id=1, producer_epoch=0, sequence=1)
    client.send(values=[b"fourth"])
    storage.kill()
    directory = log.path
    data = (directory / "00000000000000000000.log").read_bytes()
    ends = [0]
    for _, _, piece in parse(data):
        ends.append(ends[-1] + len(piece))
    for length in range(len(data) + 1):
        copy = tmp_path / f"copy{length}"
        shutil.copytree(directory, copy)
        os.truncate(copy / "00000000000000000000.log", length)
        end_offset = recovery.recover_partition(copy, 0, 0, 1 << 40).end_offset
        whole = max(end for end in ends if end <= length)
        assert (copy / "00000000000000000000.log").stat().st_size == whole
        assert end_offset == {0: 0, 1: 1, 2: 3, 3: 4}[ends.index(whole)]
        shutil.rmtree(copy)


@pytest.mark.parametrize("garbage", [bytes(5000), b"\xff" * 100, os.urandom(300), b"\0" * 11])
def test_garbage_after_the_data_is_cut(make_storage: MakeStorage, garbage: bytes) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).fill(3)
    expected = read_all(log)
    storage.kill()
    with (log.path / "00000000000000000000.log").open("ab") as file:
        file.write(garbage)
    assert read_all(make_storage().log()) == expected


def test_segments_behind_a_damaged_one_are_dropped(make_storage: MakeStorage) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).fill(100)
    middle = log.segments[1]
    storage.kill()
    with middle.path().open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    again = make_storage().log()
    assert [segment.base_offset for segment in again.segments] == [0, middle.base_offset]
    assert middle.base_offset < again.log_end_offset < middle.base_offset + 10
    assert len(read_all(again)) == again.log_end_offset


def test_recovery_does_not_read_below_the_recovery_point(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).fill(100)
    world.run()
    assert log.recovery_point >= log.active.base_offset
    storage.manager._housekeeping.checkpoint_recovery_points()
    storage.manager._housekeeping.checkpoint_log_starts()
    world.run()
    storage.kill()
    first = log.path / "00000000000000000000.log"
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    again = make_storage().log()
    assert again.log_end_offset == 100
    assert len(again.segments) == len(log.segments)


def test_indexes_are_rebuilt_by_recovery_as_they_were(make_storage: MakeStorage) -> None:
    storage = make_storage()
    log = storage.log(internal_segment_bytes=30_000, index_interval_bytes=4096)
    client = Client(log)
    for i in range(60):
        client.send(values=[bytes(1000)], timestamp=world_time(i))
    storage.close()
    files = {path.name: path.read_bytes() for path in log.path.iterdir() if "index" in path.name}
    for name in files:
        (log.path / name).write_bytes(b"\0\1garbage")
    (storage.path / ".kafka_cleanshutdown").unlink()
    (storage.path / "recovery-point-offset-checkpoint").unlink()
    make_storage().log()
    assert {name: (log.path / name).read_bytes() for name in files} == files


def world_time(i: int) -> int:
    return 1_700_000_000_000 + i * 10 - (i % 3) * 25


@pytest.mark.parametrize("damage", ["missing", "short", "disordered", "beyond"])
def test_damaged_index_of_the_active_segment_is_rebuilt_at_opening(make_storage: MakeStorage, damage: str) -> None:
    storage = make_storage()
    log = storage.log(internal_segment_bytes=1 << 20, index_interval_bytes=4096)
    Client(log).fill(60, size=1000)
    storage.close()
    path = log.path / "00000000000000000000.index"
    good = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(good[:-3])
    elif damage == "disordered":
        path.write_bytes(good[8:16] + good[:8] + good[16:])
    else:
        path.write_bytes(good + b"\x7f\xff\xff\xff\x7f\xff\xff\xff")
    again = make_storage().log(internal_segment_bytes=1 << 20)
    assert again.log_end_offset == 60
    assert path.read_bytes() == good


def test_index_preallocated_by_a_killed_kafka_is_read_without_its_zeros(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(b"\0\0\0\3\0\0\0\x40" + bytes(8 * 1000))
    index = OffsetIndex.load(path, 0, 1000)
    assert index is not None
    assert list(index.entries) == [3 << 32 | 0x40]


def test_producers_survive_a_crash(make_storage: MakeStorage) -> None:
    storage = make_storage()
    client = Client(storage.log())
    for sequence in range(8):
        client.send(values=[bytes(900)], producer_id=5, producer_epoch=2, sequence=sequence)
    storage.kill()
    again = Client(make_storage().log())
    assert again.send_now(producer_id=5, producer_epoch=2, sequence=9).error_code == 45
    repeated = again.send_now(values=[bytes(900)], producer_id=5, producer_epoch=2, sequence=6)
    assert (repeated.error_code, repeated.base_offset, again.log.log_end_offset) == (0, 6, 8)
    assert again.send_now(producer_id=5, producer_epoch=2, sequence=8).base_offset == 8


def test_aborted_transactions_survive_a_crash_without_their_index(make_storage: MakeStorage) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).send(values=[b"x"], attributes=0x10, producer_id=5, producer_epoch=0, sequence=0)
    assert Client(log).end(5, 0, commit=False).error_code == 0
    Client(log).send(values=[b"y"], attributes=0x10, producer_id=6, producer_epoch=0, sequence=0)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 2
    expected = log.aborted_transactions(0, 3)
    storage.kill()
    (log.path / "00000000000000000000.txnindex").unlink()
    again = make_storage().log()
    again.update_high_watermark(3)
    assert again.last_stable_offset == 2
    assert again.aborted_transactions(0, 3) == expected
    assert (expected[0].producer_id, expected[0].first_offset, expected[0].last_offset) == (5, 0, 1)


def test_logs_of_old_message_formats_are_refused_not_cut(
    make_storage: MakeStorage, caplog: pytest.LogCaptureFixture
) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).fill(1)
    storage.kill()
    body = b"\x01\0" + bytes(8) + b"\xff\xff\xff\xff" + b"\0\0\0\x05value"
    message = crc32(body).to_bytes(4, "big") + body
    path = log.path / "00000000000000000000.log"
    old = bytes(8) + len(message).to_bytes(4, "big") + message
    path.write_bytes(old)
    again = make_storage()
    again.log()
    assert again.all_failed
    assert "messages of format 0 or 1" in caplog.text
    assert path.read_bytes() == old


def test_interrupted_swap_of_compacted_segments_is_finished(make_storage: MakeStorage) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).fill(60)
    first, second = log.segments[0], log.segments[1]
    storage.kill()
    compacted = batch([b"kept"], base_offset=0)
    (log.path / "00000000000000000000.log.swap").write_bytes(compacted)
    (log.path / "00000000000000000000.index.swap").write_bytes(b"")
    (log.path / f"{second.base_offset:020d}.log.deleted").write_bytes(b"old")
    (log.path / f"{second.base_offset:020d}.log.cleaned").write_bytes(b"half")
    make_storage().log()
    assert first.path().read_bytes() == compacted
    assert not [path for path in log.path.iterdir() if path.suffix in {".swap", ".deleted", ".cleaned"}]


@pytest.mark.parametrize("seed", range(6))
def test_random_crashes_lose_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    acknowledged: list[int] = []
    contents: dict[int, bytes] = {}
    for life in range(8):
        world = VirtualWorld(seed)
        storage = Storage(tmp_path / "data", world)
        log = storage.log()
        assert log.log_end_offset >= len(acknowledged)
        for base, _, data in read_all(log):
            assert contents.setdefault(base, data[21:]) == data[21:], "an offset was served with two contents"
        acknowledged = list(range(log.log_end_offset))
        client = Client(log, leader_epoch=life)
        for step in range(random.randrange(40)):
            value = b"%d-%d" % (life, step) + random.randbytes(random.choice([10, 500, 3000]))
            result = client.send_now(values=[value])
            if result.error_code == 0:
                acknowledged.append(result.base_offset)
                contents[result.base_offset] = read_bytes(log, result.base_offset)
            if random.random() < 0.1:
                world.run()
        if random.random() < 0.3:
            storage.manager._housekeeping.checkpoint_recovery_points()
            storage.manager._housekeeping.checkpoint_log_starts()
            world.run()
        if random.random() < 0.2:
            storage.close()
        else:
            storage.kill()
            tear(log.active.path(), random)


def read_bytes(log: Log, offset: int) -> bytes:
    return parse(read_now(log, offset, 1, offset + 1).records)[0][2][21:]


def tear(path: Path, random: Random) -> None:
    """Leave a half-written batch that nobody was told about."""
    if path.exists():
        torn = batch([random.randbytes(300)])
        with path.open("ab") as file:
            file.write(torn[: random.randrange(len(torn))])


def test_directory_of_a_topic_deleted_meanwhile_is_put_away(make_storage: MakeStorage) -> None:
    storage = make_storage()
    Client(storage.log()).fill(3)
    storage.close()
    fresh = make_storage().log(topic_id=b"another--topicid")
    assert fresh.log_end_offset == 0
    Client(fresh).fill(1)
    assert (fresh.path / "partition.metadata").exists()


def test_topic_id_is_kept_over_restarts(make_storage: MakeStorage) -> None:
    storage = make_storage()
    Client(storage.log()).fill(3)
    storage.close()
    assert make_storage().log(topic_id=TOPIC_ID).log_end_offset == 3


def test_a_segment_that_ends_before_the_next_one_begins_is_told(make_storage: MakeStorage) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).fill(100)
    path = log.segments[0].path()
    storage.kill()
    *_, (lost, _, piece) = parse(path.read_bytes())
    os.truncate(path, path.stat().st_size - len(piece))
    again = make_storage()
    assert again.log().log_end_offset == 100
    assert again.manager.take_hole("t", 0) == Hole(lost, is_certain=False)
    assert again.manager.take_hole("t", 0) is None


@pytest.mark.parametrize(
    ("known", "found"), [([(0, 0), (1, 2), (2, 3)], [(0, 0), (1, 2), (2, 3)]), ([], [(0, 0), (2, 2)])]
)
def test_leader_epochs_whose_first_batches_were_cleaned_away_begin_where_they_did(
    make_storage: MakeStorage, known: list[tuple[int, int]], found: list[tuple[int, int]]
) -> None:
    """Else a follower that has other records in that place would pass for one that has the same."""
    storage = make_storage()
    log = storage.log()
    for epoch in (0, 0, 1, 2, 2):
        log.append_as_leader(memoryview(batch()), epoch, 13, lambda result: None)
    storage.kill()
    file = log.path / f"{0:020}.log"
    data = file.read_bytes()
    size = len(data) // 5
    file.write_bytes(data[: 2 * size] + data[4 * size :])  # 2 and 3 are superseded
    epochs = LeaderEpochCache(log.path)
    for epoch, start_offset in known:
        epochs.assign(epoch, start_offset)
    epochs.note_changed()
    epochs.write()
    recovery.recover_partition(log.path, 0, 0, 1 << 60)
    after = LeaderEpochCache(log.path)
    after.load()
    assert after.entries == found
    after.path.unlink()
    assert make_storage().log().leader_epochs.entries == [(0, 0), (2, 2)]


def test_a_leader_epoch_whose_first_batches_the_leader_has_cleaned_away_begins_where_the_followers_log_ended(
    make_storage: MakeStorage,
) -> None:
    """Else who still has what a former leader wrote there passes for one that has the same."""
    log = make_storage().log()
    for base_offset, epoch in ((0, 0), (1, 0), (7, 2)):
        result = log.append_as_follower(memoryview(batch(base_offset=base_offset, leader_epoch=epoch)))
        assert result.error_code == 0
    assert log.leader_epochs.entries == [(0, 0), (2, 2)]
    assert log.end_offset_for_epoch(0, 2) == (0, 2)


def test_a_log_that_never_had_a_record_begins_where_it_was_told_to_after_a_kill(make_storage: MakeStorage) -> None:
    """It follows a leader that has deleted all before: who leads there next must not give those offsets out again."""
    storage = make_storage()
    storage.log().truncate_fully_and_start_at(12)
    storage.kill()
    log = make_storage().log()
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)


@pytest.mark.parametrize(("passes_ms", "starts_at"), [(1_000, 7), (0, 0)])
def test_what_was_deleted_stays_deleted_after_a_crash_once_the_starts_interval_is_over(
    make_storage: MakeStorage, world: VirtualWorld, passes_ms: int, starts_at: int
) -> None:
    storage = make_storage(log_flush_start_offset_checkpoint_interval_ms=1_000)
    log = storage.log()
    Client(log).fill(10)
    log.update_high_watermark(10)
    log.increment_log_start_offset(7)
    world.advance(passes_ms)
    world.run()
    storage.kill()

    assert make_storage().log().log_start_offset == starts_at


def test_a_checkpoint_interval_of_zero_is_one_checkpoint_and_not_all_the_time(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    make_storage(
        log_flush_start_offset_checkpoint_interval_ms=0,
        log_flush_offset_checkpoint_interval_ms=0,
        replica_high_watermark_checkpoint_interval_ms=0,
    )
    world.advance(0)
    assert not world.timers.is_due

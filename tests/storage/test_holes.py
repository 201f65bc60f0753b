"""After a crash: what a log lost in its middle is kept apart from what the cleaner took away there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.cleaner import log_cleaner, swap
from pybroker.storage.cleaner.cleaner_checkpoints import CLEANER_OFFSET_CHECKPOINT
from pybroker.storage.dirs.start_rollback import SYNCED_FIRST_FILE
from pybroker.storage.files.checkpoints import (
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from pybroker.storage.log.log import Log
from pybroker.storage.results import Hole
from tests.storage.batches import batch, parse
from tests.storage.cleaner.logs import BACKOFF_MS, Survivor, clean, compacted, put, survivors
from tests.storage.logs import Client, Storage, read_all

MakeStorage = Callable[..., Storage]
CLEANING = {"log_cleaner_backoff_ms": BACKOFF_MS}
SYNCED = {"pybroker_fsync_before_ack": True}
LARGE = bytes(1_500)  # two of them in a segment, and no two segments become one


class Killed(BaseException):
    """The process ended at this very call."""


def lose_end_of(path: Path) -> int:
    """A segment loses its last batch with the power; where that began."""
    *_, (lost, _, piece) = parse(path.read_bytes())
    os.truncate(path, path.stat().st_size - len(piece))
    return lost


def write(log: Log, count: int) -> None:
    """Batches whose acknowledgements the test does not wait for."""
    client = Client(log)
    for i in range(count):
        client.send(values=[b"%06d" % i + bytes(100)])


def with_hole(make_storage: MakeStorage) -> tuple[Path, int]:
    """A data directory with a log that lost the end of its first segment, and where that began."""
    storage = make_storage(**SYNCED)
    log = storage.log()
    write(log, 100)
    storage.kill()
    return storage.path, lose_end_of(log.segments[0].path())


def opened(storage: Storage) -> tuple[Log, Hole | None]:
    """The log after a start, and the hole that was found in it."""
    log = storage.log()
    return log, storage.manager.take_hole("t", 0)


def fill(storage: Storage) -> Log:
    """A compacted log: of the first of three segments nothing stays, of the second all."""
    log = compacted(storage)
    for value in (b"old" + LARGE, b"new" + LARGE):
        for key in (b"a", b"b"):
            put(log, (key, value))
        log.roll()
    put(log, (b"end", b"new"))
    return log


def kill_after_first_swap(storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Clean, and end the process right after the first swap; the recovery points that the disk knew then."""
    known: list[int] = []
    swap_in = swap.swap_in

    def swap_and_die(log: Log, *swapped: Any) -> None:
        known.append(read_offset_checkpoint(storage.path / RECOVERY_POINT_CHECKPOINT).get(("t", 0), 0))
        swap_in(log, *swapped)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(log_cleaner, "swap_in", swap_and_die)
        with pytest.raises(Killed):
            clean(world)
    storage.kill()
    return known


@pytest.mark.parametrize("fsync_before_ack", [True, False])
def test_what_the_cleaner_took_away_is_no_loss_after_a_kill_right_behind_its_first_swap(
    make_storage: MakeStorage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, fsync_before_ack: bool
) -> None:
    storage = make_storage(pybroker_fsync_before_ack=fsync_before_ack, **CLEANING)
    log = fill(storage)
    assert kill_after_first_swap(storage, world, monkeypatch)[0] >= 4
    assert log.segments[0].size == 0
    assert not (storage.path / CLEANER_OFFSET_CHECKPOINT).exists()
    again, hole = opened(make_storage(pybroker_fsync_before_ack=fsync_before_ack))
    assert hole is None
    new = b"new" + LARGE
    assert survivors(again) == [Survivor(2, b"a", new), Survivor(3, b"b", new), Survivor(4, b"end", b"new")]


def test_a_round_whose_recovery_point_does_not_reach_the_disk_swaps_nothing(
    make_storage: MakeStorage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = make_storage(**CLEANING)
    log = fill(storage)

    def refuse(path: Path, *_: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("pybroker.storage.manager.offset_checkpoint.checkpoints.write_offset_checkpoint", refuse)
        clean(world, 2)
    assert len(survivors(log)) == 5
    assert not log.directory.offline
    clean(world, 2)
    assert len(survivors(log)) == 3


def test_a_recovery_point_that_the_disk_knows_is_not_written_again_for_a_round(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    storage = make_storage(**CLEANING)
    log = fill(storage)
    world.run()
    storage.manager._housekeeping.checkpoint_recovery_points()
    world.run()
    put(log, (b"end", b"newer"))
    log.flushes.flush()
    world.run()
    before = (storage.path / RECOVERY_POINT_CHECKPOINT).stat().st_ino
    clean(world)
    assert len(survivors(log)) == 4
    assert (storage.path / RECOVERY_POINT_CHECKPOINT).stat().st_ino == before


def test_a_round_waits_for_the_sync_of_what_a_killed_process_had_only_written(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    storage = make_storage()
    fill(storage)
    storage.kill()
    again = make_storage(**CLEANING)
    log = compacted(again)
    log.update_high_watermark(log.log_end_offset)
    assert log.recovery_point == 0
    clean(world)
    assert len(survivors(log)) == 3
    assert read_offset_checkpoint(again.path / RECOVERY_POINT_CHECKPOINT)["t", 0] >= 4


def test_a_log_that_is_deleted_before_its_round_has_begun_is_not_cleaned(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    storage = make_storage(**CLEANING)
    log = fill(storage)
    cleaner = storage.manager._cleaner()
    cleaner.start()
    assert cleaner.is_cleaning(log.path)
    storage.manager.delete("t", log.topic_id or b"", 1)
    clean(world)
    assert not cleaner.is_cleaning(log.path)
    assert not log.directory.offline


def test_what_is_missing_below_the_logs_start_is_no_loss(make_storage: MakeStorage) -> None:
    path, lost = with_hole(make_storage)
    write_offset_checkpoint(path / "log-start-offset-checkpoint", {("t", 0): lost + 1}, sync=False)
    log, hole = opened(make_storage())
    assert hole is None
    assert log.log_start_offset == lost + 1


def test_what_is_missing_behind_a_segment_that_was_cleaned_is_no_loss(make_storage: MakeStorage) -> None:
    path, _ = with_hole(make_storage)
    write_offset_checkpoint(path / CLEANER_OFFSET_CHECKPOINT, {("t", 0): 1}, sync=False)
    assert opened(make_storage())[1] is None


def test_a_loss_behind_what_was_cleaned_is_found(make_storage: MakeStorage) -> None:
    storage = make_storage(**SYNCED)
    log = storage.log()
    write(log, 100)
    storage.kill()
    lose_end_of(log.segments[0].path())
    lost = lose_end_of(log.segments[1].path())
    clean_offset = log.segments[1].base_offset
    write_offset_checkpoint(storage.path / CLEANER_OFFSET_CHECKPOINT, {("t", 0): clean_offset}, sync=False)
    assert opened(make_storage())[1] == Hole(lost, is_certain=True)


def test_a_loss_is_not_certain_where_another_cleaner_was_at_work_before_the_crash(make_storage: MakeStorage) -> None:
    path, lost = with_hole(make_storage)
    (path / SYNCED_FIRST_FILE).unlink()
    assert opened(make_storage())[1] == Hole(lost, is_certain=False)


def test_a_loss_is_not_certain_where_the_recovery_points_are_damaged(make_storage: MakeStorage) -> None:
    path, lost = with_hole(make_storage)
    (path / RECOVERY_POINT_CHECKPOINT).write_text("0\n3\n")
    assert opened(make_storage())[1] == Hole(lost, is_certain=False)


def test_what_was_synced_first_is_known_from_the_first_start_or_a_clean_stop_on(make_storage: MakeStorage) -> None:
    storage = make_storage(**SYNCED)
    mark = storage.path / SYNCED_FIRST_FILE
    found = [mark.exists()]
    write(storage.log(), 1)
    storage.close()
    found.append(mark.exists())
    make_storage(**SYNCED).kill()
    found.append(mark.exists())
    mark.unlink()
    make_storage(**SYNCED).close()
    found.append(mark.exists())
    make_storage(**SYNCED)
    found.append(mark.exists())
    assert found == [True, False, True, False, True]


def test_a_run_whose_acknowledgements_wait_for_no_syncs_ends_what_was_known(make_storage: MakeStorage) -> None:
    storage = make_storage(**SYNCED)
    mark = storage.path / SYNCED_FIRST_FILE
    write(storage.log(), 1)
    storage.kill()
    make_storage().kill()
    assert not mark.exists()
    make_storage(**SYNCED).kill()
    assert not mark.exists()


def test_recovery_points_that_were_damaged_end_what_was_known(make_storage: MakeStorage) -> None:
    path, lost = with_hole(make_storage)
    (path / RECOVERY_POINT_CHECKPOINT).write_text("0\n3\n")
    make_storage(**SYNCED).kill()
    assert not (path / SYNCED_FIRST_FILE).exists()
    assert opened(make_storage(**SYNCED))[1] == Hole(lost, is_certain=False)


def test_a_hole_outlives_a_clean_stop_before_its_log_was_opened(make_storage: MakeStorage) -> None:
    """A start may be refused, for its port or its metadata store, after the recovery."""
    _, lost = with_hole(make_storage)
    make_storage(**SYNCED).close()
    again = make_storage(**SYNCED)
    assert opened(again)[1] == Hole(lost, is_certain=True)
    again.close()
    assert (again.path / ".kafka_cleanshutdown").exists()


def test_a_follower_lacks_nothing_where_its_leader_had_cleaned_and_a_segment_begins(make_storage: MakeStorage) -> None:
    storage = make_storage()
    log = storage.log()
    for base_offset in (0, 1, 7, 8):
        result = log.append_as_follower(memoryview(batch([LARGE], base_offset=base_offset, leader_epoch=0)))
        assert result.error_code == 0
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    storage.kill()
    again, hole = opened(make_storage())
    assert hole is None
    assert [base_offset for base_offset, _, _ in read_all(again)] == [0, 1, 7, 8]


def test_a_follower_lacks_nothing_where_its_leader_had_cleaned_more_than_a_segment_can_name(
    make_storage: MakeStorage,
) -> None:
    far = (1 << 31) + 10
    storage = make_storage()
    log = storage.log()
    for base_offset in (0, 1, far):
        result = log.append_as_follower(memoryview(batch([b"v"], base_offset=base_offset, leader_epoch=0)))
        assert result.error_code == 0
    assert [segment.base_offset for segment in log.segments] == [0, far]
    storage.kill()
    again, hole = opened(make_storage())
    assert hole is None
    assert [base_offset for base_offset, _, _ in read_all(again)] == [0, 1, far]

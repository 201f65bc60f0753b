"""A topic is deleted and another made under its name: nothing that the log directory's checkpoints say of the first
counts for the second, wherever a crash comes in between, and nobody pays for that but who has to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import checkpoints
from pybroker.storage.log.log import Log
from tests.storage.logs import TOPIC_ID, Client, Storage, read_all

MakeStorage = Callable[..., Storage]
ANOTHER_ID = b"fedcba9876543210"
NAMES = (
    checkpoints.RECOVERY_POINT_CHECKPOINT,
    checkpoints.LOG_START_OFFSET_CHECKPOINT,
    checkpoints.HIGH_WATERMARK_CHECKPOINT,
)


def on_disk(storage: Storage) -> list[dict[tuple[str, int], int]]:
    """What the three checkpoints say."""
    return [checkpoints.read_offset_checkpoint(storage.path / name) for name in NAMES]


def checkpointed_log(storage: Storage, topic: str = "t", start: int = 30) -> Log:
    """A log of 50 records that begins in the middle of a segment, as all checkpoints say."""
    log = storage.log(topic, internal_segment_bytes=1 << 20)
    Client(log).fill(50)
    log.update_high_watermark(50)
    assert log.increment_log_start_offset(start) == 0
    log.flushes.flush()
    storage.world.run()
    storage.manager._housekeeping.checkpoint_recovery_points()
    storage.manager._housekeeping.checkpoint_log_starts()
    storage.manager._housekeeping.checkpoint_high_watermarks()
    storage.world.run()
    assert [offsets[topic, 0] for offsets in on_disk(storage)] == [50, start, 50]
    return log


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the offset checkpoints that are written from now on."""
    names: list[str] = []
    write = checkpoints.write_offset_checkpoint

    def noted(path: Path, *rest: Any) -> None:
        names.append(path.name)
        write(path, *rest)

    monkeypatch.setattr(checkpoints, "write_offset_checkpoint", noted)
    return names


@pytest.mark.parametrize("start", [30, 5], ids=["a start past the new end", "a start below the new end"])
@pytest.mark.parametrize("flusher_works", [True, False])
def test_new_topic_keeps_its_records_in_a_crash(
    make_storage: MakeStorage, world: VirtualWorld, start: int, flusher_works: bool
) -> None:
    storage = make_storage()
    checkpointed_log(storage, start=start)
    storage.manager.delete("t", TOPIC_ID, 10)
    if flusher_works:
        world.advance(0)
        assert [("t", 0) in offsets for offsets in on_disk(storage)] == [False] * 3
    Client(storage.log(topic_id=ANOTHER_ID)).fill(20)
    storage.kill()
    again = make_storage()
    log = again.log(topic_id=ANOTHER_ID)
    assert (log.log_start_offset, log.log_end_offset, len(read_all(log))) == (0, 20, 20)


def test_new_topic_is_recovered_from_its_beginning(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = make_storage()
    checkpointed_log(storage)
    storage.manager.delete("t", TOPIC_ID, 10)
    log = storage.log(topic_id=ANOTHER_ID)
    Client(log).fill(60)
    bases = [segment.base_offset for segment in log.segments]
    assert bases[-1] > bases[1] > 0
    storage.kill()
    damaged = storage.path / "t-0" / f"{bases[1]:020}.log"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    log = make_storage().log(topic_id=ANOTHER_ID)
    assert bases[1] < log.log_end_offset < bases[2]
    assert log.recovery_point == 0


def test_checkpoint_that_was_on_its_way_does_not_come_after_the_one_without_the_topic(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    storage = make_storage()
    log = checkpointed_log(storage)
    assert log.increment_log_start_offset(40) == 0
    storage.manager._housekeeping.checkpoint_recovery_points()
    storage.manager._housekeeping.checkpoint_log_starts()  # waits for the flusher
    storage.manager.delete("t", TOPIC_ID, 10)
    Client(storage.log(topic_id=ANOTHER_ID)).fill(20)
    world.executor("flusher").work()
    assert [("t", 0) in offsets for offsets in on_disk(storage)] == [False] * 3
    storage.kill()
    assert len(read_all(make_storage().log(topic_id=ANOTHER_ID))) == 20


def test_crash_before_the_checkpoints_are_written_leaves_nothing_to_the_new_topic(make_storage: MakeStorage) -> None:
    storage = make_storage()
    checkpointed_log(storage)
    storage.manager.delete("t", TOPIC_ID, 10)
    storage.kill()
    again = make_storage()
    log = again.log(topic_id=ANOTHER_ID)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    Client(log).fill(20)
    again.kill()
    assert len(read_all(make_storage().log(topic_id=ANOTHER_ID))) == 20


def test_stray_leaves_its_namesake_alone(make_storage: MakeStorage) -> None:
    storage = make_storage()
    checkpointed_log(storage)
    storage.kill()
    again = make_storage()
    again.manager.settle(lambda topic, index: None)
    Client(again.log(topic_id=ANOTHER_ID)).fill(20)
    again.kill()
    assert len(read_all(make_storage().log(topic_id=ANOTHER_ID))) == 20


def test_topic_that_is_deleted_twice_between_two_checkpoints_leaves_nothing(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    storage = make_storage()
    checkpointed_log(storage)
    storage.manager.delete("t", TOPIC_ID, 10)
    log = storage.log(topic_id=ANOTHER_ID, internal_segment_bytes=1 << 20)
    Client(log).fill(50)
    log.update_high_watermark(50)
    log.increment_log_start_offset(45)
    storage.manager._housekeeping.checkpoint_recovery_points()
    storage.manager._housekeeping.checkpoint_log_starts()
    world.executor("flusher").work()  # its completion is not delivered
    storage.manager.delete("t", ANOTHER_ID, 10)
    Client(storage.log()).fill(20)
    storage.kill()
    assert len(read_all(make_storage().log())) == 20


def test_checkpoints_are_written_once_for_all_that_is_deleted_at_once(
    storage: Storage, world: VirtualWorld, written: list[str]
) -> None:
    for topic in ("a", "b", "c"):
        checkpointed_log(storage, topic)
    written.clear()
    for topic in ("a", "b"):
        storage.manager.delete(topic, TOPIC_ID, 10)
    assert written == []
    world.advance(0)
    assert sorted(written) == sorted(NAMES)
    assert [list(offsets) for offsets in on_disk(storage)] == [[("c", 0)]] * 3


def test_no_checkpoint_is_written_for_a_topic_that_none_names(
    storage: Storage, world: VirtualWorld, written: list[str]
) -> None:
    checkpointed_log(storage, "gone")
    Client(storage.log("short")).fill(1)
    written.clear()
    storage.manager.delete("short", TOPIC_ID, 10)
    Client(storage.log("short", topic_id=ANOTHER_ID)).fill(1)
    world.advance(0)
    assert written == []
    storage.manager.delete("gone", TOPIC_ID, 10)
    world.advance(0)
    written.clear()
    Client(storage.log("gone", topic_id=ANOTHER_ID)).fill(1)
    assert written == []


def test_offsets_that_a_crash_took_are_not_given_out_again_after_retention_has_looked(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    storage = make_storage()
    log = checkpointed_log(storage)
    path = log.active.path()
    storage.kill()
    with path.open("r+b") as file:
        file.truncate(0)
    (storage.path / checkpoints.RECOVERY_POINT_CHECKPOINT).unlink()
    again = make_storage()
    again.manager.open_unused = again.partition_log
    again.manager._housekeeping.check_retention()
    again.manager._housekeeping.checkpoint_recovery_points()
    again.manager._housekeeping.checkpoint_log_starts()
    world.run()
    again.kill()
    assert make_storage().log().log_end_offset == 30

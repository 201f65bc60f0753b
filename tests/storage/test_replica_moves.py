"""Moves of replicas between log directories: what is copied, how the copies change places, and who notices what."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file
from pybroker.storage.log.log import Log
from pybroker.storage.manager.replica_move import ReplicaMove
from pybroker.storage.manager.replica_moves import THROTTLE
from pybroker.storage.results import KAFKA_STORAGE_ERROR, LOG_DIR_NOT_FOUND, NONE
from tests.storage.batches import batch
from tests.storage.logs import TOPIC_ID, Client, Storage, read_all, small_config

KEY = ("t", 0)


def other_dir(storage: Storage, log: Log) -> Path:
    """The log directory in which the log does not lie."""
    (found,) = (state.directory.path for state in storage.manager._states if state.directory.path != log.directory.path)
    return found


def move(storage: Storage, log: Log, to: Path | None = None) -> int:
    partition_log = storage.manager.get(log.topic, log.partition)
    assert partition_log is not None
    return storage.manager.moves.move(partition_log, str(to or other_dir(storage, log)))


def finish(storage: Storage, world: VirtualWorld) -> None:
    """Let all moves come to their end."""
    for _ in range(1000):
        world.run()
        if not storage.manager.moves._moves and not storage.manager.moves._executors:
            return
        world.advance(100)
    raise AssertionError("the moves do not end")


def step(world: VirtualWorld) -> None:
    """Let the mover's thread have a portion; where it has nothing to do, the others, or the loop."""
    executor = world.executors["log-mover-0"]
    if executor.jobs:
        executor.work()
        executor.deliver()
    elif not [other for other in list(world.executors.values()) if other.run()]:
        world.step()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


def moves_executor(world: VirtualWorld) -> Any:
    return world.executors["log-mover-0"]


@pytest.fixture
def storage(make_storage: Callable[..., Storage]) -> Storage:
    """Over two log directories."""
    return make_storage(dirs=2)


@pytest.fixture
def filled(storage: Storage) -> Log:
    """A log of several segments."""
    log = storage.log()
    Client(log).fill(100)
    assert len(log.segments) > 2
    return log


def test_a_log_lies_in_the_other_directory_with_all_that_it_held(
    storage: Storage, world: VirtualWorld, filled: Log, make_storage: Callable[..., Storage]
) -> None:
    source, target = filled.directory.path, other_dir(storage, filled)
    before = read_all(filled)
    files = {path.name: path.read_bytes() for path in filled.path.iterdir()}
    assert move(storage, filled) == NONE
    finish(storage, world)
    assert filled.path == target / "t-0"
    assert read_all(filled) == before
    for name, content in files.items():
        if int(name[:20] if name[:20].isdigit() else -1) != filled.active.base_offset or name.endswith(".log"):
            assert (filled.path / name).read_bytes() == content, name
    Client(filled).fill(30)
    world.advance(100_000)
    assert (names(source), names(target)) == ([], ["t-0"])
    after = read_all(filled)
    storage.close()
    again = make_storage(dirs=2).log()
    assert again.path == target / "t-0"
    assert read_all(again) == after


def test_what_is_appended_while_it_is_copied_comes_along(storage: Storage, world: VirtualWorld, filled: Log) -> None:
    client = Client(filled)
    move(storage, filled)
    while storage.manager.moves._executors:
        if filled.mirror is not None and filled.log_end_offset < 300:
            client.send(values=[bytes(100)])
        step(world)
    world.run()
    assert filled.log_end_offset > 110
    assert storage.manager._places[KEY].directory is filled.directory
    assert [base for base, _, _ in read_all(filled)] == list(range(filled.log_end_offset))
    assert all(result.error_code == 0 for result in client.later)


def test_appends_wait_for_the_exchange_and_go_on_in_the_new_place(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log()
    client = Client(log)
    client.fill(1)
    move(storage, log)
    assert log.queue.busy
    assert client.send() is None
    finish(storage, world)
    assert [result.error_code for result in client.later] == [0]
    assert log.log_end_offset == 2
    assert (log.path / f"{0:020d}.log").stat().st_size == log.size_bytes


def test_a_log_that_was_never_written_to_takes_its_place_at_once(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log()
    target = other_dir(storage, log)
    assert move(storage, log) == NONE
    assert log.directory.path == target
    Client(log).fill(1)
    world.advance(1)
    assert names(target) == ["t-0"]


@pytest.mark.parametrize("fails_in", ["source", "target"])
def test_an_empty_logs_directory_that_cannot_be_renamed_takes_its_own_log_dir_offline_and_stays(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, fails_in: str
) -> None:
    log = storage.log()
    move(storage, log)  # from now on it has a directory
    source, target = log.path, other_dir(storage, log) / "t-0"
    rename = os_file.rename

    def failing(path: Any, new_path: Any) -> None:
        if source == path if fails_in == "source" else target == new_path:
            raise OSError(errno.EIO, "the disk is broken")
        rename(path, new_path)

    monkeypatch.setattr(os_file, "rename", failing)
    move(storage, log)
    world.run()
    offline = [state.directory.path for state in storage.manager._states if state.directory.offline]
    assert offline == [(source if fails_in == "source" else target).parent]
    assert names(source.parent) == ["t-0"]


def test_its_own_directory_as_target_cancels_a_move(storage: Storage, world: VirtualWorld, filled: Log) -> None:
    source, target = filled.directory.path, other_dir(storage, filled)
    move(storage, filled)
    assert [name.rpartition("-")[2] for name in names(target)] == ["future"]
    assert move(storage, filled, source) == NONE
    finish(storage, world)
    world.advance(1)
    assert (filled.path, names(target)) == (source / "t-0", [])
    assert filled.mirror is None
    assert Client(filled).send_now().error_code == 0


def test_only_absolute_paths_of_log_directories_that_work_are_targets(storage: Storage, filled: Log) -> None:
    moves = storage.manager.moves
    assert moves.log_dir_error("/nowhere") == LOG_DIR_NOT_FOUND
    assert moves.log_dir_error(filled.directory.path.name) == LOG_DIR_NOT_FOUND
    assert moves.log_dir_error(str(filled.directory.path)) == NONE
    storage.manager._states[1].directory.fail(OSError(), "a test")
    assert moves.log_dir_error(str(storage.manager._states[1].directory.path)) == KAFKA_STORAGE_ERROR


def test_no_move_begins_while_a_log_directory_is_offline(make_storage: Callable[..., Storage]) -> None:
    storage = make_storage(dirs=3)
    log = storage.log()
    others = [state for state in storage.manager._states if state.directory is not log.directory]
    others[0].directory.fail(OSError(), "a test")
    assert move(storage, log, others[1].directory.path) == KAFKA_STORAGE_ERROR
    assert move(storage, log, log.directory.path) == NONE


def test_a_partition_that_is_not_here_yet_begins_where_it_is_preferred(storage: Storage) -> None:
    first, second = (state.directory for state in storage.manager._states)
    told: list[tuple[tuple[bytes, int], bytes]] = []
    storage.manager.on_replica_moved = lambda partition, directory: told.append((partition, directory))
    storage.manager.moves.prefer(KEY, str(second.path))
    log = storage.manager.open("t", TOPIC_ID, 0, small_config(), first.directory_id)
    assert log is not None
    assert log.directory is second
    assert told == [((TOPIC_ID, 0), second.directory_id)]


def test_the_metadata_hears_where_the_log_lies_once_it_does(storage: Storage, world: VirtualWorld, filled: Log) -> None:
    told: list[tuple[tuple[bytes, int], bytes]] = []
    storage.manager.on_replica_moved = lambda partition, directory: told.append((partition, directory))
    move(storage, filled)
    assert told == []
    finish(storage, world)
    assert told == [((TOPIC_ID, 0), filled.directory.directory_id)]


def test_a_move_is_described_as_a_future_replica_that_lags(storage: Storage, world: VirtualWorld, filled: Log) -> None:
    target = other_dir(storage, filled)

    def futures() -> list[tuple[str, int, int]]:
        return [
            (described.path, partition.size_bytes, partition.offset_lag)
            for described in storage.describe()
            for partition in described.partitions
            if partition.is_future
        ]

    move(storage, filled)
    assert futures() == [(str(target), 0, filled.log_end_offset)]
    first = filled.segments[0]
    while not (moved := futures())[0][1]:
        moves_executor(world).work()
        moves_executor(world).deliver()
    assert moved == [(str(target), first.size, filled.log_end_offset - filled.segments[1].base_offset)]
    finish(storage, world)
    assert futures() == []


def test_a_start_goes_on_with_a_move_that_a_kill_interrupted(
    storage: Storage, world: VirtualWorld, filled: Log, make_storage: Callable[..., Storage]
) -> None:
    target, before = other_dir(storage, filled), read_all(filled)
    filled.flushes.flush_now(sync=False)
    move(storage, filled)
    (future,) = target.glob("*-future")
    while len(copied := list(future.glob("*.log"))) < 3:
        step(world)
    # What a power failure made of a copy is put right, too.
    min(copied).write_bytes(b"torn")
    storage.kill()
    storage = make_storage(dirs=2)
    storage.manager.settle(lambda topic, partition: (TOPIC_ID, None))
    log = storage.log()
    assert log.directory.path != target
    world.advance(1)
    finish(storage, world)
    assert log.path == target / "t-0"
    assert read_all(log) == before
    assert names(target) == ["t-0"]


def test_the_move_of_a_partition_that_nobody_asks_for_goes_on(
    storage: Storage, world: VirtualWorld, filled: Log, make_storage: Callable[..., Storage]
) -> None:
    target = other_dir(storage, filled)
    move(storage, filled)
    storage.close()
    storage = make_storage(dirs=2)
    storage.manager.open_unused = storage.partition_log
    storage.manager.settle(lambda topic, partition: (TOPIC_ID, None))
    world.advance(2000)
    finish(storage, world)
    assert storage.log().path == target / "t-0"


def test_a_move_of_a_deleted_topic_is_given_up(storage: Storage, world: VirtualWorld, filled: Log) -> None:
    source, target = filled.directory.path, other_dir(storage, filled)
    move(storage, filled)
    moves_executor(world).work()
    storage.manager.delete("t", TOPIC_ID, 1)
    finish(storage, world)
    world.advance(100_000)
    assert names(source) == names(target) == []


def test_a_move_of_a_topic_that_a_start_does_not_know_is_removed(
    storage: Storage, world: VirtualWorld, filled: Log, make_storage: Callable[..., Storage]
) -> None:
    target = other_dir(storage, filled)
    move(storage, filled)
    storage.kill()
    storage = make_storage(dirs=2)
    storage.manager.settle(lambda topic, partition: None)
    world.advance(1)
    assert names(target) == []


def test_a_target_that_fails_leaves_the_log_where_it_is(
    storage: Storage, world: VirtualWorld, filled: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = other_dir(storage, filled)
    failed: list[bytes] = []
    storage.manager.on_directory_failed = failed.append
    move(storage, filled)
    real = os_file.open_for_append

    def broken(path: Any, create: bool = True) -> int:
        if str(path).startswith(str(target)):
            raise OSError(errno.EIO, "a test")
        return real(path, create)

    monkeypatch.setattr(os_file, "open_for_append", broken)
    finish(storage, world)
    assert len(failed) == 1
    assert Client(filled).send_now().error_code == 0
    assert filled.directory.path != target
    assert len(read_all(filled)) == 101


def test_a_source_that_fails_takes_the_log_offline_and_the_next_start_goes_on(
    storage: Storage, world: VirtualWorld, filled: Log, make_storage: Callable[..., Storage]
) -> None:
    target = other_dir(storage, filled)
    filled.flushes.flush_now(sync=False)
    move(storage, filled)
    moves_executor(world).work()
    filled.directory.fail(OSError(errno.EIO, "a test"), "a test")
    finish(storage, world)
    assert Client(filled).send_now().error_code == KAFKA_STORAGE_ERROR
    storage.kill()
    storage = make_storage(dirs=2)
    storage.manager.settle(lambda topic, partition: (TOPIC_ID, None))
    log = storage.log()
    world.advance(1)
    finish(storage, world)
    assert log.path == target / "t-0"
    assert len(read_all(log)) == 100


def test_a_target_without_room_is_tried_again(
    storage: Storage, world: VirtualWorld, filled: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = other_dir(storage, filled)
    real = os_file.pwrite
    full = [True]

    def pwrite(fd: int, data: Any, position: int) -> int:
        if full[0] and "-future" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, "a test")
        return real(fd, data, position)

    assert move(storage, filled) == NONE
    monkeypatch.setattr(os_file, "pwrite", pwrite)
    world.advance(5000)
    assert filled.directory.path != target
    assert Client(filled).send_now().error_code == 0
    full[0] = False
    finish(storage, world)
    assert filled.path == target / "t-0"


def test_a_cut_of_the_end_is_not_undone_by_what_was_copied_before(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.storage.manager.replica_moves.MOVE_TAIL_BYTES_MAX", 0)
    log = storage.log(internal_segment_bytes=1 << 20)
    client = Client(log)
    client.fill(50)
    move(storage, log)
    executor = moves_executor(world)
    executor.work()  # copies all of it
    log.truncate_to(10)
    for number in range(40):  # as long as before, and other bytes
        client.send_now(values=[b"other %d" % (number % 10) + bytes(99)])
    expected = read_all(log)
    finish(storage, world)
    assert log.path == other_dir(storage, log).parent / log.directory.path.name / "t-0"
    assert read_all(log) == expected
    assert (log.path / f"{0:020d}.log").read_bytes()[-30:-1]


def test_segments_that_retention_takes_meanwhile_are_not_there_afterwards(
    storage: Storage, world: VirtualWorld, filled: Log
) -> None:
    move(storage, filled)
    (future,) = other_dir(storage, filled).glob("*-future")
    while len(list(future.glob("*.log"))) < 3:
        step(world)
    filled.update_high_watermark(filled.log_end_offset)
    assert filled.increment_log_start_offset(filled.segments[2].base_offset) == 0
    assert filled.apply_retention() == 2
    finish(storage, world)
    bases = sorted(int(path.stem) for path in filled.path.glob("*.log"))
    assert bases == [segment.base_offset for segment in filled.segments]
    assert read_all(filled)[0][0] == filled.log_start_offset


def test_the_checkpoints_move_with_the_log(
    storage: Storage, world: VirtualWorld, filled: Log, make_storage: Callable[..., Storage]
) -> None:
    filled.update_high_watermark(90)
    filled.increment_log_start_offset(33)
    move(storage, filled)
    finish(storage, world)
    assert filled.recovery_point == filled.log_end_offset
    storage.kill()
    storage = make_storage(dirs=2)
    log = storage.log()
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (33, 90, 100)
    held = [key for state in storage.manager._states for key in state.recovery_points.offsets]
    assert held == [KEY]


def test_views_of_readers_stay_good_while_the_former_files_go(
    storage: Storage, world: VirtualWorld, filled: Log
) -> None:
    views = [filled.segments[0].readable()[: filled.segments[0].size], filled.active.readable()[: filled.active.size]]
    before = [bytes(view) for view in views]
    move(storage, filled)
    finish(storage, world)
    world.advance(100_000)
    assert [bytes(view) for view in views] == before
    filled.truncate_to(filled.active.base_offset + 1)
    assert [bytes(view) for view in views] == before


def test_moves_beyond_the_threads_wait_for_their_turn(
    make_storage: Callable[..., Storage], world: VirtualWorld
) -> None:
    storage = make_storage(dirs=2, num_replica_alter_log_dirs_threads=1)
    logs = [storage.log(partition=index) for index in range(4)]
    targets = []
    for log in logs:
        Client(log).fill(50)
        targets.append(other_dir(storage, log))
        assert move(storage, log) == NONE
        assert list(targets[-1].glob(f"t-{log.partition}.*-future"))
    assert len([name for name in world.executors if "mover" in name]) == 1
    assert sum(log.mirror is not None for log in logs) == 1
    finish(storage, world)
    assert [log.directory.path for log in logs] == targets


def test_the_throttle_is_kept(make_storage: Callable[..., Storage], world: VirtualWorld) -> None:
    storage = make_storage(dirs=2)
    storage.manager._config.apply_dynamic({}, {THROTTLE: "10000"})
    log = storage.log(internal_segment_bytes=8192)
    Client(log).fill(400)
    begun_ms = world.clock.now_ms()
    move(storage, log)
    finish(storage, world)
    expected_ms = log.size_bytes / 10
    assert expected_ms - 1500 <= world.clock.now_ms() - begun_ms <= expected_ms + 500


def test_a_log_is_not_cleaned_while_it_is_copied(storage: Storage, world: VirtualWorld, filled: Log) -> None:
    partition_log = storage.manager.get(*KEY)
    assert partition_log is not None
    move(storage, filled)
    assert partition_log.is_moving
    assert storage.manager._cleaner()._examine(partition_log) == []
    partition_log.shut()
    assert partition_log.opened is filled
    finish(storage, world)
    assert not partition_log.is_moving


def test_the_cleaner_s_offsets_move_with_the_log(storage: Storage, world: VirtualWorld, filled: Log) -> None:
    source, checkpoints = filled.directory, storage.manager._cleaner()._checkpoints
    checkpoints.set(source, KEY, 42)
    move(storage, filled)
    finish(storage, world)
    assert checkpoints.of(source) == {}
    assert checkpoints.of(filled.directory) == {KEY: 42}


def test_a_transaction_goes_on_over_a_move(
    storage: Storage, world: VirtualWorld, make_storage: Callable[..., Storage]
) -> None:
    log = storage.log()
    client = Client(log)
    fields: dict[str, Any] = {"attributes": 0x10, "producer_id": 5, "producer_epoch": 0}
    client.send_now(batch(sequence=0, **fields), sequence=0, **fields)
    client.end(5, 0, commit=False)
    client.send_now(batch(sequence=1, **fields), sequence=1, **fields)
    move(storage, log)
    finish(storage, world)
    assert log.producers.ongoing_txns
    client.end(5, 0, commit=False)
    aborted = [list(segment.txn_index.entries) for segment in log.segments]
    storage.close()
    log = make_storage(dirs=2).log()
    assert [list(segment.txn_index.entries) for segment in log.segments] == aborted
    assert sum(map(len, aborted)) == 2


def test_a_log_may_come_back(storage: Storage, world: VirtualWorld, filled: Log) -> None:
    home = filled.directory.path
    for _ in range(3):
        move(storage, filled)
        finish(storage, world)
        Client(filled).fill(5)
    move(storage, filled, home)
    finish(storage, world)
    assert filled.path == home / "t-0"
    assert len(read_all(filled)) == 115


def test_its_former_directory_may_fail_once_a_log_has_moved(storage: Storage, world: VirtualWorld, filled: Log) -> None:
    source, target = filled.directory, other_dir(storage, filled)
    move(storage, filled)
    while filled.directory is source:
        step(world)
    assert [partition.is_future for each in storage.describe() for partition in each.partitions] == [False]
    source.fail(OSError(errno.EIO, "a test"), "a test")
    world.run()
    assert filled.path == target / "t-0"
    assert Client(filled).send_now().error_code == 0


def test_a_clean_stop_ends_moves_and_the_next_start_goes_on(
    storage: Storage, world: VirtualWorld, filled: Log, make_storage: Callable[..., Storage]
) -> None:
    target = other_dir(storage, filled)
    move(storage, filled)
    moves_executor(world).work()
    storage.close()
    storage = make_storage(dirs=2)
    storage.manager.settle(lambda topic, partition: (TOPIC_ID, None))
    log = storage.log()
    world.advance(1)
    finish(storage, world)
    assert (log.path, len(read_all(log))) == (target / "t-0", 100)


@pytest.fixture
def synced_moves(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories that are synced from now on, and the renames, in order."""
    happened: list[str] = []
    real_sync, real_rename = os_file.sync_path, os_file.rename

    def sync_path(path: Any) -> None:
        happened.append(f"sync {Path(path).name}")
        real_sync(path)

    def rename(path: Any, target: Any) -> None:
        happened.append(f"rename {Path(path).name[:3]} {Path(target).name.rpartition('-')[2]}")
        real_rename(path, target)

    monkeypatch.setattr(os_file, "sync_path", sync_path)
    monkeypatch.setattr(os_file, "rename", rename)
    return happened


def test_each_rename_is_synced_before_the_next_thing_happens(
    storage: Storage, world: VirtualWorld, filled: Log, synced_moves: list[str]
) -> None:
    source, target = filled.directory.path.name, other_dir(storage, filled).name
    move(storage, filled)
    finish(storage, world)
    wanted = [f"sync {target}", "rename t-0 moved", f"sync {source}", "rename t-0 0", f"sync {target}"]
    at = -1
    for step in wanted:
        at = synced_moves.index(step, at + 1)


def interrupted(storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    """Kill the broker after the source's rename."""

    def dies(self: ReplicaMove) -> None:
        raise InterruptedError

    monkeypatch.setattr(ReplicaMove, "_take_place", dies)
    move(storage, log)
    with pytest.raises(InterruptedError):
        finish(storage, world)
    monkeypatch.undo()
    storage.kill()


def test_a_start_finishes_what_was_decided(
    storage: Storage,
    world: VirtualWorld,
    filled: Log,
    make_storage: Callable[..., Storage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target, before = filled.directory.path, other_dir(storage, filled), read_all(filled)
    interrupted(storage, world, monkeypatch, filled)
    assert [name.rpartition("-")[2] for name in names(source) + names(target)] == ["moved", "future"]
    storage = make_storage(dirs=2)
    assert storage.manager.settle(lambda topic, partition: (TOPIC_ID, None)) != {}
    log = storage.log()
    assert (log.path, read_all(log)) == (target / "t-0", before)
    world.advance(1)
    assert names(source) == []


def test_nothing_begins_anew_in_place_of_a_log_whose_new_directory_is_missing(
    storage: Storage,
    world: VirtualWorld,
    filled: Log,
    make_storage: Callable[..., Storage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target, before = filled.directory, other_dir(storage, filled), read_all(filled)
    interrupted(storage, world, monkeypatch, filled)
    away = target.with_name("away")
    target.rename(away)
    storage = make_storage(dirs=2)
    assert storage.manager.open("t", TOPIC_ID, 0, small_config(), source.directory_id) is None
    storage.kill()
    (target / ".lock").unlink()
    for path in target.iterdir():
        path.unlink()
    target.rmdir()
    away.rename(target)
    log = make_storage(dirs=2).log()
    assert (log.path, read_all(log)) == (target / "t-0", before)

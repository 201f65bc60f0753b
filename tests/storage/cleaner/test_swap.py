"""The swap of cleaned segments: cut short at every rename, refused by the disk, overtaken by truncations, deletions."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.cleaner import log_cleaner
from pybroker.storage.cleaner.cleaner_jobs import CleanedGroup
from pybroker.storage.cleaner.selection import LogToClean, examine
from pybroker.storage.files import os_file
from pybroker.storage.log.log import Log
from pybroker.storage.log.partition_log import PartitionLog
from pybroker.storage.results import ReadResult
from tests.storage.batches import parse
from tests.storage.cleaner.logs import (
    BACKOFF_MS,
    all_batches,
    clean,
    compacted,
    end_transaction,
    file_names,
    put,
    survivors,
)
from tests.storage.logs import Storage

MakeStorage = Callable[..., Storage]
SETTINGS = {"log_cleaner_backoff_ms": BACKOFF_MS}
LATEST = {b"a": b"new", b"b": b"new", b"c": b"new", b"d": b"new", b"end": b"new", b"txn": b"old"}


class Killed(BaseException):
    """The process ended at this very call."""


@pytest.fixture
def storage(make_storage: MakeStorage) -> Storage:
    return make_storage(**SETTINGS)


def fill(storage: Storage, **attributes: Any) -> Log:
    """Five segments in which every key but one is overwritten, and a transaction is aborted."""
    log = compacted(storage, **attributes)
    for value in (b"old", b"newer", b"new"):
        for key in (b"a", b"b", b"c", b"d"):
            put(log, (key, value))
        if value == b"old":
            put(log, (b"txn", b"old"))
            put(log, (b"txn", b"no"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
            end_transaction(log, 5, commit=False)
        log.roll()
    put(log, (b"end", b"new"))
    return log


def another(storage: Storage) -> Log:
    """A second compacted log, of one key in four batches, the last one in the active segment."""
    log = compacted(storage, topic="other", topic_id=b"fedcba9876543210")
    for _ in range(3):
        put(log, (b"k", b"1"))
        log.roll()
    put(log, (b"k", b"1"))
    return log


def committed_values(log: Log) -> dict[bytes | None, bytes | None]:
    """The last values of the keys, without what the aborted transaction wrote."""
    return {record.key: record.value for record in survivors(log) if record.value != b"no"}


def fail_rename(monkeypatch: pytest.MonkeyPatch, number: int, error: Callable[[], BaseException]) -> list[str]:
    """Let the ``number``-th rename of a log's file fail; the names renamed before."""
    renamed: list[str] = []
    rename = os.rename

    def failing(source: Path, target: Path) -> None:
        if Path(source).parent.name != "t-0":
            return rename(source, target)
        if not Path(source).exists():
            raise FileNotFoundError
        if len(renamed) == number:
            raise error()
        renamed.append(Path(target).name)
        return rename(source, target)

    monkeypatch.setattr(os_file, "rename", failing)
    return renamed


RENAMES = 40


@pytest.mark.parametrize("number", range(RENAMES))
def test_killed_at_any_rename_the_log_is_whole_at_the_next_start(
    make_storage: MakeStorage, storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = fill(storage)
    before = all_batches(log)
    renamed = fail_rename(monkeypatch, number, Killed)
    try:
        clean(world, 2)
        assert len(renamed) <= number, "more renames than this test knows of"
    except Killed:
        pass
    monkeypatch.undo()
    storage.kill()
    again = compacted(make_storage(**SETTINGS))
    again.update_high_watermark(again.log_end_offset)
    assert committed_values(again) == LATEST
    assert again.log_end_offset == log.log_end_offset
    assert {batch[0].last_offset for batch in all_batches(again)} <= {batch[0].last_offset for batch in before}
    assert [entry.first_offset for entry in again.aborted_transactions(0, again.log_end_offset)] == [5]
    assert not [name for name in file_names(again) if name.endswith((".deleted", ".swap", ".cleaned"))]
    logs = {name[:20] for name in file_names(again) if name.endswith(".log")}
    assert {name[:20] for name in file_names(again) if name.endswith("index")} == logs
    clean(world, 2)
    assert committed_values(again) == LATEST
    assert len(again.segments) == 2


def test_all_renames_of_a_swap_are_tried(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(storage)
    renamed = fail_rename(monkeypatch, 10**6, Killed)
    clean(world, 2)
    assert 10 < len(renamed) < RENAMES


@pytest.mark.parametrize("number", range(3))
def test_disk_without_room_for_the_first_renames_leaves_the_log_as_it_is(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = fill(storage)
    before = all_batches(log)
    fail_rename(monkeypatch, number, lambda: OSError(errno.ENOSPC, "no room"))
    clean(world)
    assert all_batches(log) == before
    assert not log.directory.offline
    assert not [name for name in file_names(log) if name.endswith((".cleaned", ".swap"))]
    monkeypatch.undo()
    clean(world)
    assert len(all_batches(log)) < len(before)
    assert committed_values(log) == LATEST


def test_disk_that_fails_in_the_middle_takes_the_directory_offline_until_a_start_mends_it(
    make_storage: MakeStorage, storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(storage)
    fail_rename(monkeypatch, 7, lambda: OSError(errno.EIO, "broken"))
    clean(world)
    assert log.directory.offline
    monkeypatch.undo()
    storage.close()
    again = compacted(make_storage(**SETTINGS))
    assert committed_values(again) == LATEST


def test_readers_keep_what_they_hold_while_segments_are_swapped(storage: Storage, world: VirtualWorld) -> None:
    log = fill(storage)
    read = log.read(0, 1 << 20, log.log_end_offset, True)
    assert isinstance(read, ReadResult)
    view, copy = read.records, bytes(read.records)
    assert len(copy) > 100
    clean(world, 2)
    world.advance(10_000)
    assert bytes(view) == copy
    assert parse(view)[0][0] == 0
    assert committed_values(log) == LATEST


def stop_before_swap(world: VirtualWorld, storage: Storage) -> None:
    """Let the cleaner work up to where its first group stands ready to be swapped."""
    world.run()  # the syncs of sealed segments, for which a round waits
    world.timers.call_soon(lambda: None)
    cleaner = storage.manager._cleaner()
    cleaner.start()
    executor = world.executors["log-cleaner-0"]
    while True:
        while not executor.jobs:
            world.step()
        executor.work()
        if isinstance(executor.finished[-1].result, CleanedGroup):
            return
        executor.deliver()


def test_truncation_aborts_the_round_and_what_comes_after_the_cut_is_dirty(
    storage: Storage, world: VirtualWorld
) -> None:
    log = fill(storage)
    clean(world)
    for _ in range(2):
        put(log, (b"a", b"newest"))
        log.roll()
    put(log, (b"z", b"1"))
    stop_before_swap(world, storage)
    cut = log.segments[-2].base_offset
    log.truncate_to(cut)
    before = all_batches(log)
    world.executors["log-cleaner-0"].deliver()
    world.run()
    assert all_batches(log) == before
    assert not [name for name in file_names(log) if name.endswith(".cleaned")]
    put(log, (b"a", b"after"))
    log.roll()
    put(log, (b"z", b"1"))
    clean(world, 2)
    assert committed_values(log) == {**LATEST, b"a": b"after", b"z": b"1"}


def test_deletion_aborts_the_round(storage: Storage, world: VirtualWorld) -> None:
    log = fill(storage)
    stop_before_swap(world, storage)
    storage.manager.delete("t", log.topic_id or b"", 10)
    world.executors["log-cleaner-0"].deliver()
    world.advance(10_000)
    assert not log.path.exists()
    assert not log.directory.offline
    again = compacted(storage, topic_id=b"fedcba9876543210")
    put(again, (b"k", b"1"))
    put(again, (b"k", b"2"))
    again.roll()
    put(again, (b"k", b"3"))
    clean(world)
    assert [record.offset for record in survivors(again)] == [1, 2]


def test_retention_leaves_a_log_alone_while_it_is_cleaned(storage: Storage, world: VirtualWorld) -> None:
    log = fill(storage, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1)
    stop_before_swap(world, storage)
    world.clock.pass_ms(10)
    assert log.apply_retention() == 0
    world.executors["log-cleaner-0"].deliver()
    clean(world)
    assert log.apply_retention() > 0


def test_stop_in_the_middle_of_a_round_leaves_nothing_half_written(storage: Storage, world: VirtualWorld) -> None:
    log = fill(storage)
    stop_before_swap(world, storage)
    assert [name for name in file_names(log) if name.endswith(".cleaned")]
    storage.close()
    assert not [name for name in file_names(log) if name.endswith((".cleaned", ".swap"))]


def uncleanable(caplog: pytest.LogCaptureFixture) -> list[Path]:
    """The logs that are said to be left alone from now on."""
    said = (record.getMessage() for record in caplog.records)
    return [
        Path(found[1]) for line in said if (found := re.search(r"is uncleanable until the next start \((.*?)\)", line))
    ]


def test_damaged_batch_makes_the_partition_uncleanable_and_others_are_cleaned(
    storage: Storage, world: VirtualWorld, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(storage)
    other = another(storage)
    with (log.path / f"{0:020d}.log").open("r+b") as file:
        file.seek(70)
        file.write(b"\xff\xff")
    before = log.size_bytes
    clean(world, 3)
    assert uncleanable(caplog) == [log.path]
    assert log.size_bytes == before
    assert not log.directory.offline
    assert len(survivors(other)) == 2


def test_defect_in_the_look_at_one_partition_leaves_that_one_uncleaned(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(storage)
    other = another(storage)

    def failing(looked_at: PartitionLog, checkpoint: int | None, now_ms: int) -> LogToClean:
        if looked_at.path == log.path:
            raise RuntimeError("a defect")
        return examine(looked_at, checkpoint, now_ms)

    monkeypatch.setattr(log_cleaner, "examine", failing)
    clean(world, 3)
    assert uncleanable(caplog) == [log.path]
    assert len(survivors(other)) == 2


def test_log_that_cannot_be_read_for_want_of_a_descriptor_is_cleaned_later(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(storage)

    def no_descriptor(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(log_cleaner, "examine", no_descriptor)
        clean(world, 2)
    assert not log.directory.offline
    with monkeypatch.context() as patched:
        patched.setattr(log_cleaner.LogCleaner, "_job", no_descriptor)
        clean(world, 2)
    assert not storage.manager._cleaner().is_cleaning(log.path)
    clean(world, 2)
    assert committed_values(log) == LATEST
    assert len(log.segments) < 4

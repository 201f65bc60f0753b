"""A clean stop in the middle of work: what is under way completes, whatever it asks for next."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.dirs.start_rollback import CLEAN_SHUTDOWN_FILE
from pybroker.storage.files import os_file
from pybroker.storage.files.checkpoints import RECOVERY_POINT_CHECKPOINT
from tests.storage.logs import Client, Storage

MakeStorage = Callable[..., Storage]
LARGE = [bytes(200_000)]  # goes to the writer thread


def test_stop_completes_an_append_that_waits_behind_a_sync_under_way(make_storage: MakeStorage, tmp_path: Path) -> None:
    storage = make_storage(pybroker_fsync_before_ack="true")
    client = Client(storage.log())
    assert client.send() is None  # its sync is under way
    assert client.send() is None  # and this one waits for the next
    storage.close()
    assert [result.error_code for result in client.later] == [0, 0]
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()


def test_stop_syncs_what_the_writer_thread_brings_last(make_storage: MakeStorage, tmp_path: Path) -> None:
    storage = make_storage(pybroker_fsync_before_ack="true")
    client = Client(storage.log(internal_segment_bytes=1 << 20))
    assert client.send() is None  # the flusher has been used, and is the first to end
    assert client.send(values=LARGE) is None
    storage.close()
    assert [result.error_code for result in client.later] == [0, 0]
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()


def test_stop_survives_a_background_sync_that_is_asked_for_again(
    make_storage: MakeStorage, tmp_path: Path, world: VirtualWorld
) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).send_now()
    log.flushes.flush()
    log.flushes.flush()
    storage.close()
    assert not any(executor.jobs for executor in world.executors.values())
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()


class Syncs:
    """Stands before the syncs, counts them, and fails the one of the file system when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
        self.data = data
        self.of_files = 0
        self.of_file_system: list[set[str]] = []  # what lay in the log dir each time
        self.fails = False
        monkeypatch.setattr(os_file, "fdatasync", self.fdatasync)
        monkeypatch.setattr(os_file, "can_sync_file_system", lambda directory: True)
        monkeypatch.setattr(os_file, "sync_file_system", self.sync_file_system)

    def fdatasync(self, fd: int) -> None:
        self.of_files += 1

    def sync_file_system(self, fd: int) -> None:
        os.fstat(fd)
        self.of_file_system.append({path.name for path in self.data.rglob("*")})
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Syncs:
    """The syncs, with three logs being many."""
    monkeypatch.setattr("pybroker.storage.manager.clean_shutdown.LOGS_SYNCED_ONE_BY_ONE_MAX", 2)
    return Syncs(monkeypatch, tmp_path / "data")


def test_stop_with_many_unsynced_logs_syncs_their_file_system_once_before_it_says_that_they_are_whole(
    make_storage: MakeStorage, syncs: Syncs
) -> None:
    storage = make_storage()
    for partition in range(3):
        Client(storage.log(partition=partition)).fill(2)
    storage.close()
    (names,) = syncs.of_file_system
    assert f"{2:020}.snapshot" in names
    assert not {CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT} & names
    assert syncs.of_files == 0
    assert {CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT} <= {path.name for path in syncs.data.iterdir()}


def test_stop_whose_sync_fails_leaves_no_mark_and_the_next_start_recovers(
    make_storage: MakeStorage, syncs: Syncs
) -> None:
    storage = make_storage()
    for partition in range(3):
        Client(storage.log(partition=partition)).fill(2)
    syncs.fails = True
    storage.close()
    assert not {CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT} & {path.name for path in syncs.data.iterdir()}
    again = make_storage()
    assert again.log(partition=1).log_end_offset == 2


def test_stop_with_few_unsynced_logs_syncs_these_alone(make_storage: MakeStorage, syncs: Syncs) -> None:
    storage = make_storage()
    for partition in range(5):
        Client(storage.log(partition=partition)).fill(2)
    storage.close()
    again = make_storage()
    for partition in range(5):
        assert again.log(partition=partition).log_end_offset == 2  # opened, and read from, but not written to
    Client(again.log(partition=3)).fill(1)
    again.close()
    assert (len(syncs.of_file_system), syncs.of_files) == (1, 1)


def test_file_system_of_the_log_dirs_can_be_synced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (tmp_path / "file").open() as file:
        os_file.sync_file_system(file.fileno())
    assert os_file.can_sync_file_system("/proc") is False
    with pytest.raises(OSError, match="Bad file descriptor"):
        os_file.sync_file_system(-1)


def test_stop_waits_for_one_file_of_what_is_being_removed(
    make_storage: MakeStorage, world: VirtualWorld, tmp_path: Path
) -> None:
    """Removing large files takes its time; the next start removes what is left of a deleted partition."""
    storage = make_storage()
    doomed = storage.log().directory.path / "t-9.0123456789abcdef0123456789abcdef-delete"
    doomed.mkdir()
    for number in range(10):
        (doomed / f"{number:020}.log").write_bytes(b"x")
    storage.log().directory.remove_later([doomed], 0)
    world.turn()
    world.executor("remover").work()
    storage.close()
    assert len(list(doomed.iterdir())) == 9
    make_storage()
    world.advance(0)
    assert not doomed.exists()

"""A full disk, a failing disk, failed syncs: which append fails, what stays readable, when a directory goes offline."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.dirs.log_dir import (
    FREE_SPACE_CHECK_INTERVAL_MAX_MS,
    FREE_SPACE_CHECK_INTERVAL_MS,
    FREE_SPACE_LASTS_MS,
)
from pybroker.storage.files import checkpoints, os_file
from pybroker.storage.files.time_index import TimeIndex
from pybroker.storage.log import log_loader, truncation
from pybroker.storage.log.producer_snapshot import snapshot_offsets
from pybroker.storage.results import KAFKA_STORAGE_ERROR
from tests.storage.batches import batch, end_marker
from tests.storage.logs import TOPIC_ID, TRANSACTIONAL_FLAG, Client, Storage, read_all, read_now, small_config


class Disk:
    """Stands before the real calls and fails them when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None  # bytes until writes fail, None: no limit
        self.write_error = errno.ENOSPC
        self.sync_error = 0
        self.syncs = 0
        monkeypatch.setattr(os_file, "pwrite", self.pwrite)
        monkeypatch.setattr(os_file, "fdatasync", self.fdatasync)
        monkeypatch.setattr(os_file, "has_free_space", lambda _directory, _most: self.room is None)

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        if self.room is None:
            return os.pwrite(fd, data, position)
        if self.room == 0:
            raise OSError(self.write_error, os.strerror(self.write_error))
        count = os.pwrite(fd, memoryview(data).cast("B")[: self.room], position)
        self.room -= count
        return count

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk under all logs."""
    return Disk(monkeypatch)


@pytest.mark.parametrize("room", [0, 1, 60, 61, 100])
def test_full_disk_fails_that_append_and_cuts_its_torn_tail(storage: Storage, disk: Disk, room: int) -> None:
    log = storage.log()
    client = Client(log)
    client.fill(5)
    expected = read_all(log)
    disk.room = room
    assert client.send_now(values=[bytes(100)]).error_code == KAFKA_STORAGE_ERROR
    assert log.active.path().stat().st_size == log.active.size
    assert read_all(log) == expected
    assert storage.all_failed == 0
    disk.room = None
    assert client.send_now(values=[b"again"]).base_offset == 5
    assert len(read_all(log)) == 6


def test_full_disk_at_a_roll_fails_that_append_only(storage: Storage, disk: Disk) -> None:
    log = storage.log()
    client = Client(log)
    while log.active.size + 300 < 4096:
        client.fill(1, size=200)
    disk.room = 0
    for _ in range(3):
        assert client.send_now(values=[bytes(1000)]).error_code == KAFKA_STORAGE_ERROR
    assert len(log.segments) == 1
    disk.room = None
    offset = log.log_end_offset
    assert client.send_now(values=[bytes(1000)]).base_offset == offset
    assert [segment.base_offset for segment in log.segments] == [0, offset]
    assert len(read_all(log)) == offset + 1


def test_full_disk_at_the_first_append_leaves_a_log_that_works_later(storage: Storage, disk: Disk) -> None:
    log = storage.log()
    client = Client(log)
    disk.room = 0
    assert client.send_now().error_code == KAFKA_STORAGE_ERROR
    disk.room = None
    assert client.send_now().base_offset == 0
    assert (log.path / "partition.metadata").exists()


def test_a_log_whose_first_files_found_no_room_begins_where_its_leader_says(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = storage.log()

    def no_room(_index: TimeIndex) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(TimeIndex, "persist", no_room)
        assert Client(log).send_now().error_code == KAFKA_STORAGE_ERROR
    log.truncate_fully_and_start_at(7)
    assert [path.name for path in sorted(log.path.glob("*.log"))] == [f"{7:020d}.log"]
    assert storage.shut_and_open(log).log_start_offset == 7


def test_full_disk_is_reported_when_it_begins_and_when_it_has_ended(
    storage: Storage, world: VirtualWorld, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        """What was said of this directory: what earlier tests left to the collector may speak meanwhile."""
        return [message for message in caplog.messages if str(storage.path) in message]

    clients = [Client(storage.log(partition=partition)) for partition in range(3)]
    for round_number in range(2):
        caplog.clear()
        disk.room = 0
        for _ in range(4):
            for client in clients:
                assert client.send_now().error_code == KAFKA_STORAGE_ERROR
            world.advance(4_000)
        assert [message.split(",")[0] for message in told()] == [f"No space is left in {storage.path}"], round_number
        disk.room = None
        world.advance(25_000)
        assert told()[1:] == [f"There is space in {storage.path} again, 12 writes to it were refused"]
    assert storage.all_failed == 0


def test_there_is_no_room_again_before_the_disk_has_any_also_without_writes(
    storage: Storage, world: VirtualWorld, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.room = 0
    assert Client(storage.log()).send_now().error_code == KAFKA_STORAGE_ERROR
    world.advance(600_000)
    assert "There is room" not in caplog.text
    disk.room = None
    world.advance(2 * FREE_SPACE_CHECK_INTERVAL_MS)
    assert f"There is space in {storage.path} again, 1 writes to it were refused" in caplog.text


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_a_log_dir_says_once_that_it_has_no_room_and_once_that_it_has(
    storage: Storage, world: VirtualWorld, disk: Disk, code: int
) -> None:
    told: list[frozenset[bytes]] = []
    storage.manager.on_free_space_changed = told.append
    (directory_id,) = storage.manager.directory_ids()
    client = Client(storage.log())
    disk.room, disk.write_error = 0, code
    for _ in range(3):
        assert client.send_now().error_code == KAFKA_STORAGE_ERROR
        world.advance(5_000)
    is_disk_full = code != errno.EMFILE
    assert told == [frozenset({directory_id})] * is_disk_full, "descriptors are the process's, not the disk's"
    disk.room = None
    world.advance(5_000)
    assert told == [frozenset({directory_id}), frozenset()] * is_disk_full


def test_what_is_full_again_soon_is_looked_at_less_often(storage: Storage, world: VirtualWorld, disk: Disk) -> None:
    told: list[int] = []
    storage.manager.on_free_space_changed = lambda _full: told.append(world.clock.now_ms())
    client = Client(storage.log())
    for _ in range(10):
        disk.room = 0
        assert client.send_now().error_code == KAFKA_STORAGE_ERROR
        disk.room = None
        while len(told) % 2:
            world.advance(500)
    lacking = [end - begin for begin, end in zip(told[::2], told[1::2], strict=True)]
    assert lacking[0] <= 2 * FREE_SPACE_CHECK_INTERVAL_MS
    assert lacking == sorted(lacking)
    assert FREE_SPACE_CHECK_INTERVAL_MAX_MS <= max(lacking) <= FREE_SPACE_CHECK_INTERVAL_MAX_MS + 500
    world.advance(FREE_SPACE_LASTS_MS)
    disk.room = 0
    assert client.send_now().error_code == KAFKA_STORAGE_ERROR
    disk.room = None
    world.advance(2 * FREE_SPACE_CHECK_INTERVAL_MS)
    assert len(told) % 2 == 0, "it had room for long"


def test_failed_append_gives_its_sequence_number_back(storage: Storage, disk: Disk) -> None:
    client = Client(storage.log())
    disk.room = 0
    assert client.send_now(producer_id=1, producer_epoch=0, sequence=0).error_code == KAFKA_STORAGE_ERROR
    disk.room = None
    result = client.send_now(producer_id=1, producer_epoch=0, sequence=0)
    assert (result.base_offset, client.log.log_end_offset) == (0, 1)


@pytest.mark.parametrize("size", [10, 200_000])
def test_second_batch_of_a_new_producer_does_not_pass_the_first_that_found_no_room(
    storage: Storage, world: VirtualWorld, disk: Disk, size: int
) -> None:
    log = storage.log(internal_segment_bytes=1 << 24)
    client = Client(log)

    def send(sequence: int, epoch: int = 0) -> int:
        result = client.send(values=[bytes(size)], producer_id=1, producer_epoch=epoch, sequence=sequence)
        if result is None:
            world.run()
            result = client.later.pop()
        return result.error_code

    client.send_now(values=[b"another's"])
    disk.room = 0
    assert send(5) == KAFKA_STORAGE_ERROR
    disk.room = None
    assert send(6) == KAFKA_STORAGE_ERROR
    assert send(7) == KAFKA_STORAGE_ERROR
    assert [send(5), send(6), send(7)] == [0, 0, 0]
    assert log.log_end_offset == 4


def test_producer_that_gives_its_first_batch_up_begins_again_in_a_new_epoch(storage: Storage, disk: Disk) -> None:
    client = Client(storage.log())
    disk.room = 0
    assert client.send_now(producer_id=1, producer_epoch=0, sequence=0).error_code == KAFKA_STORAGE_ERROR
    disk.room = None
    assert client.send_now(producer_id=1, producer_epoch=1, sequence=0).error_code == 0


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_appends_behind_a_failed_large_one_fail_and_nothing_is_lost(
    storage: Storage, world: VirtualWorld, disk: Disk, failing: int
) -> None:
    log = storage.log(internal_segment_bytes=1 << 24)
    client = Client(log, leader_epoch=1)
    for sequence in range(4):
        size = 200_000 if sequence != 2 else 10
        assert client.send(values=[bytes(size)], producer_id=1, producer_epoch=0, sequence=sequence) is None
    writer = world.executor("writer")
    for _ in range(failing):
        writer.work()
    disk.room = 5
    for _ in range(4 - failing):
        writer.work()
    late = client.send(values=[b"late"])  # the loop does not know of the failure yet
    disk.room = None
    world.run()
    codes = [result.error_code for result in client.later]
    assert codes[:4] == [0] * failing + [KAFKA_STORAGE_ERROR] * (4 - failing)
    assert late is None
    late_result = client.later[4]
    assert (late_result.error_code, late_result.base_offset) == (0, failing)
    assert log.log_end_offset == failing + 1
    assert len(read_all(log)) == failing + 1
    retry = client.send(values=[bytes(200_000)], producer_id=1, producer_epoch=0, sequence=failing)
    world.run()
    assert retry is None
    assert (client.later[5].error_code, client.later[5].base_offset) == (0, failing + 1)
    assert log.active.path().stat().st_size == log.active.size


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_failing_write_takes_the_directory_offline_for_good(storage: Storage, disk: Disk, code: int) -> None:
    log = storage.log()
    client = Client(log)
    client.fill(2)
    disk.room, disk.write_error = 0, code
    assert client.send_now().error_code == KAFKA_STORAGE_ERROR
    disk.room = None
    assert client.send_now().error_code == KAFKA_STORAGE_ERROR
    assert read_now(log, 0, 100, 2).error_code == KAFKA_STORAGE_ERROR
    assert storage.all_failed == 1
    assert storage.manager.open("new", b"n" * 16, 0, small_config()) is None
    assert [described.error_code for described in storage.describe()] == [KAFKA_STORAGE_ERROR]


def test_other_directories_go_on_when_one_fails(make_storage: Callable[..., Storage], disk: Disk) -> None:
    storage = make_storage(dirs=2)
    # Partition 0 lies in the first directory, which the metadata is in, too.
    second, first = storage.log(partition=0), storage.log(partition=1)
    assert first.directory is not second.directory
    Client(first).fill(1)
    Client(second).fill(1)
    disk.room, disk.write_error = 0, errno.EIO
    assert Client(first).send_now().error_code == KAFKA_STORAGE_ERROR
    disk.room = None
    assert storage.all_failed == 0
    assert Client(second).send_now().error_code == 0
    third = storage.log(partition=2)
    assert third.directory is second.directory
    assert storage.manager.open("t", third.topic_id or b"", 1, small_config()) is None
    assert len(storage.manager.directory_ids()) == 1


def test_cut_that_the_device_stops_half_way_is_finished_by_the_next_start(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = storage.log()
    client = Client(log)
    for sequence in range(20):
        client.send_now(values=[bytes(500)], producer_id=1, producer_epoch=0, sequence=sequence)
    last = snapshot_offsets(log.path)[-1]

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(truncation, "delete_snapshots", fail)
        log.truncate_to(last - 3)
    assert storage.all_failed == 1
    assert snapshot_offsets(log.path)[-1] == last
    storage.kill()
    again = Storage(storage.path, world)
    log = again.log()
    assert log.log_end_offset == last - 3
    assert [offset for offset in snapshot_offsets(log.path) if offset > last - 3] == []
    assert Client(log).send_now(producer_id=1, producer_epoch=0, sequence=last - 3).base_offset == last - 3
    again.kill()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_failed_sync_takes_the_directory_offline_and_is_not_tried_again(
    storage: Storage, world: VirtualWorld, disk: Disk, code: int
) -> None:
    """Also for want of room: the pages that found none are dropped, and a second sync would say that all is well."""
    log = storage.log(flush_messages=2)
    client = Client(log)
    client.fill(1)
    disk.sync_error = code
    assert client.send() is None
    assert client.send() is None
    world.run()
    disk.sync_error = 0
    assert client.send_now().error_code == KAFKA_STORAGE_ERROR
    world.run()
    assert [result.error_code for result in client.later] == [KAFKA_STORAGE_ERROR] * 2
    assert (storage.all_failed, disk.syncs, log.recovery_point) == (1, 1, 0)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_failed_sync_of_a_name_takes_the_directory_offline(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fsync(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    client = Client(storage.log(flush_messages=1))
    monkeypatch.setattr(os_file, "fsync", fsync)
    assert client.send() is None
    world.run()
    assert [result.error_code for result in client.later] == [KAFKA_STORAGE_ERROR]
    assert storage.all_failed == 1


def test_sync_that_cannot_open_a_file_fails_what_waits_for_it_and_the_next_one_covers_all(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    lacking = True

    def sync_path(path: Any) -> None:
        if lacking:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        synced.append(os.path.basename(path))

    monkeypatch.setattr(os_file, "sync_path", sync_path)
    log = storage.log(flush_messages=1)
    client = Client(log)
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=7, producer_epoch=0, sequence=0)
    world.run()
    log.append_end_transaction(bytes(end_marker(7, 0, commit=False)), 0, 1, 0, client.later.append)
    world.run()
    assert [result.error_code for result in client.later] == [KAFKA_STORAGE_ERROR] * 2
    assert (storage.all_failed, log.recovery_point) == (0, 0)
    lacking = False
    client.send()
    world.run()
    assert (client.later[-1].error_code, client.later[-1].base_offset, log.recovery_point) == (0, 2, 3)
    assert {"partition.metadata", "00000000000000000000.txnindex", "t-0"} <= set(synced)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """For a while nothing of a partition can be opened: the process has all the files open that it may."""

    def refuse(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_loader, "segment_files", refuse)
        patched.setattr(checkpoints, "read_partition_metadata", refuse)
        patched.setattr(os_file, "open_for_append", refuse)
        yield


def test_log_that_finds_no_descriptor_refuses_and_is_opened_when_it_is_asked_for_again(
    storage: Storage, world: VirtualWorld
) -> None:
    log = storage.log()
    client = Client(log)
    client.fill(60)
    log.update_high_watermark(60)
    log.increment_log_start_offset(3)
    expected = read_all(log)
    files = {path.name: path.read_bytes() for path in log.path.glob("*.log")}
    world.run()
    partition_log = storage.partition_log()
    partition_log.shut()
    with no_descriptors():
        log = client.log = partition_log.open()
        assert client.send_now().error_code == KAFKA_STORAGE_ERROR
        assert read_now(log, 0, 100, 60).error_code == KAFKA_STORAGE_ERROR
        refused = log.append_internal(batch(), 0, client.later.append)
        assert refused is not None
        assert refused.error_code == KAFKA_STORAGE_ERROR
        world.advance(400_000)
        log = client.log = storage.log()
        assert log.apply_retention() == 0
        assert log.refuses
    assert storage.all_failed == 0
    assert {path.name: path.read_bytes() for path in log.path.glob("*.log")} == files
    assert client.send_now().error_code == KAFKA_STORAGE_ERROR, "it was not asked for again"
    log = client.log = storage.log()
    assert read_all(log) == expected
    assert (log.log_start_offset, log.high_watermark) == (3, 60)
    assert client.send_now().base_offset == 60


def test_partition_whose_owner_cannot_be_read_for_want_of_a_descriptor_is_refused_and_kept(
    make_storage: Callable[..., Storage],
) -> None:
    first = make_storage()
    Client(first.log()).fill(3)
    first.close()
    storage = make_storage()
    with no_descriptors():
        assert storage.manager.open("t", TOPIC_ID, 0, small_config()) is None
        storage.manager.delete("t", TOPIC_ID, 10)
    assert storage.all_failed == 0
    assert len(read_all(storage.log())) == 3


def test_acknowledgement_waits_for_the_sync_and_shares_it(
    make_storage: Callable[..., Storage], world: VirtualWorld, disk: Disk
) -> None:
    storage = make_storage(pybroker_fsync_before_ack=True)
    log = storage.log()
    client = Client(log)
    for _ in range(5):
        assert client.send() is None
    assert log.log_end_offset == 5
    assert client.later == []
    world.executor("flusher").work()
    for _ in range(3):
        client.send()
    world.executor("flusher").deliver()
    assert [result.base_offset for result in client.later] == [0]
    world.run()
    assert [result.base_offset for result in client.later] == list(range(8))
    assert (disk.syncs, log.recovery_point) == (2, 8)


def test_flush_messages_syncs_before_every_nth_acknowledgement(
    storage: Storage, world: VirtualWorld, disk: Disk
) -> None:
    log = storage.log(flush_messages=3)
    client = Client(log)
    answered = [client.send() is not None for _ in range(3)]
    assert answered == [True, True, False]
    world.run()
    assert disk.syncs == 1
    assert [client.send() is not None for _ in range(3)] == [True, True, False]


def test_flush_ms_syncs_in_the_background(storage: Storage, world: VirtualWorld, disk: Disk) -> None:
    log = storage.log(flush_ms=5000)
    Client(log).fill(1)
    world.advance(4000)
    assert disk.syncs == 0
    world.advance(3000)
    assert (disk.syncs, log.recovery_point) == (1, 1)


def test_large_writes_wait_for_the_sync_too(
    make_storage: Callable[..., Storage], world: VirtualWorld, disk: Disk
) -> None:
    storage = make_storage(pybroker_fsync_before_ack=True)
    client = Client(storage.log(internal_segment_bytes=1 << 24))
    client.send(values=[bytes(200_000)])
    world.executor("writer").run()
    assert (client.log.log_end_offset, client.later) == (1, [])
    world.run()
    assert [result.base_offset for result in client.later] == [0]


def test_no_sync_at_all_where_it_is_switched_off(
    make_storage: Callable[..., Storage], world: VirtualWorld, disk: Disk
) -> None:
    storage = make_storage(pybroker_fsync_enable=False)
    log = storage.log(flush_messages=1)
    Client(log).fill(50)
    world.run()
    storage.close()
    assert disk.syncs == 0
    assert (storage.path / ".kafka_cleanshutdown").exists()


def test_a_real_limit_on_file_size_behaves_like_a_full_disk(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(fd: int, data: Any, position: int) -> int:
        allowed = max(1000 - position, 0)
        if not allowed:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return os.pwrite(fd, memoryview(data).cast("B")[:allowed], position)

    monkeypatch.setattr(os_file, "pwrite", limited)
    log = storage.log()
    client = Client(log)
    codes = [client.send_now(values=[bytes(100)]).error_code for _ in range(10)]
    assert codes[:5] == [0] * 5
    assert codes[-1] == KAFKA_STORAGE_ERROR
    assert len(read_all(log)) == codes.count(0)
    assert storage.all_failed == 0


def test_stop_completes_what_is_in_flight_and_refuses_what_waits(
    make_storage: Callable[..., Storage], world: VirtualWorld, disk: Disk
) -> None:
    storage = make_storage(pybroker_fsync_before_ack=True)
    log = storage.log(internal_segment_bytes=500_000)
    client = Client(log)
    client.send(values=[b"synced in the background"])
    for _ in range(4):
        assert client.send(values=[bytes(200_000)]) is None
    storage.close()
    codes = {result.base_offset: result.error_code for result in client.later}
    assert codes == {0: 0, 1: 0, 2: 0, -1: KAFKA_STORAGE_ERROR}
    assert len(client.later) == 5
    again = make_storage()
    assert again.log(internal_segment_bytes=500_000).log_end_offset == 3

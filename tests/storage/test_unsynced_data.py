"""Where acknowledgements wait for a sync: nothing is acknowledged, or shown, that a power failure could take back."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.image.cluster_image import PartitionImage
from pybroker.replication.partition import Partition
from pybroker.storage.files import os_file
from tests.storage.batches import end_marker
from tests.storage.logs import TOPIC_ID, TRANSACTIONAL_FLAG, Client, Storage, read


class ProducerFields(TypedDict):
    """What a batch says of its producer."""

    producer_id: int
    producer_epoch: int
    sequence: int


IDEMPOTENT: ProducerFields = {"producer_id": 7, "producer_epoch": 0, "sequence": 0}


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files and directories that were synced."""
    names: list[str] = []
    real_fdatasync, real_sync_path = os_file.fdatasync, os_file.sync_path

    def fdatasync(fd: int) -> None:
        names.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        real_fdatasync(fd)

    def sync_path(path: Any) -> None:
        names.append(os.path.basename(path))
        real_sync_path(path)

    monkeypatch.setattr(os_file, "fdatasync", fdatasync)
    monkeypatch.setattr(os_file, "sync_path", sync_path)
    return names


def test_a_repeated_batch_is_acknowledged_after_the_sync_of_the_original(
    make_storage: Callable[..., Storage], world: VirtualWorld
) -> None:
    client = Client(make_storage(pybroker_fsync_before_ack=True).log())
    assert client.send(**IDEMPOTENT) is None
    assert client.send(**IDEMPOTENT) is None
    assert client.later == []
    world.run()
    assert [(result.error_code, result.base_offset) for result in client.later] == [(0, 0), (0, 0)]
    repeated = client.send_now(**IDEMPOTENT)
    assert (repeated.base_offset, client.log.log_end_offset) == (0, 1)


def test_a_repeated_batch_waits_for_a_sync_that_flush_messages_asks_for(
    make_storage: Callable[..., Storage], world: VirtualWorld
) -> None:
    client = Client(make_storage().log(flush_messages=1))
    assert client.send(**IDEMPOTENT) is None
    assert client.send(**IDEMPOTENT) is None
    world.run()
    assert [result.base_offset for result in client.later] == [0, 0]


def test_what_a_killed_process_had_only_written_is_synced_by_the_recovery(
    make_storage: Callable[..., Storage], synced: list[str]
) -> None:
    first = make_storage(pybroker_fsync_before_ack=True)
    assert Client(first.log()).send(**IDEMPOTENT) is None
    first.kill()
    synced.clear()
    log = make_storage(pybroker_fsync_before_ack=True).log()
    assert {"00000000000000000000.log", "partition.metadata", "t-0", log.path.parent.name} <= set(synced)
    assert (log.recovery_point, log.log_end_offset) == (1, 1)
    assert (Client(log).send_now(**IDEMPOTENT).base_offset, log.log_end_offset) == (0, 1)


def test_the_first_sync_covers_the_file_that_says_whose_the_partition_is(
    make_storage: Callable[..., Storage], world: VirtualWorld, synced: list[str]
) -> None:
    assert Client(make_storage(pybroker_fsync_before_ack=True).log()).send() is None
    world.run()
    assert "partition.metadata" in synced


def test_the_first_sync_after_a_kill_covers_the_names_of_files_too(
    make_storage: Callable[..., Storage], world: VirtualWorld, synced: list[str]
) -> None:
    first = make_storage()
    Client(first.log()).send_now()
    first.kill()
    synced.clear()
    log = make_storage().log()
    log.flushes.flush()
    world.run()
    assert {"00000000000000000000.log", "t-0", log.path.parent.name} <= set(synced)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_clean_stop_syncs_what_a_killed_process_had_only_written_and_nobody_has_touched_since(
    make_storage: Callable[..., Storage], synced: list[str], monkeypatch: pytest.MonkeyPatch, one_by_one: bool
) -> None:
    monkeypatch.setattr("pybroker.storage.manager.clean_shutdown.LOGS_SYNCED_ONE_BY_ONE_MAX", 1 if one_by_one else 0)
    monkeypatch.setattr(os_file, "can_sync_file_system", lambda _directory: True)
    monkeypatch.setattr(os_file, "sync_file_system", lambda _fd: synced.append("all"))
    first = make_storage()
    Client(first.log()).send_now()
    first.kill()
    second = make_storage()
    synced.clear()
    second.close()
    assert ("00000000000000000000.log" in synced) is one_by_one
    assert ("all" in synced) is not one_by_one
    synced.clear()
    make_storage().close()
    assert "00000000000000000000.log" not in synced


@pytest.mark.parametrize(
    ("fsync_before_ack", "flush_messages", "shown"),
    [(True, 1 << 62, [1, 3]), (False, 1, [1, 3]), (False, 1 << 62, [3, 3])],
)
def test_consumers_see_no_more_than_what_acknowledgements_stand_for(
    make_storage: Callable[..., Storage],
    world: VirtualWorld,
    fsync_before_ack: bool,
    flush_messages: int,
    shown: list[int],
) -> None:
    partition_log = make_storage(pybroker_fsync_before_ack=fsync_before_ack).partition_log(
        flush_messages=flush_messages
    )
    log = partition_log.open()
    replicas: Any = SimpleNamespace(mark=lambda partition: None)
    partition = Partition(replicas, "t", TOPIC_ID, 0, PartitionImage((1,), (1,), 1), partition_log)
    client = Client(log)
    records = [memoryview(_batch()) for _ in range(3)]
    partition.append(records[0], -1, 1_000, 13, client.later.append)
    waits = fsync_before_ack or flush_messages == 1
    if waits:
        world.executor("flusher").work()
    partition.append(records[1], -1, 1_000, 13, client.later.append)
    partition.append(records[2], -1, 1_000, 13, client.later.append)
    if waits:
        world.executor("flusher").deliver()
    found = [log.high_watermark]
    world.run()
    assert [*found, log.high_watermark] == shown


def _batch() -> bytearray:
    from tests.storage.batches import batch

    return batch()


def test_a_flush_syncs_the_transaction_index_with_the_marker_that_it_covers(
    storage: Storage, world: VirtualWorld, synced: list[str]
) -> None:
    log = storage.log()
    client = Client(log)
    client.send_now(attributes=TRANSACTIONAL_FLAG, **IDEMPOTENT)
    log.flushes.flush()
    world.run()
    assert "00000000000000000000.txnindex" not in synced
    client.end(7, 0, commit=False)
    log.flushes.flush()
    world.run()
    assert log.recovery_point == log.log_end_offset == 2
    assert "00000000000000000000.txnindex" in synced


def test_what_was_cut_off_is_unsynced_until_a_sync_that_began_after_the_cut(
    storage: Storage, world: VirtualWorld, synced: list[str]
) -> None:
    log = storage.log()
    Client(log).fill(3, size=100)
    log.flushes.flush()
    log.truncate_to(1)
    world.run()
    states = [log.flushes.cut_unsynced]
    synced.clear()
    log.flushes.flush()
    world.run()
    states.append(log.flushes.cut_unsynced)
    assert states == [True, False]
    assert {"00000000000000000000.log", log.path.name} <= set(synced)


def test_the_indexes_of_a_sealed_segment_are_synced_although_its_data_was_before(
    storage: Storage, world: VirtualWorld, synced: list[str]
) -> None:
    log = storage.log()
    client = Client(log)
    client.fill(1, size=3000)
    log.flushes.flush()
    world.run()
    synced.clear()
    client.fill(1, size=3000)
    assert len(log.segments) == 2
    world.run()
    assert {"00000000000000000000.index", "00000000000000000000.timeindex"} <= set(synced)


@pytest.mark.parametrize("fsync_before_ack", [True, False])
def test_transaction_indexes_made_anew_for_synced_data_are_synced(
    make_storage: Callable[..., Storage], world: VirtualWorld, synced: list[str], fsync_before_ack: bool
) -> None:
    """The recovery begins with the segment that holds the recovery point, behind which nothing is looked at again."""
    storage = make_storage(pybroker_fsync_before_ack=fsync_before_ack)
    log = storage.log()
    client = Client(log)
    client.send(attributes=TRANSACTIONAL_FLAG, **IDEMPOTENT)
    log.append_end_transaction(bytes(end_marker(7, 0, commit=False)), 0, 1, 0, client.later.append)
    log.flushes.flush()
    world.run()
    storage.manager._housekeeping.checkpoint_recovery_points()
    storage.manager._housekeeping.checkpoint_log_starts()
    world.run()
    assert log.recovery_point == log.log_end_offset
    storage.kill()
    log.active.txn_index.path.unlink()
    synced.clear()
    make_storage(pybroker_fsync_before_ack=fsync_before_ack).log()
    assert "00000000000000000000.txnindex" in synced


def test_a_sealed_segment_is_mapped_without_growing_its_file(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    log = storage.log()
    Client(log).fill(2, size=3000)
    sealed = log.segments[0]
    assert len(log.segments) == 2
    assert sealed.size < sealed.capacity
    sealed.drop_map()

    def ftruncate(fd: int, length: int) -> None:
        raise AssertionError("a death now would leave a tail behind the data of a sealed segment")

    monkeypatch.setattr(os_file, "ftruncate", ftruncate)
    assert read(log, 0, max_bytes=1)[0][0] == 0


@pytest.mark.parametrize("open_max", [1, 2, 3])
@pytest.mark.parametrize("stops", [False, True], ids=["in the background", "at the stop"])
def test_all_segments_of_a_sync_are_synced_though_fewer_may_be_open(
    make_storage: Callable[..., Storage], world: VirtualWorld, synced: list[str], open_max: int, stops: bool
) -> None:
    storage = make_storage()
    Client(storage.log()).fill(150)
    storage.kill()
    again = make_storage()
    cache = again.manager._environment.segments
    cache.open_max = open_max
    log = again.log()
    names = [segment.path().name for segment in log.segments]
    assert len(names) > 3
    synced.clear()
    if stops:
        again.close()
    else:
        log.flushes.flush()
        world.run()
        assert all(segment.synced_bytes == segment.size for segment in log.segments)
        assert not any(segment.pins for segment in log.segments)
        log.segments[0].close()
        log.segments[0].open()
        assert len(cache) <= open_max
    assert [name for name in synced if name.endswith(".log")] == names
    assert again.all_failed == 0


def test_plan_that_fails_leaves_no_segment_pinned(
    make_storage: Callable[..., Storage], world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = make_storage()
    Client(storage.log()).fill(150)
    storage.kill()
    log = make_storage().log()
    last = log.segments[-2].path()
    real_open = os_file.open_for_append

    def open_for_append(path: Any, create: bool = True) -> int:
        if path == last:
            raise OSError(errno.EMFILE, "Too many open files")
        return real_open(path, create)

    with monkeypatch.context() as patched:
        patched.setattr(os_file, "open_for_append", open_for_append)
        log.flushes.flush()
    assert not any(segment.pins for segment in log.segments)


def test_the_segment_that_is_closed_is_the_one_that_was_opened_first(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log()
    Client(log).fill(150)
    world.run()  # what is being synced is not closed
    storage.manager._environment.segments.open_max = 3
    for segment in log.segments:
        segment.close()
    first = list(log.segments)[:4]
    for segment in first:
        segment.open()
    assert [segment.fd >= 0 for segment in first] == [False, True, True, True]

"""A topic is deleted while its partitions are written to and synced: nothing of it touches its path any more, which may
be another log's already, and the log directory stays online."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import checkpoints, os_file
from pybroker.storage.manager.log_manager import DELETION_SLICE_MS
from pybroker.storage.manager.partition_places import PartitionPlaces
from pybroker.storage.results import TopicPartition
from pybroker_protocol.errors import ErrorCode
from tests.storage.logs import TOPIC_ID, Client, Storage, read_all

MakeStorage = Callable[..., Storage]
LARGE = [bytes(200_000)]  # goes to the writer thread
ANOTHER_ID = b"fedcba9876543210"


def test_sync_that_comes_due_after_the_deletion_leaves_the_directory_online(
    storage: Storage, world: VirtualWorld
) -> None:
    log = storage.log()
    Client(log).fill(50)
    storage.manager.delete("t", TOPIC_ID, 10)
    done: list[bool] = []
    log.flushes.flush(lambda: done.append(True))
    world.run()
    world.advance(0)
    assert done == [True]
    assert storage.all_failed == 0


def test_deleted_log_writes_nothing_into_its_successor(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log(internal_segment_bytes=1 << 20)
    Client(log).fill(50)
    storage.manager.delete("t", TOPIC_ID, 10)
    successor = storage.log(topic_id=ANOTHER_ID)
    Client(successor).send_now()
    successor.flushes.flush()
    world.run()
    files = {path: path.read_bytes() for path in successor.path.iterdir()}
    log.flushes.flush()
    world.run()
    assert {path: path.read_bytes() for path in successor.path.iterdir()} == files


@pytest.mark.parametrize("values", [[b"small"], LARGE], ids=["inline", "in the writer thread"])
def test_append_that_waits_for_its_sync_is_refused_when_the_topic_goes(
    make_storage: MakeStorage, world: VirtualWorld, values: list[bytes]
) -> None:
    storage = make_storage(pybroker_fsync_before_ack="true")
    client = Client(storage.log(internal_segment_bytes=1 << 20))
    assert client.send() is None  # its sync is under way
    assert client.send(values=values) is None
    storage.manager.delete("t", TOPIC_ID, 10)
    world.run()
    assert [result.error_code for result in client.later] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert storage.all_failed == 0


PARTITIONS = 20


@pytest.fixture
def half_deleted(storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A topic of many partitions is deleted, and renaming is so slow that some of them are still there."""
    for index in range(PARTITIONS):
        Client(storage.log(partition=index)).fill(1)
    plain_rename = os_file.rename

    def slow_rename(source: Path, target: Path) -> None:
        if source.parent == storage.path:
            world.clock.pass_ms(1)
        plain_rename(source, target)

    monkeypatch.setattr(os_file, "rename", slow_rename)
    storage.manager.delete("t", TOPIC_ID, PARTITIONS)
    assert PARTITIONS - DELETION_SLICE_MS <= len(left_of(storage)) < PARTITIONS
    return storage


def left_of(storage: Storage) -> list[Path]:
    return [path for path in storage.path.glob("t-*") if not path.name.endswith("-delete")]


def test_partitions_of_a_deleted_topic_are_put_aside_in_slices(half_deleted: Storage, world: VirtualWorld) -> None:
    turns = 0
    while left_of(half_deleted):
        before = len(left_of(half_deleted))
        world.step()
        assert before - len(left_of(half_deleted)) <= DELETION_SLICE_MS
        turns += 1
        assert turns <= PARTITIONS
    world.advance(PARTITIONS)
    points = checkpoints.read_offset_checkpoint(half_deleted.path / "recovery-point-offset-checkpoint")
    assert points == {}


def test_a_clean_stop_puts_the_rest_aside(half_deleted: Storage, make_storage: MakeStorage) -> None:
    half_deleted.close()
    assert left_of(half_deleted) == []


def test_a_topic_made_anew_before_all_of_the_old_one_is_put_aside_keeps_its_own(
    half_deleted: Storage, world: VirtualWorld
) -> None:
    successor = half_deleted.log(partition=PARTITIONS - 1, topic_id=ANOTHER_ID)
    Client(successor).fill(7)
    world.advance(PARTITIONS)
    assert left_of(half_deleted) == [successor.path]
    assert len(read_all(successor)) == 7


def test_a_replica_that_comes_back_before_it_is_put_aside_begins_anew_and_stays(
    half_deleted: Storage, world: VirtualWorld
) -> None:
    successor = half_deleted.log(partition=PARTITIONS - 1)
    Client(successor).fill(7)
    world.advance(PARTITIONS)
    assert left_of(half_deleted) == [successor.path]
    assert len(read_all(successor)) == 7


def test_a_deleted_topic_is_not_looked_for_among_all_partitions(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(PARTITIONS):
        Client(storage.log(partition=index)).fill(1)
    walks = 0

    def walk(_places: PartitionPlaces) -> Iterator[TopicPartition]:
        nonlocal walks
        walks += 1
        return iter(())

    monkeypatch.setattr(PartitionPlaces, "__iter__", walk)
    storage.manager.delete("t", TOPIC_ID, PARTITIONS)
    assert (left_of(storage), walks) == ([], 0)

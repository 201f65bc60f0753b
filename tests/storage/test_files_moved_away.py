"""A partition's files that are moved away or removed under a running broker: nothing is acknowledged for long that no
start would find, and nothing begins anew in their place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage

MakeStorage = Callable[..., Storage]
Lose = Callable[[Path], None]
STORAGE_ERROR = 56
CHECKPOINT_INTERVAL_MS = 5_000
SEGMENT_BYTES = 4_096  # of the logs of these tests


def move_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def remove(path: Path) -> None:
    shutil.rmtree(path)


def empty(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def replace_by_copy(path: Path) -> None:
    move_away(path)
    shutil.copytree(path.with_name("elsewhere"), path)


def remove_data(path: Path) -> None:
    for file in path.glob("*.log"):
        file.unlink()


WAYS = pytest.mark.parametrize("lose", [move_away, remove, empty, replace_by_copy, remove_data])


def send(client: Client, world: VirtualWorld) -> int:
    """The error of one more append; the partition above moves the high watermark with it."""
    result = client.send(batch(values=[b"value"]))
    world.run()
    client.log.update_high_watermark(client.log.committed_end)
    return (result or client.later[-1]).error_code


def files_below(path: Path) -> list[Path]:
    return sorted(file.relative_to(path) for file in path.rglob("*"))


@WAYS
def test_appends_are_refused_from_the_next_look_on(storage: Storage, world: VirtualWorld, lose: Lose) -> None:
    client = Client(storage.log())
    assert send(client, world) == 0
    world.advance(CHECKPOINT_INTERVAL_MS)
    lose(client.log.path)
    assert send(client, world) == 0
    world.advance(CHECKPOINT_INTERVAL_MS)
    assert client.log.directory.offline
    assert storage.all_failed == 1
    assert send(client, world) == STORAGE_ERROR


@WAYS
def test_appends_are_refused_from_the_next_segment_on(storage: Storage, world: VirtualWorld, lose: Lose) -> None:
    client = Client(storage.log(internal_segment_bytes=SEGMENT_BYTES))
    assert send(client, world) == 0
    lose(client.log.path)
    before = files_below(storage.path)
    errors = [send(client, world) for _ in range(SEGMENT_BYTES // 60)]
    assert errors.index(STORAGE_ERROR) * 60 < SEGMENT_BYTES
    assert set(errors[errors.index(STORAGE_ERROR) :]) == {STORAGE_ERROR}
    assert client.log.directory.offline
    assert files_below(storage.path) == before


@WAYS
def test_nothing_is_acknowledged_that_waits_for_a_sync(
    make_storage: MakeStorage, world: VirtualWorld, lose: Lose
) -> None:
    client = Client(make_storage(pybroker_fsync_before_ack="true").log())
    assert send(client, world) == 0
    lose(client.log.path)
    assert send(client, world) == STORAGE_ERROR
    assert client.log.directory.offline


@WAYS
def test_file_whose_descriptor_was_closed_is_looked_for_too(storage: Storage, world: VirtualWorld, lose: Lose) -> None:
    client = Client(storage.log())
    assert send(client, world) == 0
    client.log.active.close()
    lose(client.log.path)
    if lose is replace_by_copy:
        assert send(client, world) == 0  # what was put there is what is used from now on, and a start finds it
    else:
        assert send(client, world) == STORAGE_ERROR
        assert client.log.directory.offline


@WAYS
def test_partition_that_was_parked_does_not_begin_anew(storage: Storage, world: VirtualWorld, lose: Lose) -> None:
    client = Client(storage.log())
    assert send(client, world) == 0
    partition_log = storage.partition_log()
    partition_log.shut()
    lose(partition_log.path)
    client.log = partition_log.open()
    if lose is replace_by_copy:
        assert client.log.log_end_offset == 1
    else:
        assert send(client, world) == STORAGE_ERROR
        assert client.log.directory.offline


@pytest.mark.parametrize("lose", [move_away, remove])
def test_partition_that_nobody_touched_since_the_start_does_not_begin_anew(
    make_storage: MakeStorage, world: VirtualWorld, lose: Lose
) -> None:
    former = make_storage()
    client = Client(former.log())
    assert send(client, world) == 0
    former.close()
    later = make_storage()
    lose(client.log.path)
    client = Client(later.log())
    assert send(client, world) == STORAGE_ERROR
    assert client.log.directory.offline


def test_looks_leave_alone_what_the_broker_itself_removes_or_replaces(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    """Deleted topics, truncated logs, whose file may be replaced by a copy, and segments that retention drops."""
    storage = make_storage(pybroker_fsync_before_ack="true")
    names = ("deleted", "truncated", "emptied", "rolled", "shut")
    clients = {name: Client(storage.log(name, topic_id=name.encode().ljust(16))) for name in names}
    for client in clients.values():
        for _ in range(80):
            assert send(client, world) == 0
    clients["deleted"].send(batch(values=[b"value"]))  # its sync is under way when the partition goes
    held = clients["truncated"].log.active.readable()[:1]
    clients["truncated"].log.truncate_to(clients["truncated"].log.log_end_offset - 1)
    clients["emptied"].log.truncate_fully_and_start_at(100)
    clients["rolled"].log.roll()
    clients["rolled"].log.increment_log_start_offset(80)
    assert clients["rolled"].log.apply_retention()
    clients["shut"].log = storage.shut_and_open(clients["shut"].log)
    storage.manager.delete("deleted", b"deleted".ljust(16), 10)
    world.advance(CHECKPOINT_INTERVAL_MS)
    assert [send(client, world) for name, client in clients.items() if name != "deleted"] == [0] * 4
    world.advance(CHECKPOINT_INTERVAL_MS)
    assert not clients["deleted"].log.directory.offline
    del held


def test_only_partitions_that_were_appended_to_are_looked_for(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    real = os_file.check_place

    def check_place(path: Path, fd: int, size: int) -> None:
        looked_at.append(path.parent.name)
        real(path, fd, size)

    monkeypatch.setattr(os_file, "check_place", check_place)
    clients = [Client(storage.log(partition=partition)) for partition in range(100)]
    for client in clients:
        assert send(client, world) == 0
        world.advance(CHECKPOINT_INTERVAL_MS)
    assert sorted(looked_at) == sorted(f"t-{partition}" for partition in range(100))
    looked_at.clear()
    assert send(clients[7], world) == 0
    world.advance(CHECKPOINT_INTERVAL_MS)
    assert looked_at == ["t-7"]

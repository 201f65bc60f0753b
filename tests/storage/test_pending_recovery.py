"""After a crash: what has little data is recovered at its first touch or in the background, never served before."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import storage_limits
from pybroker.storage.files import os_file
from pybroker.storage.log import recovery
from pybroker.storage.log.recovery import Recovered
from pybroker.storage.manager.pending_recovery import RECOVERY_PAUSE_MS, RECOVERY_SLICE_PARTITIONS
from tests.storage.logs import TOPIC_ID, Client, Storage, read_all

MakeStorage = Callable[..., Storage]

PARTITIONS = 3 * RECOVERY_SLICE_PARTITIONS
TORN = b"\x01torn"


@pytest.fixture
def recovered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the partitions' directories, in the order in which they were recovered."""
    names: list[str] = []
    recover_partition = recovery.recover_partition

    def note(directory: Path, *offsets: int) -> Recovered:
        names.append(directory.name)
        return recover_partition(directory, *offsets)

    monkeypatch.setattr(recovery, "recover_partition", note)
    return names


@pytest.fixture
def crashed(make_storage: MakeStorage) -> Path:
    """A data directory that a crash left: many partitions, each with a torn tail."""
    storage = make_storage()
    for partition in range(PARTITIONS):
        log = storage.log(partition=partition)
        Client(log).fill(3)
    storage.kill()
    for path in storage.path.glob("t-*/*.log"):
        with path.open("ab") as file:
            file.write(TORN)
    return storage.path


def torn(path: Path) -> list[str]:
    return [log.parent.name for log in path.glob("t-*/*.log") if log.read_bytes().endswith(TORN)]


def test_start_recovers_no_small_partition_and_the_background_all(
    crashed: Path, make_storage: MakeStorage, world: VirtualWorld, recovered: list[str]
) -> None:
    make_storage()
    assert recovered == []
    world.advance(RECOVERY_PAUSE_MS)
    assert 0 < len(recovered) <= RECOVERY_SLICE_PARTITIONS
    world.advance(10 * RECOVERY_PAUSE_MS)
    assert sorted(recovered) == sorted(f"t-{partition}" for partition in range(PARTITIONS))
    assert torn(crashed) == []


def test_first_touch_recovers_that_partition_once(
    crashed: Path, make_storage: MakeStorage, world: VirtualWorld, recovered: list[str]
) -> None:
    storage = make_storage()
    log = storage.log(partition=7)
    assert Client(log, leader_epoch=1).send_now(values=[b"after"]).base_offset == 3
    assert recovered == ["t-7"]
    assert len(read_all(log)) == 4
    assert len(torn(crashed)) == PARTITIONS - 1
    world.advance(10 * RECOVERY_PAUSE_MS)
    assert recovered.count("t-7") == 1


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_partition_with_much_data_is_recovered_before_the_start_is_over(
    make_storage: MakeStorage, recovered: list[str], excess: int
) -> None:
    storage = make_storage()
    log = storage.log(internal_segment_bytes=1 << 20)
    Client(log).fill(1)
    storage.kill()
    os.truncate(log.active.path(), storage_limits.RECOVERED_AT_FIRST_TOUCH_BYTES_MAX + excess)
    make_storage()
    assert recovered == ["t-0"] * (excess > 0)


def test_all_is_recovered_and_synced_before_the_start_where_acknowledgements_wait_for_syncs(
    crashed: Path, make_storage: MakeStorage, recovered: list[str]
) -> None:
    make_storage(pybroker_fsync_before_ack=True)
    assert len(recovered) == PARTITIONS
    assert torn(crashed) == []


def test_clean_stop_recovers_what_nobody_touched_before_it_leaves_its_mark(
    crashed: Path, make_storage: MakeStorage, recovered: list[str]
) -> None:
    storage = make_storage()
    storage.log(partition=1)
    storage.close()
    assert len(recovered) == PARTITIONS
    assert torn(crashed) == []
    recovered.clear()
    again = make_storage()
    assert len(read_all(again.log(partition=2))) == 3
    assert recovered == []


def test_kill_before_the_background_has_come_to_it_loses_nothing(
    crashed: Path, make_storage: MakeStorage, recovered: list[str]
) -> None:
    for _ in range(3):
        make_storage().kill()
    assert recovered == []
    assert len(read_all(make_storage().log(partition=5))) == 3


def test_deleted_partition_is_not_recovered(
    crashed: Path, make_storage: MakeStorage, world: VirtualWorld, recovered: list[str]
) -> None:
    storage = make_storage()
    storage.manager.delete("t", TOPIC_ID, PARTITIONS)
    world.advance(10 * RECOVERY_PAUSE_MS)
    assert recovered == []
    storage.close()


def test_recovery_without_a_descriptor_waits_and_goes_on(
    crashed: Path, make_storage: MakeStorage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = make_storage()

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os_file, "open_for_append", refuse)
        world.advance(10 * RECOVERY_PAUSE_MS)
        assert len(torn(crashed)) == PARTITIONS
    world.advance(10 * RECOVERY_PAUSE_MS)
    assert torn(crashed) == []
    assert not storage.all_failed

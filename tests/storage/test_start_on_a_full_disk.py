"""A start where nothing can be written: reads are served, appends are refused, and all heals once there is room."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import storage_limits
from pybroker.storage.files import os_file
from pybroker.storage.results import KAFKA_STORAGE_ERROR
from tests.storage.logs import Client, Storage
from tests.storage.whole_logs import DAMAGES, answers, fill

# Files that a recovery makes anew.  Transactions that were aborted are not: without their index they would be shown, so
# the log is refused until it can be written.
MADE_ANEW = ("*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint")


class FullDisk:
    """Refuses every write while ``is_full``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        monkeypatch.setattr(os_file, "pwrite", self.pwrite)

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, position)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What a killed broker left, nothing of it synced, and what its log answered."""
    path = tmp_path_factory.mktemp("killed") / "data"
    world = VirtualWorld()
    storage = Storage(path, world)
    log = fill(storage)
    expected = answers(log)
    storage.manager._housekeeping.checkpoint_recovery_points()
    storage.manager._housekeeping.checkpoint_log_starts()
    world.run()
    storage.kill()
    (path / "recovery-point-offset-checkpoint").unlink()
    with log.active.path().open("ab") as file:
        file.write(b"torn")
    return path, expected


@pytest.mark.parametrize("at_first_touch", [True, False])
@pytest.mark.parametrize("pattern", [None, *MADE_ANEW])
@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "a directory"])
def test_start_on_a_full_disk_serves_reads_and_heals(
    killed: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    disk: FullDisk,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
    pattern: str | None,
    at_first_touch: bool,
) -> None:
    template, expected = killed
    path = tmp_path / "data"
    shutil.copytree(template, path)
    for file in path.glob(f"t-0/{pattern}"):
        DAMAGES[damage](file)
    if not at_first_touch:
        monkeypatch.setattr(storage_limits, "RECOVERED_AT_FIRST_TOUCH_BYTES_MAX", 0)
    world = VirtualWorld()
    disk.is_full = True
    storage = Storage(path, world)
    world.advance(100)
    log = storage.log()
    assert answers(log) == expected
    client = Client(log, leader_epoch=9)
    assert client.send_now(values=[b"refused"]).error_code == KAFKA_STORAGE_ERROR
    assert answers(storage.shut_and_open(log)) == expected
    assert not storage.all_failed
    storage.kill()

    storage = Storage(path, world)  # killed once more, and there is no room yet
    log = storage.log()
    assert answers(log) == expected
    disk.is_full = False
    end_offset = log.log_end_offset
    result = Client(log, leader_epoch=9).send_now(values=[b"taken"])
    assert (result.error_code, result.base_offset) == (0, end_offset)
    healed = answers(log)
    assert healed["records"][:-1] == expected["records"]
    storage.close()
    assert (path / ".kafka_cleanshutdown").exists()
    storage = Storage(path, world)
    assert answers(storage.log()) == healed
    storage.kill()


def test_clean_stop_on_a_full_disk_leaves_no_mark(tmp_path: Path, disk: FullDisk) -> None:
    world = VirtualWorld()
    storage = Storage(tmp_path / "data", world)
    Client(storage.log()).fill(3)
    disk.is_full = True
    storage.close()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_log_whose_aborted_transactions_cannot_be_written_down_is_refused_until_there_is_room(
    killed: tuple[Path, dict[str, Any]], tmp_path: Path, disk: FullDisk
) -> None:
    template, expected = killed
    path = tmp_path / "data"
    shutil.copytree(template, path)
    for file in path.glob("t-0/*.txnindex"):
        file.unlink()
    world = VirtualWorld()
    disk.is_full = True
    storage = Storage(path, world)
    log = storage.log()
    assert log.refuses
    assert not storage.all_failed
    disk.is_full = False
    assert answers(storage.log()) == expected
    storage.kill()

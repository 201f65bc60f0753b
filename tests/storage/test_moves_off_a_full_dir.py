"""A replica is moved off a log dir without room: nothing of it has to be written there."""

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
from pybroker.storage.results import KAFKA_STORAGE_ERROR, NONE
from tests.storage.logs import TRANSACTIONAL_FLAG, Client, Storage, read_all
from tests.storage.test_replica_moves import finish, move, other_dir, storage  # noqa: F401


def fill_up(monkeypatch: pytest.MonkeyPatch, directory: Path, spared: str = "nothing") -> None:
    """Nothing can be written below the directory any more, but to files of the suffix that is spared."""

    def pwrite(fd: int, data: Any, position: int) -> int:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if directory in path.parents and path.suffix != spared:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, position)

    monkeypatch.setattr(os_file, "pwrite", pwrite)


def held(log: Log) -> tuple[object, ...]:
    """All that a log has to have: batches, aborted transactions, leader epochs, and who has written last."""
    aborted = [tuple(entry) for segment in log.segments for entry in segment.txn_index.entries]
    return read_all(log), aborted, log.leader_epochs.entries, sorted(log.producers.producers)


@pytest.mark.parametrize("ends_cleanly", [True, False])
def test_a_replica_leaves_a_log_dir_without_room_with_all_that_it_held(
    storage: Storage,  # noqa: F811
    world: VirtualWorld,
    make_storage: Callable[..., Storage],
    monkeypatch: pytest.MonkeyPatch,
    ends_cleanly: bool,
) -> None:
    log = storage.log()
    source, target, client = log.directory.path, other_dir(storage, log), Client(log)
    client.fill(30)
    fill_up(monkeypatch, source, spared=".log")  # the batches of one more transaction and epoch are the last to find it
    client.leader_epoch = 7
    client.send_now(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    assert client.end(1, 0, commit=False).error_code == NONE
    fill_up(monkeypatch, source)
    assert client.send_now().error_code == KAFKA_STORAGE_ERROR
    before = held(log)
    assert move(storage, log) == NONE
    finish(storage, world)
    assert log.path == target / "t-0"
    assert held(log) == before
    assert client.send_now().error_code == NONE
    before = held(log)
    storage.close() if ends_cleanly else storage.kill()
    again = make_storage(dirs=2).log()
    assert again.path == target / "t-0"
    assert held(again) == before

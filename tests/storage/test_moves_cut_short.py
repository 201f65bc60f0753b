"""A kill inside of any system call of a move: the next start finds all that was acknowledged, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file
from tests.storage.logs import TOPIC_ID, Client, Storage, read_all
from tests.storage.test_replica_moves import finish, move, other_dir, step

CALLS = ("pwrite", "ftruncate", "rename", "fdatasync", "sync_path", "unlink", "mkdir", "utime")


class Killed(BaseException):
    """The process has ended."""


class Deaths:
    """Counts system calls, and ends the process in one of them; nothing is done after that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: Iterable[str] = CALLS) -> None:
        self.calls = 0
        self.dies_in = -1
        for name in names:
            monkeypatch.setattr(os_file, name, self._counted(getattr(os_file, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if 0 <= self.dies_in <= self.calls:
                raise Killed
            return real(*args, **options)

        return call


def moved_under_load(storage: Storage, world: VirtualWorld) -> int:
    """Fill a log, and move it while it is appended to; how many records were acknowledged, at most until a death."""
    log = storage.log()
    client = Client(log)
    client.fill(60)
    acknowledged = 60
    try:
        move(storage, log)
        while storage.manager.moves._executors:
            if acknowledged < 90:
                result = client.send()
                acknowledged += result is not None and result.error_code == 0
            step(world)
        world.advance(100_000)
    except Killed:
        pass
    return acknowledged + sum(result.error_code == 0 for result in client.later)


def check_after_a_start(root: Path, acknowledged: int) -> None:
    """Start over what is there: everything acknowledged lies in one place, once, and the move comes to its end."""
    world = VirtualWorld()
    storage = Storage(root / "data", world, dirs=2)
    try:
        storage.manager.settle(lambda topic, partition: (TOPIC_ID, None))
        places = list(root.glob("data?/t-0"))
        assert len(places) == 1, places
        log = storage.log()
        found = [base for base, _, _ in read_all(log)]
        assert found == list(range(len(found)))
        assert len(found) >= acknowledged
        world.advance(1)
        finish(storage, world)
        assert [base for base, _, _ in read_all(log)] == found
        assert Client(log).send_now().base_offset == len(found)
        world.advance(100_000)
        assert [path.name for path in root.glob("data?/t-0*")] == ["t-0"]
    finally:
        storage.kill()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_kill_in_any_system_call_of_a_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    deaths = Deaths(monkeypatch)
    world = VirtualWorld()
    storage = Storage(tmp_path / "whole" / "data", world, dirs=2)
    assert moved_under_load(storage, world) > 60
    storage.kill()
    for dies_in in range(1 + part, deaths.calls, 4):
        deaths.calls, deaths.dies_in = 0, -1
        root = tmp_path / str(dies_in)
        world = VirtualWorld()
        storage = Storage(root / "data", world, dirs=2)
        deaths.calls, deaths.dies_in = 0, dies_in
        try:
            acknowledged = moved_under_load(storage, world)
        except Killed:
            acknowledged = 0  # in the fill
        deaths.dies_in = -1
        storage.kill()
        if acknowledged:
            check_after_a_start(root, acknowledged)


def test_a_replica_that_moved_and_was_deleted_may_come_back_after_a_kill(tmp_path: Path) -> None:
    world = VirtualWorld()
    storage = Storage(tmp_path / "data", world, dirs=2)
    log = storage.log()
    Client(log).fill(5)
    move(storage, log)
    finish(storage, world)
    assert not list(tmp_path.glob("data?/t-0.*-moved"))
    storage.manager.delete("t", TOPIC_ID, 1)
    world.advance(1)
    storage.kill()
    after = Storage(tmp_path / "data", VirtualWorld(), dirs=2)
    try:
        after.manager.settle(lambda topic, partition: None)
        assert after.log().log_end_offset == 0
    finally:
        after.kill()


@pytest.mark.parametrize("dies_in", range(1, 5))
def test_a_kill_in_any_rename_of_the_move_of_an_empty_log_leaves_it_in_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: int
) -> None:
    """Where the move had begun: the first rename is that of the file which says whose the target is."""
    storage = Storage(tmp_path / "data", VirtualWorld(), dirs=2)
    log = storage.log()
    move(storage, log)
    source, target = log.path, other_dir(storage, log) / "t-0"
    assert source.is_dir()
    deaths = Deaths(monkeypatch, ["rename"])
    deaths.dies_in = dies_in
    with pytest.raises(Killed):
        move(storage, log)
    deaths.dies_in = -1
    storage.kill()
    world = VirtualWorld()
    after = Storage(tmp_path / "data", world, dirs=2)
    try:
        after.manager.settle(lambda topic, partition: (TOPIC_ID, None))
        after.log()
        finish(after, world)
        world.advance(100_000)
        assert list(tmp_path.glob("data?/t-0*")) == [source if dies_in == 1 else target]
    finally:
        after.kill()

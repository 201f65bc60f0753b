"""What the kernel holds of a segment: it is asked to begin to write it by and by, and nobody waits for that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file, segment_file
from pybroker.storage.log import append_run
from pybroker.storage.log.log import Log
from pybroker.storage_limits import INLINE_WRITE_BYTES_MAX
from tests.storage.batches import batch
from tests.storage.logs import LATEST_PRODUCE, Client, Storage

DUE = 10_000
SEGMENT_BYTES = 1 << 20


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """File, start and length of each range that the kernel was asked to begin to write."""
    ranges: list[tuple[str, int, int]] = []
    monkeypatch.setattr(segment_file, "WRITE_BACK_BYTES", DUE)

    def begin_write_back(fd: int, start: int, length: int) -> None:
        ranges.append((os.path.basename(os.readlink(f"/proc/self/fd/{fd}")), start, length))

    monkeypatch.setattr(os_file, "begin_write_back", begin_write_back)
    return ranges


@pytest.fixture
def log(make_storage: Callable[..., Storage], begun: list[tuple[str, int, int]]) -> Log:
    """A log of one large segment, made when ``begun`` listens already."""
    return make_storage().log(internal_segment_bytes=SEGMENT_BYTES)


@pytest.mark.parametrize("size", [500, INLINE_WRITE_BYTES_MAX])
def test_a_segment_is_written_back_piece_by_piece_without_gaps_and_without_a_sync(
    log: Log, world: VirtualWorld, begun: list[tuple[str, int, int]], size: int
) -> None:
    client = Client(log)
    while len(begun) < 3:
        client.send(values=[bytes(size)])
        world.run()
        assert log.active.size < SEGMENT_BYTES // 2
    assert {name for name, _, _ in begun} == {"00000000000000000000.log"}
    starts = [start for _, start, _ in begun]
    assert starts == [0, *(start + length for _, start, length in begun[:-1])]
    assert all(DUE <= length < DUE + size + 200 for _, _, length in begun)
    assert log.active.pins == 0
    assert (log.recovery_point, log.active.synced_bytes) == (0, 0)


def test_batches_that_are_appended_together_count_as_well(
    log: Log, world: VirtualWorld, begun: list[tuple[str, int, int]]
) -> None:
    batches = [memoryview(batch(values=[bytes(3000)])) for _ in range(4)]
    client = Client(log)
    client.send_now()
    before = log.active.size
    assert append_run.append_run(log, batches, 0, LATEST_PRODUCE) == [1, 2, 3, 4]
    world.run()
    assert begun == [("00000000000000000000.log", 0, before + sum(map(len, batches)))]


def test_what_was_synced_is_not_written_back_again(
    log: Log, world: VirtualWorld, begun: list[tuple[str, int, int]]
) -> None:
    client = Client(log)
    client.fill(8, size=1000)
    log.flushes.flush()
    world.run()
    synced = log.active.size
    client.fill(8, size=1000)
    world.run()
    assert begun == []
    client.fill(2, size=1000)
    world.run()
    assert [start for _, start, _ in begun] == [synced]


def test_a_cut_log_is_written_back_from_the_cut_on(
    log: Log, world: VirtualWorld, begun: list[tuple[str, int, int]]
) -> None:
    client = Client(log)
    client.fill(15, size=1000)
    world.run()
    assert len(begun) == 1
    log.truncate_to(1)
    cut = log.active.size
    client.fill(15, size=1000)
    world.run()
    assert [start for _, start, _ in begun] == [0, cut]


def test_a_log_whose_syncs_are_off_is_left_to_the_kernel(
    log: Log, world: VirtualWorld, begun: list[tuple[str, int, int]]
) -> None:
    log.directory.sync = False
    Client(log).fill(15, size=1000)
    world.run()
    assert begun == []


def test_the_kernel_takes_the_request(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    with path.open("rb+") as file:
        os_file.begin_write_back(file.fileno(), 0, 100_000)
    os_file.begin_write_back(-1, 0, 1)  # nobody waits for it, so there is nobody to tell

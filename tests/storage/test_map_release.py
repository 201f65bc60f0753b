"""What was read through maps: past a bound it is not kept as the process's memory, and whoever reads sees the same."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import storage_limits
from pybroker.storage.files import os_file, os_process, segment_file
from pybroker.storage.files.segment_file import SegmentFile
from pybroker.storage.log.log import Log
from pybroker.storage.manager.housekeeping import MAPPED_CHECK_INTERVAL_MS
from pybroker.storage.manager.map_release import UNREAD_CHECK_INTERVAL_MS
from tests.storage.logs import Client, Storage, read_all, read_now

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is resident is told by Linux alone")

BOUND = 1 << 20
TAIL = 256 << 10
A_LOOK_MS = MAPPED_CHECK_INTERVAL_MS
UNREAD_MS = UNREAD_CHECK_INTERVAL_MS


@pytest.fixture
def storage(make_storage: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A log manager that minds a megabyte, and takes the last 256 KB of a segment for what is read next."""
    monkeypatch.setattr(storage_limits, "MAPPED_BYTES_MAX", BOUND)
    monkeypatch.setattr(segment_file, "WARM_TAIL_BYTES", TAIL)
    return make_storage()


def filled(storage: Storage, size: int, segment_bytes: int = 64 << 20) -> Log:
    """A log of so many bytes, none of which was read yet."""
    log = storage.log(internal_segment_bytes=segment_bytes)
    Client(log).fill(size // 100_000, size=100_000)
    log.update_high_watermark(log.log_end_offset)
    return log


def resident_bytes(directory: Path) -> int:
    """How much of the mapped files below a directory counts as this process's memory."""
    resident, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            counts = rest[-1].startswith(f"{directory}/")
        elif first == "Rss:" and counts:
            resident += 1024 * int(rest[0])
    return resident


def test_what_was_appended_and_read_does_not_stay_the_process_s_memory_but_for_the_end(
    storage: Storage, world: VirtualWorld
) -> None:
    log = filled(storage, 8 << 20)
    before = read_all(log)
    assert resident_bytes(log.path) > 7 << 20
    world.advance(A_LOOK_MS)
    assert TAIL <= resident_bytes(log.path) < 2 * TAIL
    assert read_all(log) == before


def test_segments_that_nobody_reads_any_more_do_not_stay_either(storage: Storage, world: VirtualWorld) -> None:
    log = filled(storage, 8 << 20, 1 << 20)
    before = read_all(log)
    world.advance(2 * UNREAD_MS)
    assert resident_bytes(log.path) == 0
    assert read_all(log) == before


def test_what_is_read_again_and_again_stays_mapped(storage: Storage, world: VirtualWorld) -> None:
    log = filled(storage, 4 << 20)
    read_all(log)
    world.advance(A_LOOK_MS)  # what was appended is let go of once
    for _ in range(3 * UNREAD_MS // A_LOOK_MS):
        read_all(log)
        world.advance(A_LOOK_MS)
        assert resident_bytes(log.path) > 3 << 20


def test_what_is_let_go_of_while_it_is_being_sent_is_read_again(storage: Storage, world: VirtualWorld) -> None:
    log = filled(storage, 4 << 20)
    records = read_now(log, 0, 8 << 20, log.log_end_offset).records
    copy = bytes(records)
    world.advance(2 * UNREAD_MS)
    assert resident_bytes(log.path) < 2 * TAIL
    assert records == copy


def test_a_little_stays_mapped(storage: Storage, world: VirtualWorld) -> None:
    log = filled(storage, BOUND // 2)
    read_all(log)
    mapped = resident_bytes(log.path)
    world.advance(3 * UNREAD_MS)
    assert resident_bytes(log.path) == mapped > 0


def test_an_end_that_was_cut_and_written_anew_counts_as_written_lately(storage: Storage, world: VirtualWorld) -> None:
    log = filled(storage, 4 << 20)
    read_all(log)
    world.advance(A_LOOK_MS)
    log.truncate_to(1)
    Client(log).fill(40, size=100_000)
    log.update_high_watermark(log.log_end_offset)
    read_all(log)
    world.advance(A_LOOK_MS)
    assert resident_bytes(log.path) < 2 * TAIL


@pytest.mark.parametrize(
    ("segment_bytes", "bytes_per_turn"),
    [(128 << 10, 32 << 20), (64 << 20, 1 << 20)],
    ids=["many segments", "large one"],
)
def test_in_a_turn_of_the_loop_little_is_let_go_of(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, segment_bytes: int, bytes_per_turn: int
) -> None:
    monkeypatch.setattr("pybroker.storage.manager.map_release.RELEASED_BYTES_PER_TURN", bytes_per_turn)
    log = filled(storage, 8 << 20, segment_bytes)
    read_all(log)
    turns: list[list[int]] = []
    release = SegmentFile.release_pages

    def noted(segment: SegmentFile, start: int, end: int) -> None:
        turns[-1].append(end - start)
        release(segment, start, end)

    monkeypatch.setattr(SegmentFile, "release_pages", noted)
    end_ms = world.clock.now_ms() + 2 * UNREAD_MS + A_LOOK_MS
    while world.clock.now_ms() < end_ms:
        turns.append([])
        world.step()
    assert resident_bytes(log.path) < 2 * TAIL
    assert max(map(len, turns)) <= storage_limits.PARTITIONS_PER_TURN
    assert all(sum(turn) < bytes_per_turn + (1 << 20) for turn in turns)
    assert len(list(filter(None, turns))) > 2


def test_pages_that_are_locked_into_memory_stay(storage: Storage, world: VirtualWorld) -> None:
    log = filled(storage, 4 << 20)
    before = read_all(log)
    held = log.active._map
    assert held is not None
    libc = ctypes.CDLL(None, use_errno=True)
    address, page = ctypes.c_void_p(os_file.map_address(held)), ctypes.c_size_t(4096)
    if libc.mlock(address, page):
        pytest.skip("no page may be locked here")
    try:
        world.advance(2 * UNREAD_MS)
        assert resident_bytes(log.path) > 0
        assert read_all(log) == before
    finally:
        libc.munlock(address, page)


def test_a_closed_storage_lets_go_of_nothing_more(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(storage, 8 << 20, 128 << 10)
    read_all(log)
    while not storage.manager._housekeeping._maps._rest:  # in the middle of it
        world.step()
    storage.close()
    monkeypatch.delattr(SegmentFile, "release_pages")
    world.advance(3 * UNREAD_MS)


def test_where_nobody_tells_what_is_mapped_nobody_looks(
    make_storage: Callable[..., Storage], world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def resident_file_bytes() -> int:
        asked.append(world.clock.now_ms())
        return 0

    monkeypatch.setattr(os_process, "resident_file_bytes", resident_file_bytes)
    make_storage()
    world.advance(3 * A_LOOK_MS)
    assert len(asked) == 1  # at the start

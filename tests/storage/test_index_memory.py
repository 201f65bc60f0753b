"""What searches by timestamp leave in memory: of a sealed segment's time index nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files.time_index import TimeIndex
from pybroker.storage.log.log import Log
from pybroker.storage.results import TimestampOffset
from tests.storage.logs import TRANSACTIONAL_FLAG, Client, Storage, read_all

MakeStorage = Callable[..., Storage]
FIRST_MS = 1_700_000_000_000


@pytest.fixture
def reopened(make_storage: MakeStorage) -> Log:
    """A log of several segments, whose records are a second apart, after a clean restart."""
    storage = make_storage()
    client = Client(storage.log(retention_ms=-1))
    for i in range(100):
        client.fill(1, timestamp=FIRST_MS + 1000 * i)
    storage.close()
    log = make_storage().log(retention_ms=-1)
    assert len(log.segments) > 3
    return log


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of the time indexes that are read as a whole from now on."""
    base_offsets: list[int] = []
    load = TimeIndex.load.__func__  # type: ignore[attr-defined]

    def noted(cls: type[TimeIndex], path: Path, base_offset: int) -> Any:
        base_offsets.append(base_offset)
        return load(cls, path, base_offset)

    monkeypatch.setattr(TimeIndex, "load", classmethod(noted))
    return base_offsets


def held(log: Log) -> list[int]:
    """The base offsets of the sealed segments whose time index is in memory."""
    return [segment.base_offset for segment in log.segments if segment.sealed and segment._time_index is not None]


def test_search_by_timestamp_reads_one_time_index_and_of_the_others_the_end(reopened: Log, loaded: list[int]) -> None:
    wanted = reopened.segments[2]
    loaded.clear()
    found = reopened.offset_for_timestamp(FIRST_MS + 1000 * (wanted.base_offset + 3))
    assert isinstance(found, TimestampOffset)
    assert found.offset == wanted.base_offset + 3
    assert loaded == [wanted.base_offset]
    newest = reopened.offset_of_max_timestamp()
    assert isinstance(newest, TimestampOffset)
    assert newest.offset == 99
    assert loaded == [wanted.base_offset]
    assert held(reopened) == []


def test_time_index_is_not_kept_once_its_segment_is_sealed(storage: Storage) -> None:
    log = storage.log()
    Client(log).fill(100)
    assert len(log.segments) > 3
    assert held(log) == []
    assert log.active.time_index is log.active.time_index
    assert [segment.max_timestamp for segment in log.segments] == [FIRST_MS] * len(log.segments)


_ENTRIES = pack(">qi", 1000, 3) + pack(">qi", 2000, 9)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(_ENTRIES, id="two entries"),
        pytest.param(_ENTRIES[:12], id="one entry"),
        pytest.param(_ENTRIES + bytes(24), id="preallocated"),
        pytest.param(bytes(24), id="nothing but zeros"),
        pytest.param(_ENTRIES[:17], id="torn"),
        pytest.param(_ENTRIES[12:] + _ENTRIES[:12], id="falling"),
        pytest.param(pack(">qi", 1000, -1), id="before its segment"),
    ],
)
def test_end_of_a_time_index_is_what_the_whole_of_it_says(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "00000000000000000100.timeindex"
    path.write_bytes(data)
    whole = TimeIndex.load(path, 100) or TimeIndex(path, 100)
    assert TimeIndex.read_last(path, 100) == whole.last()


def test_missing_time_index_ends_where_it_begins(tmp_path: Path) -> None:
    assert TimeIndex.read_last(tmp_path / "none.timeindex", 100) == (-1, 100)


@pytest.mark.parametrize("preallocated", [False, True], ids=["as we leave it", "as a killed Kafka leaves it"])
def test_sealed_segment_that_is_cut_forgets_the_timestamps_behind_the_cut(reopened: Log, preallocated: bool) -> None:
    cut = reopened.segments[1]
    path = cut.path(".timeindex")
    if preallocated:
        path.write_bytes(path.read_bytes() + bytes(120))
    offset = cut.base_offset + 5
    reopened.truncate_to(offset)
    assert len(read_all(reopened)) == offset
    Client(reopened, leader_epoch=1).fill(3, timestamp=FIRST_MS)
    newest = reopened.offset_of_max_timestamp()
    assert isinstance(newest, TimestampOffset)
    assert (newest.offset, newest.timestamp) == (offset - 1, FIRST_MS + 1000 * (offset - 1))


@pytest.mark.parametrize("sealed", [False, True])
def test_segment_that_is_cut_knows_the_timestamps_before_the_cut(storage: Storage, sealed: bool) -> None:
    log = storage.log(index_interval_bytes=4096)
    for i in range(3):
        Client(log).fill(1, timestamp=FIRST_MS + 1000 * i)
    if sealed:
        log.roll()
    log.truncate_to(2)
    newest = log.offset_of_max_timestamp()
    assert isinstance(newest, TimestampOffset)
    assert (newest.offset, newest.timestamp) == (1, FIRST_MS + 1000)


def test_aborted_transactions_of_a_closed_sealed_segment_are_read_again(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log()
    client = Client(log)
    client.send_now(attributes=TRANSACTIONAL_FLAG, producer_id=7, producer_epoch=0, sequence=0)
    assert client.end(7, 0, commit=False).error_code == 0
    client.fill(60)
    world.run()
    log.update_high_watermark(log.log_end_offset)
    before = log.aborted_transactions(0, log.log_end_offset)
    assert len(before) == 1
    first = log.segments[0]
    first.close()
    assert first.txn_index._entries is None
    assert log.aborted_transactions(0, log.log_end_offset) == before

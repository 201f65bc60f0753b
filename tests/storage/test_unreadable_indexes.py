"""An index that cannot be read, for want of a descriptor or because the disk fails: an error code, no exception."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file
from pybroker.storage.log.log import Log
from pybroker.storage.log.timestamp_lookup import TimestampLookup
from pybroker.storage.results import KAFKA_STORAGE_ERROR, TimestampOffset
from tests.storage.logs import Client, Storage, read_now

INDEXES = (".index", ".timeindex")
RECORDS = 100
# The error, and how often every log directory has failed then.
FAULTS = pytest.mark.parametrize(("code", "failed"), [(errno.EMFILE, 0), (errno.EIO, 1)])


@contextmanager
def unreadable(code: int) -> Iterator[None]:
    """For a while nothing can be opened, and no index can be read."""
    read_bytes = os_file.read_bytes

    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    def read_none(path: Path) -> bytes:
        return bytes(fail()) if path.suffix in INDEXES else read_bytes(path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os_file, "read_bytes", read_none)
        patched.setattr(os_file, "open_for_append", fail)
        patched.setattr(os_file, "pread", fail)
        yield


@pytest.fixture
def log(storage: Storage, world: VirtualWorld) -> Log:
    """A log of several segments, just opened: no index of a sealed one is in memory yet."""
    log = storage.log()
    client = Client(log)
    for i in range(RECORDS):
        client.send_now(values=[bytes(100)], timestamp=world.clock.now_ms() + i)
    log.update_high_watermark(RECORDS)
    world.run()
    log = storage.shut_and_open(log)
    assert len(log.segments) > 2
    return log


@FAULTS
def test_read_that_cannot_see_the_index_is_a_storage_error(storage: Storage, log: Log, code: int, failed: int) -> None:
    with unreadable(code):
        assert read_now(log, 3, 1 << 20, RECORDS).error_code == KAFKA_STORAGE_ERROR
    assert storage.all_failed == failed
    if not failed:
        assert read_now(log, 3, 1 << 20, RECORDS).error_code == 0


@FAULTS
def test_bytes_that_cannot_be_counted_do_not_count(storage: Storage, log: Log, code: int, failed: int) -> None:
    with unreadable(code):
        assert log.bytes_between(3, RECORDS) == 0
    assert storage.all_failed == failed
    if not failed:
        assert log.bytes_between(3, RECORDS) > 0


@FAULTS
def test_search_by_timestamp_that_cannot_see_the_index_is_a_storage_error(
    storage: Storage, log: Log, world: VirtualWorld, code: int, failed: int
) -> None:
    def outcome(found: TimestampOffset | TimestampLookup | None) -> tuple[int, int] | None:
        assert not isinstance(found, TimestampLookup)
        return None if found is None else (found.error_code, found.offset)

    newest = world.clock.now_ms() + RECORDS - 1
    with unreadable(code):
        assert outcome(log.offset_for_timestamp(world.clock.now_ms() + 3)) == (KAFKA_STORAGE_ERROR, -1)
        assert outcome(log.offset_of_max_timestamp()) == (KAFKA_STORAGE_ERROR, -1)
    assert storage.all_failed == failed
    if not failed:
        assert outcome(log.offset_for_timestamp(world.clock.now_ms() + 3)) == (0, 3)
        assert outcome(log.offset_for_timestamp(newest)) == (0, RECORDS - 1)

"""A log that ends before what was on the disk, because somebody has cut or removed files, says so at its opening."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.logs import Client, Storage

MakeStorage = Callable[..., Storage]
SAID = "records are missing"


def nothing(active: Path) -> None:
    """All is there."""


def cut(active: Path) -> None:
    os.truncate(active, active.stat().st_size - 1)


def empty(active: Path) -> None:
    os.truncate(active, 0)


def remove(active: Path) -> None:
    active.unlink()


@pytest.mark.parametrize("lose", [nothing, cut, empty, remove])
@pytest.mark.parametrize("stop", [Storage.close, Storage.kill])
def test_log_that_has_lost_what_was_synced_says_so(
    make_storage: MakeStorage,
    caplog: pytest.LogCaptureFixture,
    lose: Callable[[Path], None],
    stop: Callable[[Storage], None],
) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).fill(80)
    log.flushes.flush()
    storage.world.run()
    storage.manager._housekeeping.checkpoint_recovery_points()
    storage.manager._housekeeping.checkpoint_log_starts()
    storage.world.run()
    end, active = log.log_end_offset, log.segments[-1].path()
    assert log.recovery_point == end
    stop(storage)
    lose(active)
    assert (make_storage().log().log_end_offset < end) == (lose is not nothing)
    assert (SAID in caplog.text) == (lose is not nothing)


def test_records_that_were_deleted_are_not_missing(make_storage: MakeStorage, caplog: pytest.LogCaptureFixture) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).fill(80)
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(log.log_end_offset)
    storage.world.run()
    storage.close()
    assert make_storage().log().log_end_offset == log.log_end_offset
    assert SAID not in caplog.text

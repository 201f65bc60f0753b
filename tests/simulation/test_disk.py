"""The simulated disk stands in the place of every call that changes what is on a disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import BuiltinFunctionType

import pytest

from pybroker.storage.files import os_file
from tests.simulation.disk import CALLS, Disk, installed
from tests.simulation.scheduler import ProcessDied

# What is read of a file changes nothing, and its times are not simulated.
LEFT_AS_THEY_ARE = {"close", "fstat", "listdir", "pread", "scandir", "send_file", "stat", "statvfs", "utime"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk that all calls go to."""
    disk = Disk(tmp_path, Random(1))
    with installed(lambda: disk):
        yield disk
    disk.close()


def test_every_call_that_changes_a_disk_is_simulated() -> None:
    calls = {name for name, call in vars(os_file).items() if isinstance(call, BuiltinFunctionType)}
    assert calls - LEFT_AS_THEY_ARE == calls & set(CALLS[os_file])


def test_a_process_may_die_before_it_has_cut_a_file(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    os_file.truncate(path, 8)
    disk.dies_after = 1
    with pytest.raises(ProcessDied):
        os_file.truncate(path, 4)
    assert path.stat().st_size == 8


def test_no_file_of_a_device_that_fails_is_cut(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    disk.broken = str(tmp_path)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        os_file.truncate(path, 4)
    assert path.stat().st_size == 10

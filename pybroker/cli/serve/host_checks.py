"""The checks of ``pybroker doctor`` on a broker's own machine: its data directory, disk, descriptors and limits.

Owns: what is looked at and when it is too little.  Only reads: neither the lock nor any file is touched, so that it may
run beside the broker.  What Linux's ``/proc`` does not show elsewhere is looked at of this process in place of the
broker's.
"""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pybroker.cli.terminal.findings import Finding, Status
from pybroker.cli.terminal.output import show_size
from pybroker.public import CLEAN_SHUTDOWN_FILE, LOCK_FILE, META_PROPERTIES

_FREE_BYTES_MIN, _FREE_SHARE_MIN = 256 << 20, 0.10
_FREE_INODES_MIN: Final = 1_000
_SEGMENT_FILES: Final = 3  # that an open segment holds: its data and its indexes
_DESCRIPTORS_SPARE: Final = 1_000  # of clients and everything else
_USED_SHARE_MAX: Final = 0.8
_SEGMENT_BYTES: Final = 1 << 30
_LINUX: Final = Path("/proc/self").exists()


class FileLock(NamedTuple):
    """``struct flock`` on 64 bits, which ``fcntl`` takes and gives as bytes: its form, and the order of its fields."""

    form: str
    fields: Sequence[str]

    def packed(self, kind: int) -> bytes:
        """A lock of the whole file, from its start on."""
        values = {"kind": kind, "whence": os.SEEK_SET}
        return struct.pack(self.form, *(values.get(field, 0) for field in self.fields))

    def unpacked(self, lock: bytes) -> tuple[int, int]:
        """The kind of a lock, and the process that has it."""
        found = dict(zip(self.fields, struct.unpack(self.form, lock), strict=True))
        return found["kind"], found["pid"]


# Linux has the kind in front, macOS behind the process.
LOCK_OF_LINUX: Final = FileLock("hhqqi4x", ("kind", "whence", "start", "length", "pid"))
LOCK_OF_MACOS: Final = FileLock("qqihh", ("start", "length", "pid", "kind", "whence"))
_LOCK: Final = LOCK_OF_MACOS if sys.platform == "darwin" else LOCK_OF_LINUX


def host_findings(data_dir: Path) -> Iterator[Finding]:
    """The findings about one data directory and the machine that it is on."""
    yield (directory := _looked_at("data directory", data_dir, _directory))
    if directory.status is Status.FAILED:
        yield from (Finding(check, Status.SKIPPED, directory.message) for check in ("disk", "descriptors", "limits"))
        return
    yield _looked_at("disk", data_dir, _disk)
    pid = lock_holder(data_dir / LOCK_FILE)
    yield _looked_at("descriptors", data_dir, lambda path: _descriptors(pid, _segments(path)))
    yield _looked_at("limits", data_dir, lambda path: _limits(pid, _segments(path)))


def _looked_at(check: str, path: Path, look: Callable[[Path], Finding]) -> Finding:
    try:
        return look(path)
    except OSError as error:
        message = f"{error.filename or path} cannot be looked at: {error.strerror or error}"
        return Finding(check, Status.FAILED, message, "run it as the broker's user, and check the disk")


def _segments(path: Path) -> int:
    return sum(1 for _ in path.glob("*/*.log"))


def lock_holder(path: Path) -> int | None:
    """The process that holds the lock of a data directory, if any; looking does not disturb it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        kind, pid = _LOCK.unpacked(fcntl.fcntl(fd, fcntl.F_GETLK, _LOCK.packed(fcntl.F_WRLCK)))
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else pid


def _directory(path: Path) -> Finding:
    check = "data directory"
    if not path.exists():
        parent = next(each for each in path.absolute().parents if each.exists())
        if not os.access(parent, os.W_OK):
            return Finding(
                check, Status.FAILED, f"{path} does not exist, and {parent} cannot be written to", f"chown {parent}"
            )
        return Finding(check, Status.FAILED, f"{path} does not exist", "a start with --data-dir makes it")
    if not path.is_dir():
        return Finding(check, Status.FAILED, f"{path} is no directory", "name a directory by --data-dir")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        user = f"user {os.geteuid()}"
        return Finding(check, Status.FAILED, f"{user} may not read and write {path}", f"chown the directory to {user}")
    if not (path / META_PROPERTIES).exists():
        if any(path.iterdir()):
            return Finding(
                check,
                Status.WARNING,
                f"{path} has files and no {META_PROPERTIES}",
                "name another directory, or move them away",
            )
        return Finding(check, Status.OK, f"{path} is empty: a start begins a new broker")
    if (pid := lock_holder(path / LOCK_FILE)) is not None:
        return Finding(check, Status.OK, f"{path} is used by process {pid}")
    if not (path / CLEAN_SHUTDOWN_FILE).exists():
        return Finding(
            check,
            Status.WARNING,
            f"the broker of {path} did not stop cleanly",
            "the next start looks through its logs, which takes longer",
        )
    return Finding(check, Status.OK, f"{path} is of a broker that stopped cleanly")


def _disk(path: Path) -> Finding:
    usage, files = shutil.disk_usage(path), os.statvfs(path)
    share = usage.free / usage.total if usage.total else 0.0
    message = f"{show_size(usage.free)} of {show_size(usage.total)} are free ({share:.0%})"
    advice = "free space, or lower retention.ms and retention.bytes; a broker on a full disk refuses writes"
    if usage.free < _FREE_BYTES_MIN:
        return Finding("disk", Status.FAILED, message, advice)
    if files.f_files and files.f_favail < _FREE_INODES_MIN:
        return Finding("disk", Status.FAILED, f"{files.f_favail} inodes are free", "remove files of that file system")
    if share < _FREE_SHARE_MIN:
        return Finding("disk", Status.WARNING, message, advice)
    return Finding("disk", Status.OK, message)


def _limit_of(pid: int | None, name: str, number: int) -> int:
    """A hard limit of the broker's process, or of this one; a broker raises its own to that."""
    if pid is not None and _LINUX:
        try:
            lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith(name):
                text = line[len(name) :].split()[1]
                return resource.RLIM_INFINITY if text == "unlimited" else int(text)
    return resource.getrlimit(number)[1]


def _descriptors(pid: int | None, segments: int) -> Finding:
    limit = _limit_of(pid, "Max open files", resource.RLIMIT_NOFILE)
    whose = "this shell" if pid is None else f"process {pid}"
    advice = "raise the hard limit (ulimit -Hn, LimitNOFILE= of systemd) where the broker is started"
    if limit == resource.RLIM_INFINITY:
        return Finding("descriptors", Status.OK, f"{whose} has no limit")
    wanted = segments * _SEGMENT_FILES + _DESCRIPTORS_SPARE
    message = f"{whose} may open {limit} files; {segments} segments and clients may want {wanted}"
    if pid is not None and (used := _open_files(pid)) is not None:
        message += f"; {used} are open"
        if used > limit * _USED_SHARE_MAX:
            return Finding("descriptors", Status.FAILED, message, advice)
    return Finding("descriptors", Status.OK if limit >= wanted else Status.WARNING, message, advice)


def _open_files(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def _limits(pid: int | None, segments: int) -> Finding:
    file_size = _limit_of(pid, "Max file size", resource.RLIMIT_FSIZE)
    if file_size != resource.RLIM_INFINITY and file_size < _SEGMENT_BYTES:
        return Finding(
            "limits",
            Status.FAILED,
            f"files may have {show_size(file_size)}, a segment may become {show_size(_SEGMENT_BYTES)}",
            "take the limit away (ulimit -f unlimited), or lower segment.bytes",
        )
    space = _limit_of(pid, "Max address space", resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY:
        return Finding(
            "limits",
            Status.WARNING,
            f"the address space is limited to {show_size(space)}; segments are mapped into it",
            "take the limit away (ulimit -v unlimited); memory is bounded by a control group better",
        )
    try:
        maps = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return Finding("limits", Status.OK, "file size and address space are not limited")
    message = f"file size and address space are not limited; {maps} maps are allowed for {segments} segments"
    if maps < segments * 2:
        return Finding("limits", Status.WARNING, message, f"sysctl -w vm.max_map_count={segments * 4}")
    return Finding("limits", Status.OK, message)

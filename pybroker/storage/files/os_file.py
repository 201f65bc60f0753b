"""The operating system's calls that the log is built on: the only place with Linux-only ones.

Owns: positional writes and reads, read-only maps of growing files, residency probes and releases, syncs of files
and directories, atomic replacement of small files, POSIX locks.  Owns no state: everything takes a descriptor, a map or
a path.

Invariants: a data file ends where its data ends, except inside ``map_for_reading``, which leaves it as it found it.
Tests inject faults by replacing the functions of this module, so callers reach them as ``os_file.pwrite(...)``.

A sealed file is never grown, not even inside ``map_for_reading``: a death just then would look like a torn tail in the
middle of a log.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, StrPath

pwrite = os.pwrite
pread = os.pread
ftruncate = os.ftruncate
rename = os.rename

# macOS has no fdatasync; its fsync is the nearest thing.
fdatasync = getattr(os, "fdatasync", os.fsync)

_LOWEST_PRIORITY = 19

_PAGES_ASKED_FOR_AT_ONCE = 256

_ROOM_PROBE = ".room"
_ROOM_SHARE = 20
_PROBE_BYTES_MAX = 1 << 20

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


def is_passing(error: BaseException) -> bool:
    """Whether the error only says that there is no room, or no descriptor, now: later calls may work again."""
    return isinstance(error, OSError) and error.errno in _PASSING


def lacks_room(error: BaseException) -> bool:
    """Whether the error says that the disk, or what this process may use of it, is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def has_room(directory: StrPath, most: int) -> bool:
    """Whether ``most`` bytes could be written below a directory, or a twentieth of its file system if that is less.

    The look takes so much room for a moment, in a file without a name, because no other call knows of quotas.  Blocks;
    raises OSError.
    """
    system = os.statvfs(directory)
    return takes(directory, min(most, system.f_blocks * system.f_frsize // _ROOM_SHARE))


def takes(directory: StrPath, size: int) -> bool:
    """Whether ``size`` bytes, and at least one, could be written below a directory; see ``has_room``."""
    system, wanted = os.statvfs(directory), max(size, 1)
    if system.f_bavail * system.f_frsize < wanted:
        return False
    path = os.path.join(directory, _ROOM_PROBE)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.unlink(path)
            _allocate(fd, wanted)
        finally:
            os.close(fd)
    except OSError as error:
        if is_passing(error):
            return False
        raise
    return True


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:  # macOS
        os.pwrite(fd, bytes(min(size, _PROBE_BYTES_MAX)), 0)


def lacks_descriptor(error: BaseException) -> bool:
    """Whether the error only says that a file could not be opened, because too many are: nothing was done to it."""
    return isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR


def identity(path: StrPath) -> tuple[int, int]:
    """What tells a directory from every other that may come to lie at its path: device and inode."""
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino


def check_place(path: StrPath, fd: int, size: int) -> None:
    """Raise OSError if a file is not at its path any more: removed, moved away, or another in its place.

    It is known by its descriptor; without one (-1) by holding no less than the ``size`` bytes that were written to it.
    """
    found = os.stat(path)
    if fd < 0:
        gone = found.st_size < size
    else:
        here = os.fstat(fd)
        gone = (found.st_ino, found.st_dev) != (here.st_ino, here.st_dev)
    if gone:
        raise OSError(errno.ESTALE, "another file lies at its path", os.fspath(path))


def open_for_append(path: StrPath, create: bool = True) -> int:
    """Open (and create) a data file for positional writes and reads; the descriptor is not inherited."""
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)


def write_fully(fd: int, data: ReadableBuffer, position: int) -> None:
    """Write all of ``data`` at ``position``; OSError may leave a torn tail, which the caller cuts."""
    written = pwrite(fd, data, position)
    view = memoryview(data).cast("B")
    while written < len(view):
        more = pwrite(fd, view[written:], position + written)
        if more == 0:
            raise OSError(errno.ENOSPC, "a write of a log file made no progress")
        written += more


def map_for_reading(fd: int, size: int, capacity: int) -> mmap.mmap:
    """Map ``capacity`` bytes of a file of ``size`` bytes, so that its pages become readable as the file grows.

    CPython refuses a map that is longer than the file, so the file is grown (sparse) for the moment of the call.
    The caller makes sure that nobody else writes to the file meanwhile.
    """
    if capacity <= size:
        return mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
    ftruncate(fd, capacity)
    try:
        return mmap.mmap(fd, capacity, mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        ftruncate(fd, size)


def release_pages(mapped: mmap.mmap, start: int, end: int) -> None:
    """Take the pages of [start, end) out of this process's memory.  They stay in the page cache, one fault away."""
    start -= start % mmap.PAGESIZE
    with suppress(OSError):  # The kernel refuses where all of the process's memory is locked.
        mapped.madvise(mmap.MADV_DONTNEED, start, end - start)


def resident_file_bytes() -> int:
    """How much of mapped files counts as this process's memory, its libraries among them; 0 where nobody tells."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


@cache
def _mincore() -> Callable[[int, int, Any], int]:
    """mincore(2), called without giving up the interpreter lock, which would take longer than the call."""
    import ctypes

    function = ctypes.PyDLL(None).mincore
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    call: Callable[[int, int, Any], int] = function
    return call


def map_address(mapped: mmap.mmap) -> int:
    """Where a map lies in memory; 0 if that cannot be told."""
    import ctypes

    # CPython's Py_buffer, of which the first field is the address.
    buffer = (ctypes.c_void_p * 16)()
    # A read-only map's address is to be had by the buffer protocol only.
    if ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(buffer), 0):
        return 0
    address: int = buffer[0] or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


def is_resident(address: int, start: int, end: int) -> bool:
    """Whether all pages of [start, end) of a map are in the page cache: touching them would not wait for a disk.

    Asks mincore(2) for every page.  Probing by ``preadv(RWF_NOWAIT)`` sees only the bytes that it copies, while
    read-ahead leaves gaps of a few pages, each of which would be a stall of milliseconds.
    """
    import ctypes

    start -= start % mmap.PAGESIZE
    states = ctypes.create_string_buffer(_PAGES_ASKED_FOR_AT_ONCE)
    while start < end:
        # What is not there is mostly missing from near the beginning on: no need to look up every page behind it.
        length = min(end - start, _PAGES_ASKED_FOR_AT_ONCE * mmap.PAGESIZE)
        pages = (length + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        if _mincore()(address + start, length, states) or states.raw.count(1, 0, pages) != pages:
            return False
        start += length
    return True


def read_into(fd: int, buffer: bytearray | memoryview, position: int) -> int:
    """Fill ``buffer`` from ``position`` on; returns the bytes read, fewer only at the end of the file."""
    view = memoryview(buffer)
    filled = 0
    while filled < len(view):
        count = os.preadv(fd, [view[filled:]], position + filled)
        if count == 0:
            break
        filled += count
    return filled


def advise_will_need(fd: int, position: int, length: int) -> None:
    """Ask the kernel to read the range ahead; a hint."""
    if sys.platform == "linux":
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)


def allocate(fd: int, size: int) -> None:
    """Give a file ``size`` bytes that lie on the disk; OSError leaves it as it was.  Does nothing but on Linux."""
    if sys.platform == "linux":
        former = os.fstat(fd).st_size
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            ftruncate(fd, former)
            raise


def copy_prefix(source_fd: int, path: StrPath, length: int) -> int:
    """Copy the first ``length`` bytes of a file into a new one at ``path``; returns the new descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    position = 0
    while position < length:
        chunk = pread(source_fd, min(1 << 20, length - position), position)
        if not chunk:
            break
        write_fully(fd, chunk, position)
        position += len(chunk)
    return fd


def sync_path(path: StrPath) -> None:
    """fsync a file or a directory by path; a missing one is skipped (it was deleted meanwhile)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# File systems whose syncfs(2) makes everything durable that is in them, as fsync of each file and directory would.
_SYNCED_WHOLE = frozenset({"ext3", "ext4", "f2fs", "tmpfs", "xfs"})
_SYNCFS_REPORTS_ERRORS_SINCE = (5, 8)


def can_sync_file_system(directory: StrPath) -> bool:
    """Whether ``sync_file_system`` does for what lies in the directory: on Linux, where the kernel tells of errors."""
    system = os.uname()
    version = tuple(int(part) for part in re.findall(r"\d+", system.release)[:2])
    if system.sysname != "Linux" or version < _SYNCFS_REPORTS_ERRORS_SINCE:
        return False
    device = os.stat(directory).st_dev
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for fields in map(str.split, mounts):
                if fields[2] == f"{os.major(device)}:{os.minor(device)}":
                    return fields[fields.index("-") + 1] in _SYNCED_WHOLE
    except (OSError, ValueError, IndexError):
        pass
    return False


def sync_file_system(fd: int) -> None:
    """Sync the file system in which an open file lies; OSError, too, for writes that failed since it was opened."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).syncfs(fd):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


_SYNC_FILE_RANGE_WRITE = 2


def begin_write_back(fd: int, start: int, length: int) -> None:
    """Have the kernel begin to write a range of a file to the disk: no journal is committed, nothing waited for.

    Says nothing of errors: the next sync does.  Does nothing where the system has no ``sync_file_range(2)``.
    """
    import ctypes

    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call(fd, ctypes.c_int64(start), ctypes.c_int64(length), _SYNC_FILE_RANGE_WRITE)


def replace_file(path: Path, data: bytes, sync: bool = True) -> None:
    """Replace a small file atomically, by ``path.tmp`` and rename as Kafka does; ``sync``: to survive power loss."""
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_fully(fd, data, 0)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    rename(temporary, path)
    if sync:
        sync_path(path.parent)


def holds(path: Path, data: bytes | bytearray) -> bool:
    """Whether a file holds exactly ``data``: then it need not be written, which costs a hundred times as much."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def lock_file(path: Path) -> int | None:
    """Take the exclusive POSIX lock on ``path``; the descriptor that holds it, ``None`` if another process does.

    Java's FileChannel.lock takes the same kind of lock, so Kafka and pybroker refuse each other.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, fd):
                return fd
        except OSError as error:
            os.close(fd)
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                return None
            raise
        # A start that was refused has removed the file since: the lock on it keeps no other process out.
        os.close(fd)


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def raise_open_files_limit() -> int:
    """Raise RLIMIT_NOFILE to the hard limit, as every open segment holds two descriptors; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # macOS reports an infinite hard limit that it then refuses.
            pass
    return soft


def run_when_idle() -> None:
    """Give this process only what no other wants of the processors: whoever wakes up takes over at once.

    The lowest niceness alone lets it finish its slice of some milliseconds first.
    """
    os.nice(_LOWEST_PRIORITY)
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def run_among_others() -> None:
    """Take back ``run_when_idle``: a share of the processors again, the smallest there is."""
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def processor_seconds() -> tuple[float, float]:
    """(seconds that this process has run, seconds that it was ready to and had to wait); no waiting where unknown."""
    try:
        ran_ns, waited_ns, _ = Path("/proc/self/schedstat").read_text().split()
    except OSError:
        return time.process_time(), 0.0
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9

"""Every call of the operating system by which the log touches files: the place where disk faults are planted.

Owns: positional writes and reads, read-only maps of growing files, residency probes and releases. Owns syncs of files
and directories, atomic replacement of small files, POSIX locks, and the names in a directory. Owns no state: everything
takes a descriptor, a map or a path. Does not own what concerns the process and no file: that is ``os_process``.

Invariants: no other module of ``storage`` calls the system for a file (``tests/test_system_calls.py``).  Faults are
planted by replacing functions of this module.  So callers reach them as ``os_file.pwrite(...)``, and a function here
that consists of several calls makes them by the names of this module, too.

A data file ends where its data ends, except inside ``map_for_reading``, which leaves it as it found it.

A sealed file is never grown, not even inside ``map_for_reading``: a death just then would look like a torn tail in the
middle of a log.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import stat as stat_modes
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, StrPath

MappedFile = mmap.mmap
Map = TypeVar("Map", bound=MappedFile)

# The calls themselves: no function stands between a caller and the system.
open_fd = os.open
close = os.close
pwrite = os.pwrite
pread = os.pread
ftruncate = os.ftruncate
truncate = os.truncate
fsync = os.fsync
# macOS has no fdatasync; its fsync is the nearest thing.
fdatasync = getattr(os, "fdatasync", os.fsync)
send_file = os.sendfile
fstat = os.fstat
stat = os.stat
statvfs = os.statvfs
utime = os.utime
rename = os.rename
unlink = os.unlink
mkdir = os.mkdir
rmdir = os.rmdir
listdir = os.listdir
scandir = os.scandir

_PAGES_ASKED_FOR_AT_ONCE = 256

_SPACE_PROBE = ".room"
_SPACE_PROBE_SHARE = 20
_PROBE_BYTES_MAX = 1 << 20

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
# What Path.exists takes for an answer, too; any other error says nothing of whether something is there.
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP})
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


def is_passing(error: BaseException) -> bool:
    """Whether the error only says that there is no space, or no descriptor, now: later calls may work again."""
    return isinstance(error, OSError) and error.errno in _PASSING


def is_disk_full(error: BaseException) -> bool:
    """Whether the error says that the disk, or what this process may use of it, is full."""
    return isinstance(error, OSError) and error.errno in _DISK_FULL


def has_free_space(directory: StrPath, most: int) -> bool:
    """Whether ``most`` bytes could be written below a directory, or a twentieth of its file system if that is less.

    The look takes so much space for a moment, in a file without a name, because no other call knows of quotas.  Blocks;
    raises OSError.
    """
    system = statvfs(directory)
    return takes(directory, min(most, system.f_blocks * system.f_frsize // _SPACE_PROBE_SHARE))


def takes(directory: StrPath, size: int) -> bool:
    """Whether ``size`` bytes, and at least one, could be written below a directory; see ``has_free_space``."""
    system, wanted = statvfs(directory), max(size, 1)
    if system.f_bavail * system.f_frsize < wanted:
        return False
    path = os.path.join(directory, _SPACE_PROBE)
    try:
        fd = open_fd(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            unlink(path)
            _allocate(fd, wanted)
        finally:
            close(fd)
    except OSError as error:
        if is_passing(error):
            return False
        raise
    return True


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:  # macOS
        pwrite(fd, bytes(min(size, _PROBE_BYTES_MAX)), 0)


def lacks_descriptor(error: BaseException) -> bool:
    """Whether the error only says that a file could not be opened, because too many are: nothing was done to it."""
    return isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR


def identity(path: StrPath) -> tuple[int, int]:
    """What tells a directory from every other that may come to lie at its path: device and inode."""
    found = stat(path)
    return found.st_dev, found.st_ino


def exists(path: StrPath) -> bool:
    """Whether something lies at a path, or behind the link there.  OSError where that cannot be known."""
    return _mode(path) != 0


def is_dir(path: StrPath) -> bool:
    """Whether a directory, or a link to one, lies at a path.  OSError where that cannot be known."""
    return stat_modes.S_ISDIR(_mode(path))


def _mode(path: StrPath) -> int:
    """The type and permissions of what lies at a path; 0 if nothing does."""
    try:
        return stat(path).st_mode
    except OSError as error:
        if error.errno in _NOT_THERE:
            return 0
        raise


def resolve(path: Path) -> Path:
    """The path without links and ``..``, as far as it is there.  OSError."""
    return path.resolve()


def disk_space(directory: StrPath) -> tuple[int, int]:
    """(bytes of a directory's file system, bytes of them that are free for this process).  OSError."""
    system = statvfs(directory)
    return system.f_blocks * system.f_frsize, system.f_bavail * system.f_frsize


def check_place(path: StrPath, fd: int, size: int) -> None:
    """Raise OSError if a file is not at its path any more: removed, moved away, or another in its place.

    It is known by its descriptor; without one (-1) by holding no less than the ``size`` bytes that were written to it.
    """
    found = stat(path)
    if fd < 0:
        gone = found.st_size < size
    else:
        here = fstat(fd)
        gone = (found.st_ino, found.st_dev) != (here.st_ino, here.st_dev)
    if gone:
        raise OSError(errno.ESTALE, "another file lies at its path", os.fspath(path))


def open_for_append(path: StrPath, create: bool = True) -> int:
    """Open (and create) a data file for positional writes and reads; the descriptor is not inherited."""
    return open_fd(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)


def open_to_read(path: StrPath) -> int:
    """Open a file, or a directory, for reads only; the descriptor is not inherited.  OSError."""
    return open_fd(path, os.O_RDONLY | os.O_CLOEXEC)


def write_fully(fd: int, data: ReadableBuffer, position: int) -> None:
    """Write all of ``data`` at ``position``; OSError may leave a torn tail, which the caller cuts."""
    written = pwrite(fd, data, position)
    view = memoryview(data).cast("B")
    while written < len(view):
        more = pwrite(fd, view[written:], position + written)
        if more == 0:
            raise OSError(errno.ENOSPC, "a write of a log file made no progress")
        written += more


def map_for_reading(fd: int, size: int, capacity: int, kind: type[Map]) -> Map:
    """Map ``capacity`` bytes of a file of ``size`` bytes, so that its pages become readable as the file grows.

    CPython refuses a map that is longer than the file, so the file is grown (sparse) for the moment of the call.
    The caller makes sure that the file has no other writer meanwhile.
    """
    if capacity <= size:
        return kind(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
    ftruncate(fd, capacity)
    try:
        return kind(fd, capacity, mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        ftruncate(fd, size)


def release_pages(mapped: mmap.mmap, start: int, end: int) -> None:
    """Take the pages of [start, end) out of this process's memory.  They stay in the page cache, one fault away."""
    start -= start % mmap.PAGESIZE
    with suppress(OSError):  # The kernel refuses where all of the process's memory is locked.
        mapped.madvise(mmap.MADV_DONTNEED, start, end - start)


@cache
def _mincore() -> Callable[[int, int, Any], int]:
    """mincore(2), called without giving up the interpreter lock, which would take longer than the call."""
    import ctypes

    function = ctypes.PyDLL(None).mincore
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    call: Callable[[int, int, Any], int] = function
    return call


def map_address(mapped: mmap.mmap | memoryview) -> int:
    """Where a map, or a view of one, lies in memory; 0 if that cannot be known."""
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


def read_bytes(path: StrPath) -> bytes:
    """All that a small file holds.  OSError."""
    with open(path, "rb", buffering=0, opener=open_fd) as file:
        return file.readall()


def read_lines(path: StrPath) -> list[str]:
    """The lines of a small text file in UTF-8, without their ends; bytes that are no text are replaced.  OSError."""
    return read_bytes(path).decode("utf-8", "replace").splitlines()


def advise_will_need(fd: int, position: int, length: int) -> None:
    """Ask the kernel to read the range ahead; a hint."""
    if sys.platform == "linux":
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)


def allocate(fd: int, size: int) -> None:
    """Give a file ``size`` bytes that lie on the disk; OSError leaves it as it was.  Does nothing but on Linux."""
    if sys.platform == "linux":
        former = fstat(fd).st_size
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            ftruncate(fd, former)
            raise


def copy_prefix(source_fd: int, path: StrPath, length: int) -> int:
    """Copy the first ``length`` bytes of a file into a new one at ``path``; returns the new descriptor."""
    fd = open_fd(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
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
        fd = open_to_read(path)
    except FileNotFoundError:
        return
    try:
        fsync(fd)
    finally:
        close(fd)


# File systems whose syncfs(2) makes everything durable that is in them, as fsync of each file and directory would.
_SYNCED_WHOLE = frozenset({"ext3", "ext4", "f2fs", "tmpfs", "xfs"})
_SYNCFS_REPORTS_ERRORS_SINCE = (5, 8)


def can_sync_file_system(directory: StrPath) -> bool:
    """Whether ``sync_file_system`` does for what lies in the directory: on Linux, where the kernel tells of errors."""
    system = os.uname()
    version = tuple(int(part) for part in re.findall(r"\d+", system.release)[:2])
    if system.sysname != "Linux" or version < _SYNCFS_REPORTS_ERRORS_SINCE:
        return False
    device = stat(directory).st_dev
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
    fd = open_fd(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_fully(fd, data, 0)
        if sync:
            fsync(fd)
    finally:
        close(fd)
    rename(temporary, path)
    if sync:
        sync_path(path.parent)


def holds(path: Path, data: bytes | bytearray) -> bool:
    """Whether a file holds exactly ``data``: then it need not be written, which costs a hundred times as much."""
    try:
        return stat(path).st_size == len(data) and read_bytes(path) == data
    except FileNotFoundError:
        return False


def make_directory(path: Path, parents: bool = False) -> None:
    """Make a directory, unless it is there; with ``parents`` also those that it lies in.  OSError."""
    try:
        mkdir(path)
    except FileNotFoundError:
        if not parents or path.parent == path:
            raise
        make_directory(path.parent, parents)
        make_directory(path)
    except OSError:
        # One that is there may be refused for another reason, as by a file system that is read only.
        if not is_dir(path):
            raise


def names_in(directory: StrPath) -> list[str]:
    """The names in a directory; none if there is no such directory.  OSError."""
    try:
        return listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def subdirectories(directory: StrPath, is_wanted: Callable[[str], bool]) -> list[str]:
    """The names that ``is_wanted`` of what in a directory is one, or a link to one.  OSError."""
    with scandir(directory) as entries:
        return [entry.name for entry in entries if is_wanted(entry.name) and entry.is_dir()]


def stats_in(directory: StrPath, is_wanted: Callable[[str], bool]) -> list[tuple[str, os.stat_result]]:
    """What lies in a directory under names that ``is_wanted``.  OSError, also where one of it goes meanwhile."""
    with scandir(directory) as entries:
        return [(entry.name, entry.stat()) for entry in entries if is_wanted(entry.name)]


def unlink_if_exists(path: StrPath) -> None:
    """Remove a file, if it is there.  OSError."""
    with suppress(FileNotFoundError):
        unlink(path)


def remove_tree(path: StrPath) -> None:
    """Remove a directory and all that lies in it, as far as that goes; what a link leads to stays."""
    with suppress(OSError):
        if os.path.islink(path):
            return
        with scandir(path) as entries:
            inside = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for inner, is_directory in inside:
            if is_directory:
                remove_tree(inner)
            else:
                with suppress(OSError):
                    unlink(inner)
    with suppress(OSError):
        rmdir(path)


def lock_file(path: Path) -> int | None:
    """Take the exclusive POSIX lock on ``path``; the descriptor that holds it, ``None`` if another process does.

    Java's FileChannel.lock takes the same kind of lock, so Kafka and pybroker refuse each other.
    """
    while True:
        fd = open_fd(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, fd):
                return fd
        except OSError as error:
            close(fd)
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                return None
            raise
        # A start that was refused has removed the file since: the lock on it keeps no other process out.
        close(fd)


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(stat(path), fstat(fd))
    except FileNotFoundError:
        return False

"""The simulated disk: real files, with a journal of what is not synced yet, so that a power failure can take it back.

Owns: which bytes of which file, and which names, survive a power failure; deaths inside of a system call; a full disk;
pages that are not in the page cache.  The files themselves lie in a directory in memory, so that maps, SQLite and all
of the broker's storage run unchanged.

The model: names (creations, renames, removals) become durable in order, up to the last one that concerns a directory
when that directory is synced.  A file's bytes are durable as they were at its last sync; of what was written later, a
prefix may have come to the disk, possibly followed by zeros or garbage where the size got there and the data did not.
SQLite's files are left to SQLite: what it committed is durable.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from unittest.mock import patch

from pybroker.storage.files import os_file, os_process
from tests.simulation.scheduler import ProcessDied

_DATABASE = "pybroker-metadata.db"
_LOCK = ".lock"


class _Node:
    """A file or a directory, whatever its name is now."""

    __slots__ = ("fd", "is_dir", "synced")

    def __init__(self, path: str, synced: bytes = b"") -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.is_dir = os.path.isdir(path)
        self.synced = synced

    def content(self) -> bytes:
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)


_Names = dict[str, _Node]
# (kind, path, the other path of a rename, the node that a creation made)
_Change = tuple[str, str, str, "_Node | None"]


def _apply(names: _Names, change: _Change) -> None:
    kind, path, target, node = change
    if kind == "create":
        assert node is not None
        names[path] = node
    elif kind == "remove":
        names.pop(path, None)
    elif path in names and not names[path].is_dir:
        names[target] = names.pop(path)
    else:
        for name in [name for name in names if name == path or name.startswith(path + "/")]:
            names[target + name[len(path) :]] = names.pop(name)


# The functions by which the broker reaches the system, and what a disk has in their place.
CALLS: dict[ModuleType, dict[str, str]] = {
    os_file: {
        "open_fd": "_open",
        "pwrite": "_pwrite",
        "ftruncate": "_ftruncate",
        "truncate": "_truncate",
        "fsync": "_fsync",
        "fdatasync": "_fsync",
        "rename": "_rename",
        "unlink": "_unlink",
        "mkdir": "_mkdir",
        "rmdir": "_rmdir",
        "begin_write_back": "_begin_write_back",
        "is_resident": "_is_resident",
        "has_free_space": "_has_free_space",
        "can_sync_file_system": "_can_sync_file_system",
        "sync_file_system": "_sync_all",
    },
    os_process: {
        "resident_file_bytes": "_resident_file_bytes",
        "raise_open_files_limit": "_raise_open_files_limit",
    },
}


@contextmanager
def installed(disk_in_use: Callable[[], Disk | None]) -> Iterator[None]:
    """Stand before the system calls of this process: each goes to the disk of whoever runs, None being nobody."""

    def routed(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            disk = disk_in_use()
            return real(*args, **options) if disk is None else getattr(disk, name)(*args, **options)

        return call

    with ExitStack() as stack:
        for module, names in CALLS.items():
            calls: dict[str, Any] = {call: routed(getattr(module, call), name) for call, name in names.items()}
            stack.enter_context(patch.multiple(module, **calls))
        yield


class Disk:
    """The disk below one directory, of one machine; all else passes through."""

    def __init__(self, root: Path, random: Random) -> None:
        self.root = str(root)
        self.room: int | None = None  # bytes until writes are refused; None: no limit
        self.stays_full = False  # also when the machine's broker is started again
        self.refused = False  # a write has found no room since there was any
        self.cold_share = 0.0  # how often pages are said not to be in memory
        self.broken = ""  # the directory whose device fails, if one does
        self.dies_after: int | None = None  # system calls until the process dies in one
        self.calls = 0
        self.syncs_whole = random.random() < 0.5  # whether syncfs can be used
        self._dead = False
        self._random = random
        self._names: _Names = {}
        self._durable: _Names = {}
        self._journal: list[_Change] = []
        self._by_inode: dict[int, _Node] = {}

    # --- what a broker calls -----------------------------------------------------------------------------------------

    @property
    def refuses(self) -> bool:
        """Whether a write has found no room, and there is a limit still: one that lasted for a moment may be gone."""
        return self.refused and self.room is not None

    def _enters(self) -> None:
        """A system call begins: the process may die in it, and what is dead calls nothing any more."""
        if self._dead:
            raise ProcessDied(9)
        self.calls += 1
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after <= 0:
                self._dead = True
                raise ProcessDied(9)

    def fails_at(self, path: Any) -> bool:
        """Whether this lies on a device that fails: calls of it raise EIO."""
        return bool(self.broken) and os.fspath(path).startswith(self.broken)

    def _works(self, path: Any) -> None:
        if self.fails_at(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _works_for(self, fd: int) -> None:
        if self.broken:
            self._works(os.readlink(f"/proc/self/fd/{fd}"))

    def _is_here(self, path: Any) -> bool:
        return str(path).startswith(self.root)

    def _note(self, kind: str, path: Any, target: Any = "", node: _Node | None = None) -> None:
        change = (kind, os.fspath(path), os.fspath(target), node)
        _apply(self._names, change)
        self._journal.append(change)

    def _open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        is_database = os.path.basename(os.fspath(path)).startswith(_DATABASE)  # its size goes by the order of rows
        if not flags & os.O_CREAT or is_database or not self._is_here(path):
            return os.open(path, flags, mode)
        self._works(path)
        self._enters()
        fd = os.open(path, flags, mode)
        name = os.fspath(path)
        if name not in self._names and not name.endswith(_LOCK):
            self._note("create", name, node=self._new_node(name))
        return fd

    def _new_node(self, path: str, synced: bytes = b"") -> _Node:
        node = _Node(path, synced)
        self._by_inode[os.fstat(node.fd).st_ino] = node
        return node

    def _mkdir(self, path: Any, mode: int = 0o777) -> None:
        if not self._is_here(path):
            os.mkdir(path, mode)
            return
        self._works(path)
        self._enters()
        os.mkdir(path, mode)
        self._note("create", path, node=self._new_node(os.fspath(path)))

    def _rmdir(self, path: Any) -> None:
        if self._is_here(path):
            self._enters()
        os.rmdir(path)
        if self._is_here(path):
            self._note("remove", path)

    def _unlink(self, path: Any) -> None:
        if self._is_here(path):
            self._enters()
        os.unlink(path)
        if self._is_here(path):
            self._note("remove", path)

    def _rename(self, path: Any, target: Any) -> None:
        self._works(path)
        self._works(target)
        if self._is_here(path):
            self._enters()
        os.rename(path, target)
        if self._is_here(path):
            self._note("rename", path, target)

    def _pwrite(self, fd: int, data: Any, position: int) -> int:
        self._works_for(fd)
        view = memoryview(data).cast("B")
        if self.room is not None:
            if self.room < len(view):
                view = view[: self.room]
            if not len(view):
                self.refused = True
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= len(view)
        try:
            self._enters()
        except ProcessDied:
            if self.dies_after == 0:
                self.dies_after = -1
                os.pwrite(fd, view[: self._random.randrange(len(view) + 1)], position)
            raise
        return os.pwrite(fd, view, position)

    def _ftruncate(self, fd: int, length: int) -> None:
        self._works_for(fd)
        self._enters()
        os.ftruncate(fd, length)

    def _truncate(self, path: Any, length: int) -> None:
        if self._is_here(path):
            self._works(path)
            self._enters()
        os.truncate(path, length)

    def _begin_write_back(self, _fd: int, _start: int, _length: int) -> None:
        pass

    def _has_free_space(self, directory: Any, most: int) -> bool:
        self._works(directory)
        self._enters()
        return self.room is None or self.room >= most

    def _raise_open_files_limit(self) -> int:
        return 4096

    def _can_sync_file_system(self, _directory: Any) -> bool:
        return self.syncs_whole

    def _resident_file_bytes(self) -> int:
        """Nobody tells: memory is not simulated, and to let go of pages changes nothing that anybody could see."""
        return 0

    def _is_resident(self, address: int, start: int, end: int) -> bool:
        return self._random.random() >= self.cold_share

    def _fsync(self, fd: int) -> None:
        node = self._by_inode.get(os.fstat(fd).st_ino)
        if node is None:
            return
        self._works_for(fd)
        self._enters()
        if not node.is_dir:
            node.synced = node.content()
            return
        directory = next((name for name, other in self._names.items() if other is node), None)
        count = 0
        for position, (_, path, target, _) in enumerate(self._journal, 1):
            if directory in (os.path.dirname(path), os.path.dirname(target)):
                count = position
        for change in self._journal[:count]:
            _apply(self._durable, change)
        del self._journal[:count]

    def _sync_all(self, fd: int) -> None:
        self._works_for(fd)
        self._enters()
        for node in self._names.values():
            if not node.is_dir:
                node.synced = node.content()
        self._durable = dict(self._names)
        self._journal.clear()

    # --- what befalls it ---------------------------------------------------------------------------------------------

    @property
    def has_died_in_call(self) -> bool:
        """Whether the process that used it has ended inside of a system call."""
        return self._dead

    def reboot(self) -> None:
        """The process is gone; another may use the disk."""
        self._dead = False
        self.dies_after = None
        if not self.stays_full:
            self.room = None

    def fill(self, room: int) -> None:
        """There is so little room from now on, until ``empty`` is called."""
        self.room, self.stays_full = room, True

    def empty(self) -> None:
        """There is room again."""
        self.room, self.stays_full, self.refused = None, False, False

    def lose_power(self) -> str:
        """Take back what was not synced, as far as chance has it; says what that was."""
        cut = self._random.randrange(len(self._journal) + 1)
        names = dict(self._durable)
        for change in self._journal[:cut]:
            _apply(names, change)
        lost = 0
        contents: dict[str, bytes | None] = {}
        for path in sorted(names):
            node = names[path]
            if os.path.dirname(path) in contents or os.path.dirname(path) == os.path.dirname(self.root):
                contents[path] = None if node.is_dir else self._torn(node)
                lost += not node.is_dir and contents[path] != node.content()
        changes = len(self._journal) - cut
        self._rebuild(contents)
        return f"{changes} changes of names and the unsynced bytes of {lost} files are lost"

    def wipe(self) -> None:
        """Be an empty disk, but for the directories that a broker is told to use."""
        directories = sorted(str(entry) for entry in Path(self.root).iterdir() if entry.is_dir())
        self._rebuild(dict.fromkeys((self.root, *directories)))

    def _torn(self, node: _Node) -> bytes:
        """What of a file came to the disk."""
        synced, written, random = node.synced, node.content(), self._random
        fate = random.random()
        if synced == written or fate < 0.35:
            return written
        if fate < 0.6 or len(written) < len(synced):
            return synced
        there = random.randint(len(synced), len(written))
        if fate < 0.85:
            return written[:there]
        if fate < 0.95:
            return written[:there] + bytes(len(written) - there)
        return written[:there] + random.randbytes(min(len(written) - there, 512))

    def _rebuild(self, contents: dict[str, bytes | None]) -> None:
        root = Path(self.root)
        for entry in sorted(root.iterdir()):
            if entry.name.startswith(_DATABASE):
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        self.close()
        for path, content in contents.items():
            if content is None:
                Path(path).mkdir(exist_ok=True)
            else:
                Path(path).write_bytes(content)
            self._names[path] = self._new_node(path, content or b"")
        self._durable = dict(self._names)

    def adopt(self) -> None:
        """Take the (new) directory, and those in it, for durable."""
        for path in (self.root, *sorted(map(str, Path(self.root).iterdir()))):
            self._names[path] = self._new_node(path)
        self._durable = dict(self._names)

    def close(self) -> None:
        """Let go of all descriptors."""
        for node in self._by_inode.values():
            os.close(node.fd)
        self._by_inode.clear()
        self._names.clear()
        self._durable.clear()
        self._journal.clear()

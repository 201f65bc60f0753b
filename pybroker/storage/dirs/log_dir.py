"""One log directory: its lock, its identity, its threads, whether it still works, and whether it has free space.

Owns the ``.lock`` file (the same POSIX lock as Kafka's FileLock), ``.kafka_cleanshutdown`` and the directory's worker
threads (writers, reader, flusher, remover), each started by its first job. Owns the step from online to offline, too,
which is for good: after a failed write or sync it is not known what the disk holds.

ENOSPC of a write fails that append, and heals by itself. The directory has no free space (``has_free_space``) until as
much as ``FREE_SPACE_BYTES`` could be written again, and what was refused; a thread looks from time to time. EIO, and
any error of a sync, ENOSPC included, take the directory offline, because the kernel has dropped the pages. With no
directory left the process ends with exit code 1. A directory, or a partition's files, that were moved away count as
failed, too (``LogState.check_place``). The active segment's file is compared with its path by ``housekeeping`` if
something was appended, before a roll, and after each sync before that is reported. Kafka notices at its next roll or
deletion.

While a broker runs whose acknowledgements wait for syncs there is ``pybroker-synced-before-acknowledged``, made of the
clean-shutdown mark, or in a directory without partitions, and gone after a clean stop. It says that since all was on
the disk nothing was acknowledged before it was synced, and this version's cleaner alone was at work. Kafka's cleaner,
and those of versions before, clean past the recovery points that the disk knows.

Kafka: the log directory parts of LogManager, and LogDirFailureChannel.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from pathlib import Path

from pybroker import limits
from pybroker.env import Cancellable, Env, Executor
from pybroker.storage.dirs.lookup_queue import LookupQueue
from pybroker.storage.dirs.start_rollback import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    SYNCED_FIRST_FILE,
    StartRollback,
    refuse_parent_of_log_dirs,
)
from pybroker.storage.dirs.writer_threads import Writers
from pybroker.storage.files import os_file
from pybroker.storage.results import StorageError, TopicPartition
from pybroker_protocol.uuids import ZERO_UUID

# A full disk is reported when it begins and, with the number of refusals, when there is space again and nothing was
# refused for so long: one line per refused append would fill what space there is.  Where it is full again within
# ``FREE_SPACE_LASTS_MS`` the interval doubles, so that replicas do not come and go with each file that is removed.
FREE_SPACE_CHECK_INTERVAL_MS = 1_000
FREE_SPACE_CHECK_INTERVAL_MAX_MS = 60_000
FREE_SPACE_LASTS_MS = 60_000
# A directory has free space where so much could be written, or a twentieth of the file system, and what was refused
# (``os_file.has_free_space``).  At its start, where it may have been stopped with little, the smaller bound holds.
FREE_SPACE_BYTES = 64 << 20
FREE_SPACE_AT_START_BYTES = 256 << 10

# POSIX locks do not exclude a process from itself, and closing any descriptor of the file drops them: so a second
# broker in this process must be refused before it opens the file.
_locked_here: set[Path] = set()

# The flusher takes next to no processor time, and acknowledgements wait for it.
_NICENESS = {
    "reader": limits.WORKER_NICENESS,
    "remover": limits.WORKER_NICENESS,
    "flusher": 0,
}

logger = logging.getLogger("pybroker.storage")


def _remove(paths: list[Path]) -> Generator[None, None, None]:
    """Remove files and directories, a file at a time; what is gone already is no error."""
    for path in paths:
        if os_file.is_dir(path):
            for name in os_file.listdir(path):
                with suppress(OSError):
                    os_file.unlink(path / name)
                yield
            os_file.remove_tree(path)
        else:
            os_file.unlink_if_exists(path)
        yield


def _has_free_space_for(directory: Path, refused_bytes: int) -> bool:
    """Whether there is space, also for a write of this size: that may be more than what passes for space otherwise."""
    return os_file.has_free_space(directory, FREE_SPACE_BYTES) and os_file.takes(directory, refused_bytes)


def _removed(_nothing: None, _error: BaseException | None) -> None:
    """What cannot be removed the next start tries again."""


class LogDir:
    """A directory that holds partitions' directories."""

    __slots__ = (
        "_env",
        "_executors",
        "_identity",
        "_is_checking_space",
        "_lock_fd",
        "_refusals",
        "_refused_bytes",
        "_removals",
        "_rollback",
        "_space_check_interval_ms",
        "_space_check_timer",
        "_space_freed_ms",
        "before_first_file",
        "before_opening",
        "belongs_to_broker",
        "clean_broker_epoch",
        "closing",
        "directory_id",
        "had_clean_shutdown",
        "has_free_space",
        "lookups",
        "offline",
        "on_free_space_changed",
        "on_offline",
        "path",
        "sync",
        "synced_before_acknowledged",
        "writers",
    )

    def __init__(self, path: Path, env: Env, sync: bool = True) -> None:
        self.path = path
        self.sync = sync
        self.offline = False
        self.closing = False  # the flusher has ended or is about to: syncs happen where they are asked for
        self.on_offline: Callable[[LogDir], None] | None = None
        self.has_free_space = True  # as far as is known
        self.on_free_space_changed: Callable[[LogDir], None] | None = None
        # Hears of a partition here whose first file is about to be made; raises OSError.
        self.before_first_file: Callable[[TopicPartition], None] = lambda key: None
        # Hears of a partition here whose log is about to be opened; raises OSError and StorageError.
        self.before_opening: Callable[[TopicPartition], None] = lambda key: None
        self.directory_id = ZERO_UUID
        self.had_clean_shutdown = False
        self.synced_before_acknowledged = False  # by all runs since the last clean stop
        self.clean_broker_epoch = -1
        self._env = env
        self._executors: dict[str, Executor] = {}
        # The threads that make large appends.
        self.writers = Writers(env.clock, self._make_writer)
        # The searches by timestamp that the reader goes on with.
        self.lookups = LookupQueue()
        self.belongs_to_broker = False  # it says so, which it does before the broker's first registration
        self._rollback: StartRollback | None = None  # this and the next two: from the lock on
        self._lock_fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._refusals = self._refused_bytes = 0  # since space began to lack: how many, and the largest of them
        self._is_checking_space = False  # a thread is at it
        self._space_check_interval_ms = FREE_SPACE_CHECK_INTERVAL_MS
        self._space_freed_ms = 0  # when there was space again (monotonic)
        self._space_check_timer: Cancellable | None = None
        self._removals: dict[object, Cancellable] = {}

    def _executor(self, role: str) -> Executor:
        executor = self._executors.get(role)
        if executor is None:
            executor = self._executors[role] = self._env.executor(f"log-{role}-{self.path.name}", _NICENESS[role])
        return executor

    def _make_writer(self, number: int) -> Executor:
        return self._env.executor(f"log-writer-{self.path.name}-{number}", limits.WORKER_NICENESS)

    @property
    def reader(self) -> Executor:
        """The thread that waits for the disk on behalf of reads."""
        return self._executor("reader")

    @property
    def flusher(self) -> Executor:
        """The thread that syncs files and writes checkpoints."""
        return self._executor("flusher")

    @property
    def remover(self) -> Executor:
        """The thread that removes files, which for large ones takes its time."""
        return self._executor("remover")

    def remove_later(self, paths: list[Path], delay_ms: int) -> None:
        """Remove renamed files or directories after ``delay_ms``; what is left at a stop goes at the next start."""

        def remove() -> None:
            self._removals.pop(key, None)
            self.remover.submit(partial(_remove, paths), _removed)

        key = object()
        self._removals[key] = self._env.timers.call_later(delay_ms, remove)

    def lock(self) -> None:
        """Make the directory if need be and lock it; StorageError if another broker, Kafka's or ours, holds it.

        Raises OSError if the directory cannot be made or used.
        """
        refuse_parent_of_log_dirs(self.path)
        self._rollback = StartRollback(self.path)
        os_file.make_directory(self.path, parents=True)
        real_path = os_file.resolve(self.path)
        if real_path not in _locked_here:
            self._lock_fd = os_file.lock_file(self.path / LOCK_FILE)
        if self._lock_fd is not None:
            _locked_here.add(real_path)
            self._identity = os_file.identity(self.path)
        else:
            raise StorageError(
                f"The log directory {self.path} is locked: another broker, Kafka's or pybroker's, is using it; "
                "end that broker, or choose another directory"
            )

    def take_clean_shutdown_marker(self, syncs_first: bool) -> None:
        """Note whether the last owner stopped cleanly, and take its marker away."""
        path, mark = self.path / CLEAN_SHUTDOWN_FILE, self.path / SYNCED_FIRST_FILE
        try:
            text = os_file.read_bytes(path).decode("utf-8", "replace")
        except FileNotFoundError:
            self.synced_before_acknowledged = os_file.exists(mark)
            if self.synced_before_acknowledged and not syncs_first:
                self.forget_what_was_synced_first()
            return
        self.had_clean_shutdown = True
        try:
            self.clean_broker_epoch = int(json.loads(text)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):  # Older versions left the file empty.
            self.clean_broker_epoch = -1
        if syncs_first:
            os_file.rename(path, mark)
        else:
            os_file.unlink(path)
        if self.sync:
            os_file.sync_path(self.path)

    def forget_what_was_synced_first(self) -> None:
        """Something may be acknowledged before it is synced, or what was synced is not known.  Raises OSError."""
        os_file.unlink_if_exists(self.path / SYNCED_FIRST_FILE)
        if self.sync:
            os_file.sync_path(self.path)

    def begin(self, has_partitions: bool, syncs_first: bool) -> None:
        """Where nothing was acknowledged yet, what this run syncs first is all that there is.  Raises OSError."""
        if has_partitions or not syncs_first:
            return
        try:
            # The first sync of a partition's files covers the name, too.
            os_file.close(os_file.open_for_append(self.path / SYNCED_FIRST_FILE))
        except OSError as error:
            if not os_file.is_passing(error):
                raise

    def sync_file_system(self) -> None:
        """Sync everything in the file system of the directory.  Raises OSError."""
        assert self._lock_fd is not None, "the directory is not locked"
        # The lock file is open since the start: a write-back that failed at any time since then is reported.
        os_file.sync_file_system(self._lock_fd)

    def write_clean_shutdown_marker(self, broker_epoch: int) -> None:
        """Say that everything in the directory is whole, so that the next start need not look."""
        os_file.unlink_if_exists(self.path / SYNCED_FIRST_FILE)
        text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        os_file.replace_file(self.path / CLEAN_SHUTDOWN_FILE, text.encode(), self.sync)

    def check_place(self) -> None:
        """Raise OSError if the directory is not at its path any more: removed, unmounted, or something in its place.

        What is written to open files afterwards goes nowhere that a restart would find, and a partition that is looked
        for seems to have no files yet.
        """
        if self._identity is not None and os_file.identity(self.path) != self._identity:
            raise OSError(errno.ESTALE, "another directory lies at its path")

    def look_for_it(self) -> None:
        """Take the directory offline if it is not at its path any more."""
        try:
            self.check_place()
        except OSError as error:
            self.fail(error, "looking for it")

    def check_free_space_at_start(self) -> None:
        """Find out whether anything can be written at all."""

        def looked(has_free_space: bool) -> None:
            if not has_free_space:
                self.refused_for_space(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path)))

        self._ask_for_free_space(partial(os_file.has_free_space, self.path, FREE_SPACE_AT_START_BYTES), looked)

    def refused_for_space(self, error: BaseException, size: int = 0) -> None:
        """A write of ``size`` bytes, as far as that is known, found no space or no descriptor.

        The log says when that begins and, with the number of refusals, when it has ended.
        """
        self._refusals += 1
        self._refused_bytes = max(self._refused_bytes, size)
        if self._space_check_timer is None and not self._is_checking_space:
            logger.warning("No space is left in %s, writes to it are refused: %s", self.path, error)
            self._adapt_check_interval()
            self._check_free_space_later()
        if self.has_free_space and os_file.is_disk_full(error):
            self._set_free_space(False)

    def _set_free_space(self, has_free_space: bool) -> None:
        self.has_free_space = has_free_space
        if self.on_free_space_changed is not None:
            self.on_free_space_changed(self)

    def _adapt_check_interval(self) -> None:
        """What is full again soon after it had space is looked at less often."""
        since_ms = self._env.clock.monotonic_ms() - self._space_freed_ms
        is_relapse = self._space_freed_ms and since_ms < FREE_SPACE_LASTS_MS
        longer_ms = min(2 * self._space_check_interval_ms, FREE_SPACE_CHECK_INTERVAL_MAX_MS)
        self._space_check_interval_ms = longer_ms if is_relapse else FREE_SPACE_CHECK_INTERVAL_MS

    def _check_free_space_later(self) -> None:
        self._space_check_timer = self._env.timers.call_later(
            self._space_check_interval_ms, self._check_free_space, self._refusals
        )

    def _check_free_space(self, refusals_before: int) -> None:
        """Where so much space is found, and nothing was refused for a while, there is space again."""
        self._space_check_timer = None
        if self.offline or self.closing:
            return

        def looked(has_free_space: bool) -> None:
            self._is_checking_space = False
            if not has_free_space or self._refusals > refusals_before:
                self._check_free_space_later()
            else:
                self._free_space_is_back()

        self._is_checking_space = True
        self._ask_for_free_space(partial(_has_free_space_for, self.path, self._refused_bytes), looked)

    def _ask_for_free_space(self, question: Callable[[], bool], answered: Callable[[bool], None]) -> None:
        """Have a thread ask the file system, which may not answer at once."""

        def asked(has_free_space: bool | None, error: BaseException | None) -> None:
            if self.offline or self.closing:
                return
            if error is not None and not os_file.is_passing(error):
                self.fail(error, "looking for free space")
            else:
                answered(bool(has_free_space))

        self.remover.submit(question, asked)

    def _free_space_is_back(self) -> None:
        logger.warning("There is space in %s again, %d writes to it were refused", self.path, self._refusals)
        self._refusals = self._refused_bytes = 0
        self._space_freed_ms = self._env.clock.monotonic_ms()
        if not self.has_free_space:
            self._set_free_space(True)

    def fail(self, error: BaseException, what: str) -> str:
        """Take the directory offline until restart.  Called on the loop; returns what is said of it."""
        message = f"The log directory {self.path} cannot be used: {what} failed: {error}"
        if not self.offline:
            self.offline = True
            logger.error("%s", message)
            if self.on_offline is not None:
                self.on_offline(self)
        return message

    def close_executors(self) -> None:
        """Finish what the threads have queued and end them; blocks.

        Searches by timestamp and removals are given up.
        """
        for timer in self._removals.values():
            timer.cancel()
        self._removals.clear()
        if self._space_check_timer is not None:
            self._space_check_timer.cancel()
        self.lookups.close()
        # What the writers complete may still want to be synced: their threads end first.
        self.writers.close()
        for role in ("flusher", "reader", "remover"):
            self.closing = self.closing or role == "flusher"
            executor = self._executors.get(role)
            if executor is not None:
                executor.close()
        self._executors.clear()

    def take_back_start(self) -> None:
        """Leave a directory that belongs to no broker as it was found."""
        if self._lock_fd is not None and self._rollback is not None and not self.belongs_to_broker:
            self._rollback.take_back()

    def unlock(self) -> None:
        """Let another broker have the directory."""
        if self._lock_fd is not None:
            _locked_here.discard(os_file.resolve(self.path))
            os_file.close(self._lock_fd)
            self._lock_fd = None

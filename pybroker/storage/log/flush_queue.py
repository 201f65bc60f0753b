"""Group commit: who waits for a log's bytes to be on the disk, and the one sync that is under way for all of them.

Owns, for one log: the waiting acknowledgements, and the advance of the recovery point, below which everything
has been synced.  At most one sync of a log is in flight; what arrives meanwhile waits for the next one, together.

Invariant: a sync that fails is never tried again, whatever the error, because the kernel has dropped the pages: the
directory goes offline.  What may be tried again is what comes before: to write indexes and to open files.

Where acknowledgements wait for syncs (``pybroker.fsync.before.ack``, or ``flush.messages=1``) the high watermark is the
synced end. A clean stop also syncs what a recovery found unsynced and nothing has touched since, and recovery syncs
what it keeps. Else a power failure would take back what was shown. The segments of a sync are pinned when it is
planned, not when it is submitted: opening the next one may close the one before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pybroker.storage.files import os_file
from pybroker.storage.files.checkpoints import PARTITION_METADATA
from pybroker.storage.files.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX

if TYPE_CHECKING:
    from pybroker.storage.dirs.log_dir import LogDir
    from pybroker.storage.files.leader_epoch_cache import LeaderEpochCache
    from pybroker.storage.files.segment import Segment
    from pybroker.storage.files.segment_list import SegmentList
    from pybroker.storage.files.transaction_index import TransactionIndex
    from pybroker.storage.log.append_queue import OnComplete
    from pybroker.storage.log.log_environment import LogEnvironment
    from pybroker.storage.results import AppendResult


logger = logging.getLogger(__name__)


class FlushedLog(Protocol):
    """What the queue asks and tells its log; ``LogState`` says what each member is."""

    @property
    def path(self) -> Path: ...
    @property
    def environment(self) -> LogEnvironment: ...
    @property
    def directory(self) -> LogDir: ...
    @property
    def segments(self) -> SegmentList: ...
    @property
    def leader_epochs(self) -> LeaderEpochCache: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def recovery_point(self) -> int: ...
    def check_place(self) -> None: ...
    def flushed_to(self, offset: int) -> None: ...
    def planning_failed(self, error: BaseException) -> None: ...
    def sync_failed(self, error: BaseException) -> None: ...
    def storage_error(self) -> AppendResult: ...


class _Plan:
    """What one sync covers: descriptors to sync, paths to sync, and up to which offset the log is then safe.

    Its segments are pinned, so that their descriptors stay theirs, until ``release``.
    """

    __slots__ = ("directory", "paths", "segments", "target_offset", "txn_indexes")

    def __init__(self, target_offset: int) -> None:
        self.target_offset = target_offset
        self.segments: list[tuple[Segment, int, int]] = []  # segment, descriptor, bytes
        self.paths: list[Path] = []
        self.txn_indexes: list[TransactionIndex] = []  # whose paths are among them
        self.directory: Path | None = None

    def add(self, segment: Segment) -> None:
        """Cover what is written of a segment.  Raises OSError."""
        segment.open()
        segment.pin()
        self.segments.append((segment, segment.fd, segment.size))

    def release(self) -> None:
        """It has run, or will not."""
        for segment, _, _ in self.segments:
            segment.unpin()

    def run(self) -> None:
        """On the flusher thread."""
        for _, fd, _ in self.segments:
            os_file.fdatasync(fd)
        for path in self.paths:
            os_file.sync_path(path)
        if self.directory is not None:
            os_file.sync_path(self.directory)
            os_file.sync_path(self.directory.parent)


class FlushQueue:
    """The syncs of one log."""

    __slots__ = (
        "_again",
        "_cut_unsynced",
        "_files_changed",
        "_idle_actions",
        "_in_flight",
        "_log",
        "_retired",
        "_stale",
        "_waiters",
    )

    def __init__(self, log: FlushedLog) -> None:
        self._log = log
        self._waiters: deque[tuple[int, AppendResult, OnComplete]] = deque()
        self._in_flight = False
        self._again = False
        self._retired = False  # the partition is deleted: its path may be another log's by now
        self._stale = False  # the log was truncated while the sync under way ran: it proves nothing
        self._idle_actions: list[Callable[[], None]] = []
        self._files_changed = False  # files came or went since the directory was last synced
        self._cut_unsynced = False  # after a power failure what was cut off could be back

    @property
    def in_flight(self) -> bool:
        """Whether a sync is under way."""
        return self._in_flight

    @property
    def cut_unsynced(self) -> bool:
        """Whether the log's end was cut, and no sync has covered that yet."""
        return self._cut_unsynced

    def acknowledge(self, end_offset: int, result: AppendResult, on_complete: OnComplete) -> None:
        """Call ``on_complete(result)`` once everything below ``end_offset`` is on the disk."""
        self._waiters.append((end_offset, result, on_complete))
        if not self._in_flight:
            self.flush()

    def flush(self, on_done: Callable[[], None] | None = None) -> None:
        """Sync what is not yet, in the background; ``on_done`` runs when no sync is under way any more."""
        if on_done is not None:
            self._idle_actions.append(on_done)
        if self._in_flight:
            self._again = True
            return
        log = self._log
        if self._retired or log.directory.offline:
            self._finish(None, None)
            return
        try:
            plan = self._plan()
        except OSError as error:
            self._in_flight = True
            log.environment.env.timers.call_soon(self._planning_failed, error)
            return
        if not log.directory.sync:
            plan.release()
            self._finish(plan, None)
            return
        if log.directory.closing:
            self._run_here(plan)
            return
        self._in_flight = True

        def synced(_result: None, error: BaseException | None) -> None:
            plan.release()
            self._in_flight = False
            self._finish(plan, error)

        log.directory.flusher.submit(plan.run, synced)

    def note_changed_files(self) -> None:
        """Files came or went: the next sync covers the directory, too."""
        self._files_changed = True

    def truncated(self, on_disk: bool) -> None:
        """The log's end was cut, in its files where it has any: a sync under way may have covered what is gone."""
        self._stale = self._in_flight
        if on_disk:
            self._cut_unsynced = self._files_changed = True

    def retire(self) -> None:
        """The partition is deleted: who waits for a sync is refused, and none begins any more."""
        self._retired = True
        if not self._in_flight:
            self._answer(failed=True)

    def _planning_failed(self, error: OSError) -> None:
        self._in_flight = False
        self._finish(None, error)

    def flush_now(self, sync: bool) -> None:
        """Write what is not yet, here and now, for the clean stop, and ``sync`` it.  Raises OSError."""
        plan = self._plan()
        try:
            if sync:
                plan.run()
        finally:
            plan.release()
        self._finish(plan, None)

    def _run_here(self, plan: _Plan) -> None:
        failure = None
        try:
            plan.run()
        except OSError as error:
            failure = error
        plan.release()
        self._finish(plan, failure)

    def _plan(self) -> _Plan:
        log = self._log
        log.leader_epochs.write()
        plan = _Plan(log.log_end_offset)
        try:
            self._cover(plan)
        except OSError:
            plan.release()
            raise
        # Only now: where the plan cannot be made, all of this is due still.
        self._files_changed = False
        for index in plan.txn_indexes:
            index.note_synced()
        return plan

    def _cover(self, plan: _Plan) -> None:
        log = self._log
        for segment in log.segments:
            if segment.size > segment.synced_bytes or (self._cut_unsynced and not segment.sealed):
                plan.add(segment)
                segment.txn_index.persist()
                self._persist_indexes(segment)
                if segment.txn_index.unsynced and not segment.sealed:
                    # Recovery does not look below the recovery point: without it aborted records would be shown.
                    plan.paths.append(segment.path(TXN_INDEX_SUFFIX))
                    plan.txn_indexes.append(segment.txn_index)
                    plan.directory = log.path
                if segment.sealed:
                    suffixes = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
                    plan.paths.extend(segment.path(suffix) for suffix in suffixes)
        if self._files_changed:
            # Without the latter a start takes the partition for a stray.
            plan.paths += (log.leader_epochs.path, log.path / PARTITION_METADATA)
            plan.directory = log.path

    @staticmethod
    def _persist_indexes(segment: Segment) -> None:
        """Write the indexes; where there is no space, a start finds its way with the entries that are there."""
        try:
            segment.persist_indexes()
        except OSError as error:
            if not os_file.is_passing(error):
                raise

    def _finish(self, plan: _Plan | None, error: BaseException | None) -> None:
        log = self._log
        if plan is not None and error is None and not self._retired:
            error = self._place_error()
        if error is not None:
            self._failed(plan, error)
        stale, self._stale = self._stale, False
        if plan is not None and error is None and not stale:
            for segment, _, size in plan.segments:
                segment.note_synced(min(size, segment.size))
            self._cut_unsynced = False
            log.flushed_to(plan.target_offset)
        self._answer(failed=error is not None or self._retired)
        if self._waiters or self._again:
            self._again = False
            self.flush()
        elif not self._in_flight:
            actions, self._idle_actions = self._idle_actions, []
            for action in actions:
                try:
                    action()
                except Exception:  # the others wait, too
                    logger.exception("what waited for a sync of %s failed", log.path)

    def _place_error(self) -> OSError | None:
        """Why a sync proves nothing: the files are not where a start would find them."""
        try:
            self._log.check_place()
        except OSError as error:
            return error
        return None

    def _failed(self, plan: _Plan | None, error: BaseException) -> None:
        if plan is None:
            self._log.planning_failed(error)
            return
        self._log.sync_failed(error)
        # Where a file could not be opened to be synced, what the plan covered besides data is due once more.
        self._files_changed |= plan.directory is not None
        for index in plan.txn_indexes:
            index.note_unsynced()

    def _answer(self, failed: bool) -> None:
        log = self._log
        waiters = self._waiters
        while waiters and (failed or log.directory.offline or waiters[0][0] <= log.recovery_point):
            _, result, on_complete = waiters.popleft()
            try:
                on_complete(log.storage_error() if failed or log.directory.offline else result)
            except Exception:  # those behind it wait for theirs
                logger.exception("an acknowledgement of %s could not be delivered", log.path)

"""One replica on its way to another log directory, while it is read and appended to.

Owns: which bytes of the log are copied, by jobs of a thread, and the exchange, by which the copy becomes the log.  Does
not own which moves there are, how many at a time and how fast (``replica_moves``), nor what a start makes of one that
was interrupted (``move_names``).

A move copies segment by segment, sealed ones with their indexes, each synced; what is appended meanwhile follows.
Once little is left appends are held, the rest and all small files are copied and synced, and the target's checkpoints
name the partition.  Then the source is renamed to ``-moved``, and that is synced: from here on the target counts.  It
gets the partition's name, the log goes on in it, and appends go on.  Once that name is synced the source is renamed to
``-delete``, and removed later.

Invariants:
- Only the loop looks at the log, the thread knows descriptors and paths.
- A cut of the log's end has the active segment compared from its beginning.
- Nothing is removed of the source before the target's name is synced.
- A log is not cleaned while it is copied, as in Kafka.

The log stays the same object: readers, the partition and waiting callers notice nothing.  Views of the former files
stay good until they are let go.

Kafka: ReplicaAlterLogDirsThread, and ``LogManager.replaceCurrentWithFutureLog``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import suppress
from enum import StrEnum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from pybroker import storage_limits
from pybroker.env import WorkGivenUp
from pybroker.storage.files import os_file
from pybroker.storage.files.checkpoints import PARTITION_METADATA
from pybroker.storage.files.file_names import SUFFIXES, TXN_INDEX_SUFFIX, file_name
from pybroker.storage.files.leader_epoch_cache import LEADER_EPOCH_CHECKPOINT
from pybroker.storage.files.mirror import SourceCut, SourceFailed
from pybroker.storage.log.producer_snapshot import encode_snapshot, snapshot_offsets, snapshot_path
from pybroker.storage.manager.move_copy import Piece, copy_piece, make_whole, sync_directory
from pybroker.storage.manager.move_names import mark_deleted, moved_path

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env, Executor
    from pybroker.storage.files.segment import Segment
    from pybroker.storage.log.log import Log
    from pybroker.storage.log.partition_log import PartitionLog
    from pybroker.storage.manager.log_dir_state import LogDirState
    from pybroker.storage.results import TopicPartition

# A move that the controller has not committed tries again after so long.
MOVE_COMMIT_RETRY_MS = 100

logger = logging.getLogger("pybroker.storage")


class State(StrEnum):
    """Where a move stands."""

    IDLE = auto()  # between two steps: it may end at once
    WORKING = auto()  # the thread has a piece of the copy, or appends are held for the rest
    CANCELLED = auto()  # the same; it ends when that comes back
    COMMITTED = auto()  # the source is renamed: it cannot be taken back
    DISOWNED = auto()  # the same; its partition is deleted, or a log dir has failed
    ENDED = auto()


Event = StrEnum("Event", "WORK BACK COMMIT CANCEL END")  # BACK: the work came back, and the move goes on later
IDLE, WORKING, CANCELLED, COMMITTED, DISOWNED, ENDED = State

# A pair with None is a bug of ours; a test walks all of them.
# fmt: off
_ROWS: Final[dict[Event, tuple[State | None, ...]]] = {
    #              IDLE     WORKING    CANCELLED  COMMITTED DISOWNED  ENDED
    Event.WORK:   (WORKING, None,      None,      None,     None,     None),
    Event.BACK:   (IDLE,    IDLE,      ENDED,     None,     None,     ENDED),
    Event.COMMIT: (None,    COMMITTED, None,      None,     None,     None),
    Event.CANCEL: (ENDED,   CANCELLED, CANCELLED, DISOWNED, DISOWNED, ENDED),
    Event.END:    (ENDED,   ENDED,     ENDED,     ENDED,    ENDED,    ENDED),
}
# fmt: on
TRANSITIONS: Final = {
    (state, event): after for event, row in _ROWS.items() for state, after in zip(State, row, strict=True) if after
}


class Mover(Protocol):
    """What a move asks and tells of the others: ``ReplicaMoves``."""

    def step_bytes(self) -> int:
        """How much may be copied in one step."""
        ...

    def tail_bytes(self) -> int:
        """How much of the active segment may be left for the exchange."""
        ...

    def pause_ms(self, copied_bytes: int) -> float:
        """So much was copied: how long to rest before more is."""
        ...

    def stop_cleaning(self, log: PartitionLog) -> bool:
        """Whether nothing of the log is being cleaned; what is, ends soon."""
        ...

    def took_place(self, move: ReplicaMove) -> None:
        """The log lies in the target."""
        ...

    def ended(self, move: ReplicaMove) -> None:
        """It does nothing more, whatever has become of it."""
        ...


class ReplicaMove:
    """Everything but jobs runs on the broker's loop."""

    def __init__(
        self, env: Env, mover: Mover, log: PartitionLog, source: LogDirState, target: LogDirState, path: Path
    ) -> None:
        """``path`` is the directory with the suffix ``-future`` in the target, which is there."""
        self.log = log
        self.source = source
        self.target = target
        self.path = path
        self.key: TopicPartition = (log.topic, log.partition)
        self._env = env
        self._mover = mover
        self._executor: Executor | None = None  # from ``begin`` on
        self._copied: dict[Segment, int] = {}  # bytes
        self._complete: set[Segment] = set()  # sealed, all copied, indexes too, and synced
        self._cuts = 0
        self._release: Callable[[], None] | None = None  # while appends are held
        self._timer: Cancellable | None = None
        self._state = IDLE
        self._closing = False

    # --- what is shown of it -----------------------------------------------------------------------------------------

    @property
    def is_committed(self) -> bool:
        """Whether it cannot be taken back."""
        return self._state in {COMMITTED, DISOWNED}

    @property
    def size_bytes(self) -> int:
        """The bytes of data that are copied."""
        return sum(self._copied.values())

    def offset_lag(self) -> int:
        """By how many offsets the copy ends before the log, to about an entry of the index."""
        log = self.log.opened
        if log is None:
            return 0
        for segment in log.segments:
            copied = self._copied.get(segment, 0)
            if copied < segment.size:
                try:
                    return log.log_end_offset - segment.offset_index.offset_near(copied)
                except OSError:
                    return log.log_end_offset - segment.base_offset
        return 0

    # --- copying -----------------------------------------------------------------------------------------------------

    def begin(self, executor: Executor) -> None:
        """Begin to copy, or go on with what lies at the target."""
        self._executor = executor
        self._go_on()

    def on_cut(self) -> None:
        """See ``Mirror``: what is copied of the segment that is cut is compared anew."""
        self._cuts += 1
        active = self.log.open().active
        self._copied.pop(active, None)
        self._complete.discard(active)

    def cancel(self) -> None:
        """Copy nothing more; the directories stay as they are."""
        self._become(Event.CANCEL)

    def close(self) -> None:
        """The broker stops: what is decided is finished, nothing else begins; the executor closes next."""
        self._closing = True
        if not self.is_committed:
            self.cancel()

    def _go_on(self) -> None:
        """Do what comes next."""
        self._timer = None
        self.log.forget_failure()
        if self._state is not IDLE or self.log.refuses:
            self._become(Event.END)
            return
        log = self.log.open()
        if log.refuses or not self._mover.stop_cleaning(self.log):
            self._again(storage_limits.MOVE_RETRY_MS)
            return
        if not log.on_disk:
            self._move_unwritten()
            return
        log.mirror = self
        following = self._next_piece(log)
        if following is None:
            self._become(Event.WORK)
            log.queue.hold(self._held)
        else:
            self._copy(log, *following)

    def _again(self, delay_ms: float) -> None:
        """Go on later, and let appends go on now."""
        self._let_go()
        self._become(Event.BACK)
        if self._state is IDLE:
            self._timer = self._env.timers.call_later(delay_ms, self._go_on)

    def _next_piece(self, log: Log) -> tuple[Segment, Piece] | None:
        """What is to be copied before the exchange; None where only a little is left, of the active segment."""
        for segment in log.segments:
            copied = self._copied.get(segment, 0)
            sealed = segment is not log.active
            left = segment.size - copied
            if (sealed and segment not in self._complete) or left > self._mover.tail_bytes():
                end = min(segment.size, copied + self._mover.step_bytes())
                return segment, Piece(segment.base_offset, copied, end, completes=sealed and end == segment.size)
        return None

    def _copy(self, log: Log, segment: Segment, piece: Piece) -> None:
        cuts = self._cuts
        try:
            segment.open()
        except OSError as error:
            self._source_failed(error)
            return
        segment.pin()
        self._become(Event.WORK)

        def done(_: None, error: BaseException | None) -> None:
            segment.unpin()
            if error is not None:
                self._failed(error)
                return
            if cuts == self._cuts:
                self._copied[segment] = piece.end
                if piece.completes:
                    self._complete.add(segment)
            self._forget_gone(log)
            self._again(self._mover.pause_ms(piece.end - piece.start))

        self._submit(partial(copy_piece, piece, segment.fd, log.path, self.path, self.target.directory.sync), done)

    def _forget_gone(self, log: Log) -> None:
        """Segments that retention has taken meanwhile."""
        if len(self._copied) > len(log.segments):
            there = set(log.segments)
            self._copied = {segment: size for segment, size in self._copied.items() if segment in there}
            self._complete &= there

    def _submit(
        self, work: Callable[[], Generator[None, None, None] | None], done: Callable[[None, BaseException | None], None]
    ) -> None:
        assert self._executor is not None, "it has begun"
        self._executor.submit(work, done)

    # --- the exchange ------------------------------------------------------------------------------------------------

    def _held(self, release: Callable[[], None]) -> None:
        """Nothing is in flight, and nothing begins: the rest is copied."""
        self._release = release
        log = self.log.opened
        if log is None or self._state is not WORKING or self.log.refuses:
            self._become(Event.END)
            return
        if not log.on_disk or self._next_piece(log) is not None:  # a cut or a roll came before the hold
            self._again(0)
            return
        try:
            work = self._last_step(log)
        except OSError as error:
            self._source_failed(error)
            return
        log.active.pin()

        def done(_: None, error: BaseException | None) -> None:
            log.active.unpin()
            self._commit(error)

        self._submit(work, done)

    def _last_step(self, log: Log) -> Callable[[], Generator[None, None, None]]:
        """Give what makes the target whole, also where the source has no space.  Raises OSError."""
        active, end_offset = log.active, log.log_end_offset
        active.open()
        _persist_indexes(active)
        contents = {
            LEADER_EPOCH_CHECKPOINT: log.leader_epochs.contents(),
            snapshot_path(log.path, end_offset).name: encode_snapshot(log.producers.producers),
        }
        if aborted := active.txn_index.contents():
            contents[file_name(active.base_offset, TXN_INDEX_SUFFIX)] = aborted
        names = [PARTITION_METADATA, *(snapshot_path(log.path, offset).name for offset in snapshot_offsets(log.path))]
        kept = {file_name(segment.base_offset, suffix) for segment in log.segments for suffix in SUFFIXES}
        self.target.note_offsets(self.key, log)
        self.target.recovery_points.offsets[self.key] = end_offset
        self.target.high_watermarks.offsets[self.key] = log.high_watermark
        piece = Piece(active.base_offset, self._copied.get(active, 0), active.size, completes=True)
        return partial(
            make_whole,
            copy_piece(piece, active.fd, log.path, self.path, self.target.directory.sync),
            log.path,
            self.path,
            names,
            contents,
            kept,
            self.target.begin_write(),
            self.target.directory.sync,
        )

    def _commit(self, error: BaseException | None) -> None:
        """The target is whole: it is to count."""
        log = self.log.opened
        if error is not None or log is None or self._state is not WORKING or self.log.refuses:
            self.target.forget(self.key)
            self._failed(error or WorkGivenUp())
            return
        if log.flushes.in_flight:  # it goes by the paths that the files have now
            log.flushes.flush(lambda: self._commit(None))
            return
        moved = moved_path(self.source, self.path)
        try:
            os_file.rename(log.path, moved)
        except OSError as failure:
            self.target.forget(self.key)
            self._source_failed(failure)
            return
        self._become(Event.COMMIT)
        log.renamed_to(moved)
        directory = self.source.directory
        self._submit(partial(sync_directory, directory.path, directory.sync), self._committed_on_disk)

    def _committed_on_disk(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self.source.directory.fail(error, f"the move of {self.key[0]}-{self.key[1]}")
        self._take_place()

    def _take_place(self) -> None:
        """Whatever happens from here on, the target counts; a passing lack of descriptors is waited for."""
        self._timer = None
        log = self.log.opened
        if log is None or self._state is not COMMITTED or self.log.refuses:
            self._become(Event.END)
            return
        if log.flushes.in_flight:
            log.flushes.flush(self._take_place)
            return
        path = self.target.path_of(self.key)
        fds: dict[Segment, int] = {}
        try:
            _open_in_use(log, self.path, fds)
            os_file.rename(self.path, path)
        except OSError as error:
            for fd in fds.values():
                os_file.close(fd)
            self._could_not_take_place(error)
            return
        former = log.path
        self.log.move_to(self.target.directory, path, fds)
        log.guarded(log.active.persist_indexes, "indexes")  # there may have been no space for them in the source
        log.mirror = None
        self._mover.took_place(self)
        self._let_go()
        self._remove(former)

    def _could_not_take_place(self, error: OSError) -> None:
        if os_file.is_passing(error) and not self._closing:
            self._timer = self._env.timers.call_later(MOVE_COMMIT_RETRY_MS, self._take_place)
            return
        self.log.go_offline()  # it lies in the target, which the next start sees
        if not self._closing:
            self.target.directory.fail(error, f"the move of {self.key[0]}-{self.key[1]}")
        self._become(Event.END)

    def _remove(self, former: Path) -> None:
        """Remove the former files, once the name of the new ones is synced."""
        directory = self.target.directory
        if self._closing:  # the next start removes them
            self._synced(former, None, None)
            return
        self._submit(partial(sync_directory, directory.path, directory.sync), partial(self._synced, former))

    def _synced(self, former: Path, _: None, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, WorkGivenUp):
            self.target.directory.fail(error, f"the move of {self.key[0]}-{self.key[1]}")
        elif not self._closing:
            self._mark_deleted(former)
        self._become(Event.END)

    def _mark_deleted(self, former: Path) -> None:
        """They count no more, whatever becomes of the new ones: were those deleted, a start would look for them."""
        directory = self.source.directory
        try:
            to_delete = mark_deleted(former)
        except FileNotFoundError:
            return
        except OSError as error:
            directory.fail(error, f"the renaming of {former}")
            return
        directory.remove_later([to_delete], self.log.config.file_delete_delay_ms)

    def _move_unwritten(self) -> None:
        """A log that has no files, because it was never written to, takes its place at once.

        Its directory stays, so that a start finds the place which the controller may not have heard of yet.
        """
        place = self.target.path_of(self.key)
        former = moved_path(self.source, self.path)
        try:
            with suppress(FileNotFoundError):
                os_file.rename(self.log.path, former)
        except OSError as error:
            self._source_failed(error)
            return
        try:
            os_file.rename(self.path, place)
        except OSError as error:
            with suppress(OSError):
                os_file.rename(former, self.log.path)
            self._target_failed(error)
            return
        self.log.move_to(self.target.directory, place, {})
        self._mover.took_place(self)
        self._mark_deleted(former)
        self._become(Event.END)

    # --- ends and failures -------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """Appends go on."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def _become(self, event: Event) -> None:
        """Take the state that the table has for the event; a move that has ended does nothing more."""
        before, self._state = self._state, TRANSITIONS[self._state, event]
        if self._state is not ENDED or before is ENDED:
            return
        if self._timer is not None:
            self._timer.cancel()
        log = self.log.opened
        if log is not None and log.mirror is self:
            log.mirror = None
        self._copied.clear()
        self._complete.clear()
        self._let_go()
        self._mover.ended(self)

    def _failed(self, error: BaseException) -> None:
        """A job failed; one whose source was cut under it comes again."""
        if self._state is not WORKING or self.log.refuses or isinstance(error, WorkGivenUp):
            self._become(Event.END)
        elif isinstance(error, SourceCut):
            self._again(storage_limits.MOVE_RETRY_MS)
        elif isinstance(error, SourceFailed):
            self._source_failed(error.__cause__ or error)
        else:
            self._target_failed(error)

    def _source_failed(self, error: BaseException) -> None:
        self._log_dir_failed(self.source, error, f"moving {self.log.path}")

    def _target_failed(self, error: BaseException) -> None:
        self._log_dir_failed(self.target, error, f"moving {self.log.path} to {self.path}")

    def _log_dir_failed(self, state: LogDirState, error: BaseException, doing: str) -> None:
        if os_file.is_passing(error):
            state.directory.refused_for_space(error)
            self._again(storage_limits.MOVE_RETRY_MS)
        else:
            self._become(Event.END)
            state.directory.fail(error, doing)


def _persist_indexes(segment: Segment) -> None:
    """Write the indexes where they lie; where there is no space for them, what is missing is written in the target."""
    try:
        segment.persist_indexes()
    except OSError as error:
        if not os_file.is_passing(error):
            raise


def _open_in_use(log: Log, path: Path, fds: dict[Segment, int]) -> None:
    """Open the copies of the segments of which a thread may be using the descriptor.  Raises OSError."""
    for segment in log.segments:
        if segment.pins:
            fds[segment] = segment.opened_for_move(path)

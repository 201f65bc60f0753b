"""Appends on their way through one of the log directory's writer threads.

Owns, for one log: the appends whose offsets are reserved and whose bytes are not written yet. Also owns what waits
until there are none (appends that roll the segment, truncations, the close).

Invariants:
- Everything in flight belongs to the active segment, in order, without a gap.
- When an append fails, those behind it fail too, and their offsets and producer state are given back. The file is cut
  to the readable end before the next append is taken.
- ``on_complete`` runs in order, and only after the thread has let go of the buffer.
- A callback that fails keeps no other from its turn.
- All that is in flight is one lane of the directory's ``writers``: it is written in order.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from pybroker.env import WorkGivenUp
from pybroker.storage.dirs.writer_threads import Lane
from pybroker.storage.files import os_file
from pybroker.storage_limits import INLINE_WRITE_BYTES_MAX

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from pybroker.storage.dirs.log_dir import LogDir
    from pybroker.storage.files.segment import Placed, Segment
    from pybroker.storage.results import AppendResult
    from pybroker.storage.rules.producer_state import FormerState, ProducerStateManager

logger = logging.getLogger(__name__)

T = TypeVar("T")
OnComplete = Callable[["AppendResult"], None]


class AppendedLog(Protocol):
    """What the queue asks and tells its log; ``LogState`` says what each member is."""

    @property
    def path(self) -> Path: ...
    @property
    def directory(self) -> LogDir: ...
    @property
    def active(self) -> Segment: ...
    @property
    def producers(self) -> ProducerStateManager: ...
    @property
    def refuses(self) -> bool: ...
    def reserve(self, end_offset: int) -> None: ...
    def large_append_written(self, pending: PendingAppend) -> None: ...
    def write_failed(self, error: BaseException, size: int) -> None: ...
    def storage_error(self) -> AppendResult: ...


class PendingAppend:
    """One append in flight: the batch, if it is not written yet, its place, and what it has changed."""

    __slots__ = ("data", "formers", "on_complete", "placed", "result")

    def __init__(
        self,
        data: ReadableBuffer | None,
        placed: Placed,
        formers: Sequence[FormerState],
        result: AppendResult,
        on_complete: OnComplete,
    ) -> None:
        self.data = data
        self.placed = placed
        self.formers = formers
        self.result = result
        self.on_complete = on_complete


class _BehindFailedWrite(Exception):
    """A write that was not tried, because one before it failed."""


class AppendQueue:
    """The writes in flight of one log; ``busy`` while there are any, or something waits for there to be none."""

    __slots__ = ("_held", "_in_flight", "_lane", "_log", "_waiting", "broken", "busy", "others_wait")

    def __init__(self, log: AppendedLog) -> None:
        self._log = log
        self._in_flight: deque[PendingAppend] = deque()
        self._waiting: deque[Callable[[], None]] = deque()
        self._lane = Lane()
        # A batch's records are being looked at in a thread, or the log's files are exchanged: what comes behind waits.
        self._held = False
        self.busy = False
        # Whether appends came before whose offsets are not reserved yet: then one more takes its place behind them.
        self.others_wait = False
        self.broken = False  # set by a writer thread at a failure, cleared on the loop once all are back

    @property
    def end_position(self) -> int:
        """Where the next write goes: behind the last one in flight."""
        last = self._in_flight[-1] if self._in_flight else None
        return last.placed[0] + last.placed[1] if last else self._log.active.size

    def append_in_thread(self, pending: PendingAppend) -> None:
        """Reserve the offsets and let a writer thread write; small appends behind a large one are copied.

        Raises OSError when the file cannot be opened; then nothing is reserved.
        """
        log = self._log
        if not self.busy:
            log.active.prepare_for_thread()
        if pending.placed[1] <= INLINE_WRITE_BYTES_MAX:
            assert pending.data is not None
            pending.data = bytes(pending.data)
        log.reserve(pending.result.last_offset + 1)
        self._submit(pending)

    def _submit(self, pending: PendingAppend) -> None:
        log = self._log
        segment = log.active
        segment.begin_thread_write()
        fd = segment.fd
        self._in_flight.append(pending)
        self.busy = True

        def write() -> None:
            if self.broken:
                raise _BehindFailedWrite
            assert pending.data is not None
            try:
                os_file.write_fully(fd, pending.data, pending.placed[0])
            except BaseException:
                self.broken = True
                raise

        def written(_: None, error: BaseException | None) -> None:
            segment.end_thread_write()
            self._written(pending, error)

        log.directory.writers.submit(self._lane, write, written)

    def when_idle(self, action: Callable[[], None]) -> None:
        """Run ``action`` now if nothing is in flight, else in turn once nothing is.

        While one that waited runs, ``busy`` is false and others may wait still: nothing that it sets off passes them.
        """
        if self.busy or self._waiting:
            self._waiting.append(action)
            self.others_wait = True
        else:
            action()

    def hold(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """Once nothing is in flight ``begin(release)``; nothing else begins until ``release()``, which comes once."""

        def take() -> None:
            self._held = self.busy = self.others_wait = True
            begin(self._release)

        self.when_idle(take)

    def _release(self) -> None:
        self._held = self.busy = False
        self.others_wait = bool(self._waiting)
        self._run_waiting()

    def run_in_thread(
        self,
        steps: Generator[None, None, T],
        append: Callable[[T], AppendResult | None],
        on_complete: OnComplete,
    ) -> None:
        """Take the steps before an append in a thread, and keep the append's place: what comes after it waits.

        They are taken to their end also where the client has gone, as an append is that has begun; they are given up
        where the log takes nothing any more.
        """

        def begin() -> None:
            if self._log.refuses:
                on_complete(self._log.storage_error())
                return
            self._held = self.busy = self.others_wait = True
            self._log.directory.writers.submit_steps(self._as_long_as_wanted(steps), finished)

        def finished(outcome: T | None, error: BaseException | None) -> None:
            self._held = self.busy = False
            self.others_wait = bool(self._waiting)
            try:
                if error is not None and not isinstance(error, WorkGivenUp):
                    logger.error("a batch for %s could not be looked at", self._log.path, exc_info=error)
                result = self._log.storage_error() if error is not None else append(outcome)  # type: ignore[arg-type]
                if result is not None:
                    on_complete(result)
            finally:
                self._run_waiting()

        self.when_idle(begin)

    def _as_long_as_wanted(self, steps: Generator[None, None, T]) -> Generator[None, None, T]:
        """Give them up once the log refuses everything, which it never takes back while it has something under way."""
        while not self._log.refuses:
            try:
                yield next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
        steps.close()
        raise WorkGivenUp

    def _written(self, pending: PendingAppend, error: BaseException | None) -> None:
        pending.data = None
        log = self._log
        if error is not None and not isinstance(error, _BehindFailedWrite):
            self._give_back()
            log.write_failed(error, pending.placed[1])
        self._in_flight.popleft()
        try:
            if error is None:
                log.large_append_written(pending)
            else:
                pending.on_complete(log.storage_error())
        finally:
            if not self._in_flight:
                self.broken = False
                self.busy = False
                self._run_waiting()

    def _give_back(self) -> None:
        """Undo the reservations of everything in flight, the latest first."""
        for pending in reversed(self._in_flight):
            self._log.producers.take_back(pending.formers)

    def _run_waiting(self) -> None:
        while self._waiting and not self._in_flight and not self._held:
            action = self._waiting.popleft()
            self.others_wait = bool(self._waiting)
            self.busy = False  # what it appends goes ahead of the others that wait
            try:
                action()
            except Exception:
                logger.exception("what waited for the appends of %s failed", self._log.path)
        self.busy = self._held or bool(self._in_flight or self._waiting)

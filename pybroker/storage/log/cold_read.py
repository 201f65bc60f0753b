"""A read that has to wait for the disk, on the log directory's reader thread."""

from __future__ import annotations

from collections.abc import Callable

from pybroker.storage.files.segment import Segment
from pybroker.storage.log.log_state import LogState
from pybroker.storage.results import CORRUPT_MESSAGE, EMPTY, KAFKA_STORAGE_ERROR, NONE, ReadResult


class ColdRead:
    """A read whose pages are not in memory: ``start(done)`` reads them on the log directory's reader thread.

    ``done(ReadResult)`` runs on the loop later, exactly once.  Until then the segment is pinned.
    """

    __slots__ = ("_go_on", "_log", "_segment", "_work", "max_bytes")

    def __init__(
        self,
        log: LogState,
        segment: Segment,
        max_bytes: int,
        work: Callable[[], memoryview | None],
        go_on: Callable[[], ReadResult | ColdRead] | None,
    ) -> None:
        """``go_on()`` reads the next segment, where this one turns out to have nothing."""
        self._log = log
        self._segment = segment
        self._work = work
        self._go_on = go_on
        self.max_bytes = max_bytes

    def start(self, done: Callable[[ReadResult], None]) -> None:
        """Submit the read.  A failing disk answers KAFKA_STORAGE_ERROR, bytes that are no batch CORRUPT_MESSAGE."""
        segment = self._segment
        segment.pin()
        try:
            segment.open()  # It may have been evicted since.
        except OSError as error:
            segment.unpin()
            self._log.read_failed(error)
            self._log.environment.env.timers.call_soon(done, ReadResult(KAFKA_STORAGE_ERROR, EMPTY))
            return

        def finished(records: memoryview | None, error: BaseException | None) -> None:
            segment.unpin()
            if error is not None:
                self._log.read_failed(error)
                done(ReadResult(KAFKA_STORAGE_ERROR, EMPTY))
            elif records is None:
                done(ReadResult(CORRUPT_MESSAGE, EMPTY))
            elif not records and self._go_on is not None:
                more = self._go_on()
                if isinstance(more, ColdRead):
                    more.start(done)
                else:
                    done(more)
            else:
                done(ReadResult(NONE, records))

        self._log.directory.reader.submit(self._work, finished)

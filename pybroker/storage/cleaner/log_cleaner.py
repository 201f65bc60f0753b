"""The broker's side of log cleaning: when, which log, and what comes of it.  Kafka's LogCleaner and its manager.

Owns the timer, the workers (``log.cleaner.threads`` of them, each with a runner), what is being cleaned, which
partitions turned out not to be cleanable, and the checkpoints.  Everything here runs on the broker's loop but the
runners' steps.

Invariants:
- Nothing past the recovery point that the disk knows is ever swapped, so that a recovery can tell what was cleaned away
  from what was lost.
- One round per log at a time.
- Retention leaves a log alone while it is cleaned.
- A truncation, a deletion or a failure of the log's directory aborts its round, and nothing of an aborted round is
  swapped in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pybroker import limits, storage_limits
from pybroker.storage.cleaner.cleaner_checkpoints import CleanerCheckpoints
from pybroker.storage.cleaner.cleaner_jobs import (
    CleanedGroup,
    CleanerDied,
    CleaningAborted,
    CleaningJob,
    Progress,
    RoundEnd,
    SourceSegment,
    Step,
)
from pybroker.storage.cleaner.runners import Runner
from pybroker.storage.cleaner.selection import LogToClean, examine
from pybroker.storage.cleaner.swap import SwapFailed, swap_in
from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import CLEANED_SUFFIX, partition_dir_name
from pybroker.storage.results import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Cancellable, Env, Executor
    from pybroker.storage.dirs.log_dir import LogDir
    from pybroker.storage.files.segment import Segment
    from pybroker.storage.log.log import Log
    from pybroker.storage.log.partition_log import PartitionLog

# A cleaner on a thread shares the interpreter with the broker and its host: it goes by small pieces, rests so many
# times as long as each took, and has space for some 270,000 keys a round.
IN_PROCESS_CLEANER_BUFFER_BYTES = 32 << 10
IN_PROCESS_CLEANER_REST = 3
IN_PROCESS_CLEANER_MAP_BYTES = 8 << 20


DEATHS_MAX = 3
BUFFER_BYTES_MIN = 1024

logger = logging.getLogger("pybroker.storage")


class _Worker:
    """A thread with its runner, and the round that it is at."""

    def __init__(self, executor: Executor, runner: Runner) -> None:
        self.executor = executor
        self.runner = runner
        self.round: _RunningRound | None = None
        self.resting = True


class _RunningRound:
    """A round under way."""

    def __init__(self, chosen: LogToClean, sources: list[Segment], worker: _Worker, now_ms: int) -> None:
        self.log = chosen.log
        self.chosen = chosen
        self.sources = {segment.base_offset: segment for segment in sources}
        self.worker = worker
        self.started_ms = now_ms
        self.step_started_ms = now_ms
        self.aborted = False
        self.pause: Cancellable | None = None


class LogCleaner:
    """One per broker."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        logs: Callable[[], list[PartitionLog]],
        make_runner: Callable[[], Runner],
        cover: Callable[[Log, int], Callable[[], object] | None],
    ) -> None:
        """``cover(log, offset)`` gives what has the disk know a recovery point at or past ``offset``, if it does not.

        It is called when the log's own one is there.
        """
        self._env = env
        self._config = config
        self._logs = logs
        self._make_runner = make_runner
        self._cover = cover
        self._checkpoints = CleanerCheckpoints()
        self._workers: list[_Worker] = []
        self._rounds: dict[Path, _RunningRound] = {}  # by the log's path
        self._deaths: dict[Path, int] = {}
        self._uncleanable: set[Path] = set()
        self._due: list[LogToClean] = []
        self._shut_looked_at_ms = -1
        self._timer: Cancellable | None = None
        self._closed = False

    # Looking for work -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look at all logs, a few per turn of the loop, clean what is due, and come again after the backoff."""
        if self._closed:
            return
        interval_ms = self._config.get_int("log.retention.check.interval.ms")
        now_ms = self._env.clock.monotonic_ms()
        shut_too = self._shut_looked_at_ms < 0 or now_ms - self._shut_looked_at_ms >= interval_ms
        if shut_too:
            self._shut_looked_at_ms = now_ms
        self._look(self._logs(), [], shut_too)

    def _look(self, logs: list[PartitionLog], found: list[LogToClean], shut_too: bool) -> None:
        for log in logs[: storage_limits.PARTITIONS_PER_TURN]:
            if log.config.compact and (log.opened is not None or shut_too):
                found += self._examine(log)
        rest = logs[storage_limits.PARTITIONS_PER_TURN :]
        if rest:
            self._timer = self._env.timers.call_soon(self._look, rest, found, shut_too)
            return
        self._due = sorted(found, key=lambda candidate: candidate.dirty_ratio)
        self._timer = self._env.timers.call_later(self._config.get_int("log.cleaner.backoff.ms"), self.start)
        self._employ()

    def _examine(self, log: PartitionLog) -> list[LogToClean]:
        """The log, if it is to be cleaned now.  One that is not in use is closed again."""
        if log.refuses or log.is_moving or log.path in self._uncleanable or log.path in self._rounds:
            return []
        was_open = log.opened is not None
        candidate = None
        try:
            opened = log.open()
            if len(opened.segments) > 1 and opened.on_disk:
                checkpoint = self._checkpoints.of(log.directory).get((log.topic, log.partition))
                candidate = examine(log, checkpoint, self._env.clock.now_ms())
        except Exception as error:
            self._on_failure(log, error)
        if candidate is not None and candidate.due:
            return [candidate]
        if not was_open:
            log.shut()
        return []

    def _employ(self) -> None:
        """Give idle workers the filthiest logs."""
        for _ in range(self._config.get_int("log.cleaner.threads")):
            worker = self._idle_worker()
            chosen = self._next_due() if worker is not None else None
            if worker is None or chosen is None:
                break
            self._begin(worker, chosen)
        for worker in self._workers:
            if worker.round is None and not worker.resting:
                worker.resting = True
                worker.executor.submit(worker.runner.rest, lambda _result, _error: None)

    def _idle_worker(self) -> _Worker | None:
        busy = sum(worker.round is not None for worker in self._workers)
        if busy >= self._config.get_int("log.cleaner.threads") or not self._due:
            return None
        for worker in self._workers:
            if worker.round is None:
                return worker
        executor = self._env.executor(f"log-cleaner-{len(self._workers)}", limits.WORKER_NICENESS)
        self._workers.append(_Worker(executor, self._make_runner()))
        return self._workers[-1]

    def _next_due(self) -> LogToClean | None:
        """The filthiest log of the last look that is still due."""
        while self._due:
            found = self._examine(self._due.pop().log)
            if found:
                return found[0]
        return None

    # A round ----------------------------------------------------------------------------------------------------------

    def _begin(self, worker: _Worker, chosen: LogToClean) -> None:
        log = chosen.log
        sources = [segment for segment in log.open().segments if segment.base_offset < chosen.first_uncleanable_offset]
        try:
            job = self._job(chosen, sources, worker.runner.shares_interpreter)
        except Exception as error:
            self._on_failure(log, error)
            return
        worker.round = round_ = _RunningRound(chosen, sources, worker, self._env.clock.monotonic_ms())
        worker.resting = False
        self._rounds[log.path] = round_
        worker.runner.begin(job)
        opened = log.open()
        if opened.recovery_point < chosen.first_uncleanable_offset:
            opened.flushes.flush(partial(self._on_flushed, round_))
        else:
            self._on_flushed(round_)

    def _on_flushed(self, round_: _RunningRound) -> None:
        """What is to be cleaned is on the disk: have the recovery point there, too, before anything changes."""
        log, bound = round_.log.open(), round_.chosen.first_uncleanable_offset
        if round_.aborted or round_.log.refuses or log.recovery_point < bound:
            self._give_up(round_)
            return
        try:
            write = self._cover(log, bound)
        except Exception as error:
            self._on_error(round_, error)
            return
        if write is None:
            self._submit_step(round_)
        else:
            round_.worker.executor.submit(write, partial(self._on_covered, round_))

    def _on_covered(self, round_: _RunningRound, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._on_error(round_, error)
        elif round_.aborted or round_.log.refuses:
            self._give_up(round_)
        else:
            self._submit_step(round_)

    def _job(self, chosen: LogToClean, sources: list[Segment], small: bool) -> CleaningJob:
        log, config, broker = chosen.log.open(), chosen.log.config, self._config
        bound = chosen.first_uncleanable_offset
        threads = max(broker.get_int("log.cleaner.threads"), 1)
        map_bytes = broker.get_int("log.cleaner.dedupe.buffer.size") // threads
        buffer_bytes = max(broker.get_int("log.cleaner.io.buffer.size") // threads // 2, BUFFER_BYTES_MIN)
        return CleaningJob(
            directory=str(log.path),
            segments=[SourceSegment(segment.base_offset, segment.size) for segment in sources],
            later_aborted=[
                aborted
                for segment in log.segments
                if segment.base_offset >= bound
                for aborted in segment.txn_index.entries
                if aborted.first_offset < bound
            ],
            producers={
                producer_id: (entry.last_offsets, entry.producer_epoch)
                for producer_id, entry in log.producers.producers.items()
            },
            first_dirty_offset=chosen.first_dirty_offset,
            first_uncleanable_offset=bound,
            now_ms=self._env.clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_size_bytes,
            index_bytes_max=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            offset_map_bytes=min(map_bytes, IN_PROCESS_CLEANER_MAP_BYTES) if small else map_bytes,
            offset_map_load_factor=broker.get_float("log.cleaner.io.buffer.load.factor"),
            io_buffer_bytes=min(buffer_bytes, IN_PROCESS_CLEANER_BUFFER_BYTES) if small else buffer_bytes,
            bytes_per_second=self._bytes_per_second(),
            sync=log.directory.sync,
        )

    def _bytes_per_second(self) -> float:
        return max(self._config.get_float("log.cleaner.io.max.bytes.per.second"), 1.0)

    def _submit_step(self, round_: _RunningRound) -> None:
        round_.pause = None
        round_.step_started_ms = self._env.clock.monotonic_ms()
        worker = round_.worker
        worker.executor.submit(worker.runner.step, partial(self._on_step, round_))

    def _on_step(self, round_: _RunningRound, step: Step | None, error: BaseException | None) -> None:
        if error is not None:
            self._on_error(round_, error)
        elif round_.aborted or round_.log.refuses:
            self._give_up(round_)
        elif isinstance(step, Progress):
            round_.pause = self._env.timers.call_later(self._pause_ms(round_, step), self._submit_step, round_)
        elif isinstance(step, CleanedGroup):
            if self._swap(round_, step):
                self._submit_step(round_)
            else:
                self._give_up(round_)
        elif isinstance(step, RoundEnd):
            self._finish(round_, step)

    def _pause_ms(self, round_: _RunningRound, progress: Progress) -> float:
        """How long the thread rests, so that the broker has the interpreter, and the disk is not used too fast."""
        took_ms = self._env.clock.monotonic_ms() - round_.step_started_ms
        throttled_ms = 1000 * progress.bytes / self._bytes_per_second()
        return max(IN_PROCESS_CLEANER_REST * took_ms, throttled_ms - took_ms, 1)

    def _swap(self, round_: _RunningRound, group: CleanedGroup) -> bool:
        """Put a cleaned segment in its place; whether the round goes on."""
        log = round_.log
        opened = log.open()
        replaced = [round_.sources[base_offset] for base_offset in group.replaced]
        if not {*replaced} <= {*opened.segments} or opened.active in replaced:
            return False
        try:
            swap_in(opened, group, replaced)
        except SwapFailed as error:
            log.directory.fail(error.__cause__ or error, f"swapping cleaned segments of {log.path}")
        except OSError as error:
            self._on_os_error(log, error)
        else:
            return True
        return False

    def _finish(self, round_: _RunningRound, end: RoundEnd) -> None:
        log, stats = round_.log, end.stats
        self._deaths.pop(log.path, None)
        self._checkpoints.set(log.directory, (log.topic, log.partition), end.clean_offset)
        logger.info(
            "Cleaned %s-%d from offset %d to %d in %.1f s: %d of %d records stay, %.1f of %.1f MB; %d dirty keys",
            log.topic,
            log.partition,
            round_.chosen.first_dirty_offset,
            end.clean_offset,
            (self._env.clock.monotonic_ms() - round_.started_ms) / 1000,
            stats.records_kept,
            stats.records_read,
            stats.bytes_written / 1e6,
            stats.bytes_read / 1e6,
            stats.keys,
        )
        self._end(round_)
        # Where the map had no space for all keys, or a round for all records, there is more to do: behind the others.
        self._due[:0] = self._examine(log)
        self._employ()

    def _end(self, round_: _RunningRound) -> None:
        round_.worker.round = None
        del self._rounds[round_.log.path]

    def _give_up(self, round_: _RunningRound) -> None:
        """End a round in the middle, and remove what it left half written before the log is cleaned again."""
        path = round_.log.path

        def remove() -> None:
            for name in os_file.names_in(path):
                if name.endswith(CLEANED_SUFFIX):
                    os_file.unlink_if_exists(path / name)

        def removed(_: None, error: BaseException | None) -> None:
            if error is not None:
                logger.warning("What cleaning left in %s stays until the next start: %s", path, error)
            self._end(round_)
            if not self._closed:
                self._employ()

        if self._closed:
            removed(None, _outcome_of(remove))
        else:
            round_.worker.executor.submit(remove, removed)

    # Failures and aborts ----------------------------------------------------------------------------------------------

    def _on_error(self, round_: _RunningRound, error: BaseException) -> None:
        if not round_.aborted:
            self._on_failure(round_.log, error)
        self._give_up(round_)

    def _on_failure(self, log: PartitionLog, error: BaseException) -> None:
        if isinstance(error, CleanerDied):
            self._on_death(log, error)
        elif isinstance(error, OSError):
            self._on_os_error(log, error)
        elif not isinstance(error, CleaningAborted):
            self._mark_uncleanable(log, error)

    def _on_death(self, log: PartitionLog, error: CleanerDied) -> None:
        """The process was killed, or the log makes it die: then other logs shall have their turn."""
        self._deaths[log.path] = self._deaths.get(log.path, 0) + 1
        logger.warning("Cleaning %s: %s", log.path, error)
        if self._deaths[log.path] >= DEATHS_MAX:
            self._mark_uncleanable(log, error)

    def _on_os_error(self, log: PartitionLog, error: OSError) -> None:
        if os_file.is_passing(error):
            logger.warning("Cleaning %s has to wait: %s", log.path, error)
        elif isinstance(error, FileNotFoundError):
            self._mark_uncleanable(log, error)
        else:
            log.directory.fail(error, f"cleaning {log.path}")

    def _mark_uncleanable(self, log: PartitionLog, error: BaseException) -> None:
        logger.warning("%s-%d is uncleanable until the next start (%s): %s", log.topic, log.partition, log.path, error)
        self._uncleanable.add(log.path)

    def is_cleaning(self, path: Path) -> bool:
        """Whether a round over the log is under way: then its segments have to stay."""
        return path in self._rounds

    def abort(self, path: Path) -> None:
        """Give up the round over the log, if there is one: its segments are about to change, or go."""
        round_ = self._rounds.get(path)
        if round_ is None or round_.aborted:
            return
        round_.aborted = True
        round_.worker.runner.abort()
        if round_.pause is not None:
            round_.pause.cancel()
            self._submit_step(round_)

    def truncated(self, directory: LogDir, key: TopicPartition, offset: int) -> None:
        """The log was cut at ``offset``: what comes there now is dirty.  Kafka's maybeTruncateCheckpoint."""
        checkpoint = self._checkpoints.of(directory).get(key)
        if checkpoint is not None and checkpoint > offset:
            self._checkpoints.set(directory, key, offset)

    def moved(self, source: LogDir, target: LogDir, key: TopicPartition) -> None:
        """The log has moved to another log directory: how far it is clean holds there."""
        self._checkpoints.set(target, key, self._checkpoints.of(source).get(key))
        self.forget(source, key)

    def forget(self, directory: LogDir, key: TopicPartition) -> None:
        """The partition is gone; another one may come under its name."""
        self._checkpoints.set(directory, key, None)
        path = directory.path / partition_dir_name(*key)
        self._uncleanable.discard(path)
        self._deaths.pop(path, None)

    def close(self) -> None:
        """Abort everything and end the threads and processes; blocks."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for path in list(self._rounds):
            self.abort(path)
        for worker in self._workers:
            worker.executor.submit(worker.runner.rest, lambda _result, _error: None)
            worker.executor.close()


def _outcome_of(work: Callable[[], None]) -> BaseException | None:
    try:
        work()
    except OSError as error:
        return error
    return None

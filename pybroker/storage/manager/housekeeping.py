"""What is done to all logs of a broker from time to time: retention, flushes, checkpoints, old producers, maps.

Owns when each of these comes, and that ten thousand partitions are looked at a few per turn of the loop.  Owns no log
and no rule: what expires, and what is flushed, a log says itself.

Invariants:
- A task that fails for one partition goes on with the others, and comes again.
- What is acknowledged does not go on to files that were moved away for longer than one interval.

Kafka: the tasks that LogManager schedules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pybroker import storage_limits
from pybroker.storage.log.partition_log import open_logs
from pybroker.storage.manager.log_dir_state import online
from pybroker.storage.manager.map_release import MapRelease

if TYPE_CHECKING:
    from pybroker.env import Cancellable
    from pybroker.storage.log.log_environment import LogEnvironment
    from pybroker.storage.log.partition_log import PartitionLog
    from pybroker.storage.manager.log_dir_state import LogDirState
    from pybroker.storage.manager.partition_places import PartitionPlaces
    from pybroker.storage.results import TopicPartition

# The broker looks this often whether mapped pages are more than ``MAPPED_BYTES_MAX``.
MAPPED_CHECK_INTERVAL_MS = 100

# How often logs with ``flush.ms`` are looked at.  Kafka's ``log.flush.scheduler.interval.ms`` counts as the default of
# ``flush.ms`` only: its own default would mean never.
FLUSH_CHECK_INTERVAL_MS = 1_000

logger = logging.getLogger("pybroker.storage")


class Housekeeping:
    """The periodic tasks of one broker's logs.  Everything runs on the broker's loop."""

    def __init__(
        self,
        environment: LogEnvironment,
        logs: Mapping[TopicPartition, PartitionLog],
        places: PartitionPlaces,
        states: Sequence[LogDirState],
        open_unused: Callable[[TopicPartition], PartitionLog | None],
        look_for_metadata: Callable[[], None],
    ) -> None:
        """``logs`` are those in use; ``open_unused`` opens one of a partition that is not in use, if it is of use here.

        ``look_for_metadata`` sees to it that the metadata's directory is where it was.
        """
        self._environment = environment
        self._timers_port = environment.env.timers
        self._logs = logs
        self._places = places
        self._states = states
        self._open_unused = open_unused
        self._look_for_metadata = look_for_metadata
        self._maps = MapRelease(environment.env, environment.segments)
        self._timers: dict[str, Cancellable] = {}
        self._stopped = False

    def start(self) -> None:
        """Begin with all tasks, each after its interval."""
        settings = self._environment.settings
        self._every("retention", settings.log_retention_check_interval_ms, self.check_retention)
        self._every("flush", FLUSH_CHECK_INTERVAL_MS, self._flush_overdue)
        if self._maps.start():
            self._every("maps", MAPPED_CHECK_INTERVAL_MS, self._maps.look)
        self._every(
            "recovery points", settings.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points
        )
        interval_ms = settings.log_flush_start_offset_checkpoint_interval_ms
        self._every("log starts", interval_ms, self.checkpoint_log_starts)
        interval_ms = settings.replica_high_watermark_checkpoint_interval_ms
        self._every("high watermarks", interval_ms, self.checkpoint_high_watermarks)
        self._every("producers", settings.producer_id_expiration_check_interval_ms, self._expire_producers)

    def stop(self) -> None:
        """Do nothing more."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._maps.stop()

    def _every(self, name: str, interval_ms: int, task: Callable[[], None]) -> None:
        """Do the task each ``interval_ms``; once, where that is not positive (as Kafka's scheduler does)."""

        def run() -> None:
            try:
                task()
            except Exception:
                logger.exception("The housekeeping of %s failed, it goes on in %d ms", name, interval_ms)
            if interval_ms > 0 and not self._stopped:
                self._timers[name] = self._timers_port.call_later(interval_ms, run)

        self._timers[name] = self._timers_port.call_later(interval_ms, run)

    def _in_slices(self, keys: list[TopicPartition], work: Callable[[TopicPartition], None]) -> None:
        """Do the work for all partitions, a few per turn of the loop; none once the logs are closed."""
        if self._stopped:
            return  # several tasks may be at it, and ``stop`` cancels the one that was last
        for key in keys[: storage_limits.PARTITIONS_PER_TURN]:
            try:
                work(key)
            except Exception:
                logger.exception("The housekeeping of %s-%d failed", *key)
        rest = keys[storage_limits.PARTITIONS_PER_TURN :]
        if rest:
            self._timers["slice"] = self._timers_port.call_soon(self._in_slices, rest, work)

    # The tasks ------------------------------------------------------------------------------------------------------

    def check_retention(self) -> None:
        """Drop what has expired, also of partitions that are not in use."""
        self._in_slices(list(self._places), self._check_retention_of)

    def _check_retention_of(self, key: TopicPartition) -> None:
        """An unused one is looked at when there is to do something next, and closed again."""
        log = self._logs.get(key)
        if log is not None and log.opened is not None and not log.refuses:
            log.opened.apply_retention()
            return
        due = log is None or self._environment.now_ms() >= log.retention_due_ms
        log = self._open_unused(key) if due else None
        if log is not None:
            opened = log.open()
            opened.apply_retention()
            if opened.on_disk:
                self._places[key].note_offsets(key, opened)
            log.shut()

    def _expire_producers(self) -> None:
        now_ms = self._environment.now_ms()
        for _, log in open_logs(self._logs):
            log.producers.remove_expired(now_ms)

    def _flush_overdue(self) -> None:
        now_ms = self._environment.now_ms()
        for _, log in open_logs(self._logs):
            if log.recovery_point < log.log_end_offset and log.flush_is_overdue(now_ms):
                log.flushes.flush()

    def checkpoint_recovery_points(self) -> None:
        """Write where recovery would begin."""
        for key, log in open_logs(self._logs):
            if log.on_disk:
                self._places[key].note_recovery_point(key, log)
        for state in online(self._states):
            state.recovery_points.write()

    def checkpoint_log_starts(self) -> None:
        """Write where logs start: what DeleteRecords has taken away stays away after a crash."""
        for key, log in open_logs(self._logs):
            if log.on_disk:
                self._places[key].note_log_start(key, log)
        for state in online(self._states):
            state.log_start_offsets.write()

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks, and look whether all that was appended to lies where it was."""
        appended_to = []
        for key, log in open_logs(self._logs):
            if log.on_disk:
                offsets = self._places[key].high_watermarks.offsets
                if offsets.get(key) != log.high_watermark:
                    offsets[key] = log.high_watermark
                    appended_to.append(key)
        self._in_slices(appended_to, self._look_for)
        # Kafka writes this checkpoint every time, and so notices when a directory is gone; one look does as well.
        for state in online(self._states):
            state.directory.look_for_it()
        self._look_for_metadata()
        for state in online(self._states):
            state.write_high_watermarks()

    def _look_for(self, key: TopicPartition) -> None:
        """What is acknowledged must not go to files that were moved away."""
        log = self._logs.get(key)
        if log is not None and not self._stopped:
            log.look_for_it()

"""The partitions of a log directory that a crash left and that were not looked at since.

Owns which these are, and when each is recovered. One with much data is recovered before the start is over, because a
recovery holds the loop. The others, of which a broker may have tens of thousands, are recovered at their first touch,
and meanwhile in the background, some at a time. Owns no recovery itself (``recovery.py``).

Invariants: no log of such a partition is opened, and none is marked as stopped cleanly, before it is recovered.  Where
acknowledgements wait for syncs all are recovered, and synced, before the start is over.

Such a partition's files are read through its log alone (``LogDir.before_opening``), except DescribeLogDirs,
which may tell of a torn tail for the first seconds.  An error of a recovery comes when the broker serves already: then
its log directory goes offline.

Counterpart in Kafka: the recovery in ``LogManager.loadLogs``, which comes before anything is served.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker import storage_limits
from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import LOG_SUFFIX
from pybroker.storage.results import Hole, StorageError, TopicPartition

if TYPE_CHECKING:
    from pybroker.env import Cancellable
    from pybroker.storage.log.log_environment import LogEnvironment
    from pybroker.storage.manager.log_dir_state import LogDirState

# The background's recovery holds the loop for so long, or so many partitions, at a time, and lets it go for so long.
RECOVERY_SLICE_MS = 2
RECOVERY_SLICE_PARTITIONS = 16
RECOVERY_PAUSE_MS = 5

logger = logging.getLogger("pybroker.storage")


class PendingRecovery:
    """What is left to be recovered in one log directory."""

    __slots__ = ("_clean_offsets", "_environment", "_state", "_timer", "_waiting")

    def __init__(self, environment: LogEnvironment, state: LogDirState) -> None:
        self._environment = environment
        self._state = state
        self._waiting: dict[TopicPartition, None] = {}
        self._timer: Cancellable | None = None
        self._clean_offsets: Mapping[TopicPartition, int] | None = None  # of the cleaner's checkpoint, once it is read

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, keys: Iterable[TopicPartition]) -> None:
        """Recover what cannot wait, and note the others.  Raises OSError and StorageError."""
        settings = self._environment.settings
        all_at_once = settings.syncs_first
        for key in keys:
            if all_at_once or _data_bytes(self._state.path_of(key)) > storage_limits.RECOVERED_AT_FIRST_TOUCH_BYTES_MAX:
                self._recover(key)
            else:
                self._waiting[key] = None
        self._go_on_later()

    def recover_first(self, key: TopicPartition) -> None:
        """A log is about to be opened.  Raises OSError and StorageError; then the next touch tries again."""
        if key in self._waiting:
            self._recover(key)
            del self._waiting[key]

    def forget(self, key: TopicPartition) -> None:
        """The partition is gone."""
        self._waiting.pop(key, None)

    def finish(self) -> None:
        """Recover what is left, for the clean stop; blocks.  Raises OSError and StorageError."""
        while self._waiting:
            self.recover_first(next(iter(self._waiting)))

    def cancel(self) -> None:
        """Do nothing more in the background."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go_on_later(self) -> None:
        self.cancel()
        if self._waiting:
            self._timer = self._environment.env.timers.call_later(RECOVERY_PAUSE_MS, self._recover_some)

    def _recover_some(self) -> None:
        """Recover some partitions that were not asked for yet."""
        clock, directory = self._environment.env.clock, self._state.directory
        until_ms = clock.monotonic_ms() + RECOVERY_SLICE_MS
        self._timer = None
        for _ in range(RECOVERY_SLICE_PARTITIONS):
            if directory.offline or not self._waiting or clock.monotonic_ms() >= until_ms:
                break
            key = next(iter(self._waiting))
            try:
                self.recover_first(key)
            except (OSError, StorageError) as error:
                if not os_file.is_passing(error):
                    directory.fail(error, f"the recovery of {self._state.path_of(key)}")
                    return
                directory.refused_for_space(error)
                self._waiting[key] = self._waiting.pop(key)  # behind the others
                break
        if not directory.offline:
            self._go_on_later()

    def _recover(self, key: TopicPartition) -> None:
        from pybroker.storage.log.recovery import recover_partition, sync_partition, sync_transaction_indexes

        state, settings = self._state, self._environment.settings
        path = state.path_of(key)
        point = state.restart_point(key)
        recovered = recover_partition(
            path,
            point.recovery_point,
            point.log_start_offset,
            settings.producer_id_expiration_ms,
            self._clean_offset(key),
        )
        if recovered.hole is not None:
            state.holes[key] = Hole(recovered.hole, state.knows_what_was_lost)
        if settings.syncs_first:
            # A killed process left what it had not synced: it is shown from now on, so it has to stay.
            sync_partition(path, recovered.from_offset)
            whole_end = recovered.end_offset if recovered.hole is None else recovered.hole
            state.recovery_points.offsets[key] = whole_end  # a hole is to be found again
        elif settings.sync:
            sync_transaction_indexes(path, recovered.from_offset, point.recovery_point)
            if recovered.end_offset > point.recovery_point:
                state.unsynced_since[key] = min(recovered.from_offset, point.recovery_point)

    def _clean_offset(self, key: TopicPartition) -> int:
        """Up to where the cleaner's checkpoint calls a log clean."""
        if self._clean_offsets is None:
            from pybroker.storage.cleaner.cleaner_checkpoints import CleanerCheckpoints

            self._clean_offsets = CleanerCheckpoints().of(self._state.directory)
        return self._clean_offsets.get(key, 0)


def _data_bytes(directory: Path) -> int:
    return sum(stat.st_size for _, stat in os_file.stats_in(directory, lambda name: name.endswith(LOG_SUFFIX)))

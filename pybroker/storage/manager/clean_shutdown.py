"""The clean stop of one log directory: everything written and synced, then the mark that says so.

Owns what is written and synced, in which order, and how little of it is done one by one.  Does not own when that is
(``log_manager``), nor the logs.

Invariants:
- The mark is written last, because after it no start looks at the directory's logs again.
- No mark is written where a recovery found a hole that is neither cut nor kept yet, so that the next start finds it,
  too.

Kafka: LogManager.shutdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker.storage.log.partition_log import open_logs

if TYPE_CHECKING:
    from pybroker.storage.log.partition_log import PartitionLog
    from pybroker.storage.manager.log_dir_state import LogDirState
    from pybroker.storage.results import TopicPartition

# With more unsynced logs than this in a log dir, a clean stop syncs their file system as a whole: that also waits for
# what others have written to it, but syncing five files each takes 2 ms a log and more.
LOGS_SYNCED_ONE_BY_ONE_MAX = 100


def close_directory(state: LogDirState, all_logs: Mapping[TopicPartition, PartitionLog], broker_epoch: int) -> None:
    """Close the logs in a directory cleanly.  Blocks; raises OSError and StorageError."""
    directory = state.directory
    state.finish_recovery()
    logs = [(key, log) for key, log in open_logs(all_logs) if log.directory is directory and log.on_disk]
    open_keys = {key for key, _ in logs}
    untouched = {key: offset for key, offset in state.unsynced_since.items() if key not in open_keys}
    unsynced = sum(log.recovery_point < log.log_end_offset for _, log in logs) + len(untouched)
    # One sync of the whole file system costs as much as that of some dozen logs, each of which syncs five files.
    at_once = directory.sync and unsynced > LOGS_SYNCED_ONE_BY_ONE_MAX
    at_once = at_once and os_file.can_sync_file_system(directory.path)
    for key, log in logs:
        log.close_cleanly(directory.sync and not at_once)
        state.note_offsets(key, log)
        state.high_watermarks.offsets[key] = log.high_watermark
    if at_once:
        directory.sync_file_system()
    else:
        _sync_untouched(state, untouched)
    state.write_all_now()
    if not state.holes:
        directory.write_clean_shutdown_marker(broker_epoch)


def _sync_untouched(state: LogDirState, untouched: Mapping[TopicPartition, int]) -> None:
    """Sync what a killed process had only written: after the mark of a clean stop no start looks at it again."""
    if untouched:
        from pybroker.storage.log.recovery import sync_partition

        for key, offset in untouched.items():
            sync_partition(state.path_of(key), offset)

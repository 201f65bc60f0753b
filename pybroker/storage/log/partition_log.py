"""One partition's log as its broker knows it, whether it is open or not.

Owns the life of a log, which is
- shut, until the first touch opens it, and again when it was not touched for a while,
- open,
- refusing, because the broker stops, the partition is deleted, or there was no descriptor or memory to open it,
- or offline, with its log directory.

Owns what is known of a log that is not open. Does not own an open log's state.

Invariants: ten thousand idle partitions cost ten thousand small objects. A caller that needs the log asks ``open()``,
which always answers: with an empty log that refuses everything, where there is none to be had. A log is shut only while
nothing of it is in use, so that an open ``Log`` that is held stays the partition's log meanwhile.

``retention_due_ms`` says when retention is due next in a shut log: whatever can change that without opening the log
resets it, as ``update_config`` does.

Kafka: none; there every log is open for as long as the broker runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker.storage.log.log import Log
from pybroker.storage.log.log_environment import LogSetup, RestartPoint
from pybroker.storage.log.log_loader import load_log
from pybroker.storage.log.log_state import Refusal
from pybroker.storage.log.retention import retention_due_ms
from pybroker.storage.results import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from pybroker.config.log_config import LogConfig
    from pybroker.storage.dirs.log_dir import LogDir
    from pybroker.storage.files.segment import Segment
    from pybroker.storage.log.log_environment import LogEnvironment
    from pybroker.storage.results import TopicPartition


class PartitionLog(LogSetup):
    """A log, shut or open.  Everything runs on the broker's loop."""

    __slots__ = ("_first_own_epoch", "_refusal", "_restart_point", "opened", "retention_due_ms")

    def __init__(
        self,
        environment: LogEnvironment,
        directory: LogDir,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        restart_point: RestartPoint,
    ) -> None:
        super().__init__(environment, directory, topic, partition, topic_id, config)
        self.opened: Log | None = None
        self.retention_due_ms = 0  # of a shut log: before this time retention has nothing to do
        self._restart_point = restart_point
        self._refusal: Refusal | None = None
        self._first_own_epoch = 0  # see ``begin_own_history``

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic}-{self.partition})"

    def open(self) -> Log:
        """The open log.  A shut one reads its directory: names, sizes, the ends of the indexes.

        Recovery has been done at the start, if it was due.  What cannot be read leaves an empty log that refuses
        everything: until restart, because its log directory is taken offline; or, where only descriptors or memory are
        lacking, until ``forget_failure``.
        """
        if self.opened is not None:
            return self.opened
        log = self.opened = Log(self)
        if self._refusal is not None:
            log.refuse(self._refusal)
            return log
        try:
            load_log(log, self._restart_point)
        except (OSError, StorageError) as error:
            log.close_files()
            log.become_empty(0)
            self._could_not_open(error)
        except BaseException:  # nobody foresaw it: a log that looks empty would be appended to, over what is there
            log.close_files()
            self.opened = None
            raise
        log.forget_former_producers(self._first_own_epoch)
        return log

    def begin_own_history(self, first_epoch: int) -> None:
        """Below that leader epoch another cluster has written, whose producers are none of ours; 0 where none has.

        It holds for each later opening, too, since the files have what producers left below the epoch.
        """
        self._first_own_epoch = first_epoch
        if self.opened is not None:
            self.opened.forget_former_producers(first_epoch)

    def _could_not_open(self, error: OSError | StorageError) -> None:
        if os_file.is_passing(error):
            self.directory.refused_for_space(error)
            self._refuse(self._refusal or Refusal.UNOPENED)
        else:
            self._refuse(Refusal.OFFLINE)
            self.directory.fail(error, f"opening the log {self.path}")

    def forget_failure(self) -> None:
        """If it could not be opened for want of space, the next touch tries again."""
        if self._refusal is Refusal.UNOPENED:
            self._refusal = None
            self.opened = None

    @property
    def is_moving(self) -> bool:
        """Whether its files are being copied to another log directory."""
        return self.opened is not None and self.opened.mirror is not None

    @property
    def refuses(self) -> bool:
        """Whether nothing is taken or given; ``Refusal`` has the reasons."""
        return self._refusal is not None

    def _refuse(self, refusal: Refusal) -> None:
        self._refusal = refusal
        if self.opened is not None:
            self.opened.refuse(refusal)

    def go_offline(self) -> None:
        """The log directory failed: refuse everything until restart."""
        self._refuse(Refusal.OFFLINE)

    def refuse_appends(self) -> None:
        """The broker stops: what is in flight completes, nothing new is taken."""
        self._refuse(Refusal.STOPPING)

    def retire(self) -> None:
        """The partition is deleted: what waits fails, reads that have begun go on."""
        self._refusal = Refusal.DELETED
        if self.environment.cleaner is not None:
            self.environment.cleaner.abort(self.path)
        if self.opened is not None:
            self.opened.retire()

    def update_config(self, config: LogConfig) -> None:
        """Take changed topic settings into use at once."""
        self.config = config
        self.retention_due_ms = 0
        if self.opened is not None:
            self.opened.update_config(config)

    def look_for_it(self) -> None:
        """Take the log directory offline if the partition's files are not at their path any more."""
        if self.opened is None:
            return
        try:
            self.opened.check_place()
        except OSError as error:
            if not os_file.is_passing(error):
                self.directory.fail(error, f"looking for {self.path}")

    def move_to(self, directory: LogDir, path: Path, fds: Mapping[Segment, int]) -> None:
        """See ``LogState.move_to``; one without files has none there either."""
        self.directory, self.path = directory, path
        if self.opened is not None:
            self.opened.move_to(directory, path, fds)

    def shut(self) -> None:
        """Close an idle log, and forget its state; the next touch opens it again."""
        log = self.opened
        if log is None or self._refusal is not None or log.is_in_use or self._is_being_cleaned():
            return
        self.retention_due_ms = log.guarded(lambda: retention_due_ms(log), "retention") or 0
        self._restart_point = RestartPoint(log.recovery_point, log.log_start_offset, log.high_watermark, log.on_disk)
        log.close_files()
        self.opened = None

    def _is_being_cleaned(self) -> bool:
        cleaner = self.environment.cleaner
        return cleaner is not None and cleaner.is_cleaning(self.path)

    def close_files(self) -> None:
        """The broker has stopped: let go of all descriptors and maps."""
        if self.opened is not None:
            self.opened.close_files()


def open_logs(logs: Mapping[TopicPartition, PartitionLog]) -> list[tuple[TopicPartition, Log]]:
    """Those that are open now: a list, as what is done with one may open or close others."""
    return [(key, log.opened) for key, log in logs.items() if log.opened is not None]

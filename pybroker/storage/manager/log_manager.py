"""All logs of a broker (Kafka: LogManager).

Owns the start (locks, identity, checkpoints, recovery after a crash), which logs are in use, deletion, the cleaner's
beginning, and the clean stop.  Owns no batch, not which partition lies where (``partition_places``), and not what is
done from time to time (``housekeeping``).

Invariants:
- After a clean stop a start reads only names and checkpoints.
- A partition's files come into being at its first append, in the directory that the metadata names, or not at all.
- A failed directory stays offline until restart; the last one, or that of the metadata, calls ``on_all_dirs_failed``.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker import limits, storage_limits
from pybroker.storage.dirs.log_dir import LogDir
from pybroker.storage.files import checkpoints, os_file, os_process
from pybroker.storage.files.checkpoints import MetaProperties
from pybroker.storage.files.metadata_mark import MARK_FILE, NOTHING_SEEN, read_mark, write_mark
from pybroker.storage.log.log_environment import LogEnvironment, StorageSettings
from pybroker.storage.log.partition_log import PartitionLog
from pybroker.storage.manager.clean_shutdown import close_directory
from pybroker.storage.manager.housekeeping import Housekeeping
from pybroker.storage.manager.log_dir_state import LogDirState, cordon, online
from pybroker.storage.manager.move_names import InterruptedMoves
from pybroker.storage.manager.partition_places import Assigned, PartitionPlaces
from pybroker.storage.manager.replica_moves import ReplicaMoves
from pybroker.storage.results import Hole, StorageError, TopicPartition

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.log_config import LogConfig
    from pybroker.env import Cancellable, Env
    from pybroker.storage.cleaner.log_cleaner import LogCleaner
    from pybroker.storage.manager.log_dir_description import LogDirDescription, LogDirsDescription
    from pybroker.storage.manager.pending_recovery import PendingRecovery

logger = logging.getLogger("pybroker.storage")
DELETION_SLICE_MS = 3  # deleted partitions' directories are renamed for so long at a time: a filled one takes 50 µs


class LogManager:
    """The logs of one broker.  Everything runs on the broker's loop."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        on_all_dirs_failed: Callable[[], None],
        cleaner_process: bool = False,
    ) -> None:
        self._env = env
        self._config = config
        self._cleaner_process = cleaner_process  # logs are cleaned by a process of its own, not by a thread of this one
        settings = StorageSettings.of(config)
        openable = os_process.raise_open_files_limit() // limits.DESCRIPTOR_PARTS // 2
        open_max = min(storage_limits.SEGMENTS_OPEN_MAX, openable)
        self._environment = LogEnvironment(env, settings, open_max)
        self._on_all_dirs_failed = on_all_dirs_failed
        self._states = [LogDirState(LogDir(Path(path).absolute(), env, settings.sync)) for path in config.log_dirs]
        metadata_dir = config["metadata.log.dir"]
        self.metadata_dir = Path(metadata_dir).absolute() if metadata_dir else self._states[0].directory.path
        self._metadata_identity: tuple[int, int] | None = None  # from ``settle`` on, of no log dir
        self._places = PartitionPlaces(env, self._states, lambda *partition: self._cleaner().forget(*partition))
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.moves = ReplicaMoves(env, config, self._states, self._places, self._stop_cleaning, self._moved)
        self._interrupted_moves = InterruptedMoves()  # until ``settle``
        # Partitions of deleted topics, with the topics' ids, whose directories are to be renamed.
        self._to_delete: OrderedDict[tuple[TopicPartition, bytes], None] = OrderedDict()
        self._timers: dict[str, Cancellable] = {}
        self._meta: dict[str, str] | None = None
        self._log_cleaner: LogCleaner | None = None  # made when it first looks for work
        self._closed = False
        # Hears of a directory that fails while others go on, by its id.
        self.on_directory_failed: Callable[[bytes], None] | None = None
        # Hears which directories have no space, by their ids, whenever one has it no more, or again.
        self.on_free_space_changed: Callable[[frozenset[bytes]], None] | None = None
        # Hears of a replica, by topic id and partition, that lies in another directory than the metadata says.
        self.on_replica_moved: Callable[[tuple[bytes, int], bytes], None] | None = None
        # Opens the log of a partition that lies on the disk and that nobody uses, if it is of use here: the layer above
        # knows its topic's id and settings.
        self.open_unused: Callable[[str, int], PartitionLog | None] | None = None
        self._housekeeping = Housekeeping(
            self._environment,
            self._logs,
            self._places,
            self._states,
            self._open_unused,
            self._look_for_metadata,
        )

    # Start ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Lock and read the log directories, and recover what a crash left.

        A directory that cannot be used is offline, and the others go on.  Raises StorageError when a directory is in
        use by another broker, when two are copies of each other, or when the metadata's or all cannot be used.
        """
        reasons = []
        for state in self._states:
            try:
                state.directory.lock()
            except OSError as error:
                reasons.append(state.directory.fail(error, "the start"))
        self._interrupted_moves.settle(self._states)
        self._places.away = self._interrupted_moves.away
        for state in online(self._states):
            try:
                self._load_directory(state)
            except (OSError, StorageError) as error:
                reasons.append(state.directory.fail(error, "the start"))
        for state in self._states:
            state.directory.on_offline = self._directory_failed
            state.directory.on_free_space_changed = self._free_space_changed
            if state.directory.offline and (state.directory.path == self.metadata_dir or not online(self._states)):
                raise StorageError("; ".join(reasons))
        ids = self.directory_ids()
        if len(set(ids)) < len(ids):
            # Which of them the metadata means cannot be known.
            raise StorageError("Two log directories have the same directory.id: one is a copy of the other")
        self._housekeeping.start()
        if self._config.get_bool("log.cleaner.enable"):
            self._start_cleaner_later()

    def _load_directory(self, state: LogDirState) -> None:
        directory = state.directory
        meta = checkpoints.read_meta_properties(directory.path)
        directory.belongs_to_broker = meta is not None
        if meta is not None:
            self._check_meta(directory.path, meta)
            if "directory.id" in meta:
                directory.directory_id = checkpoints.directory_id_of(directory.path, meta)
        if not any(directory.directory_id):
            directory.directory_id = self._env.new_uuid()
        directory.take_clean_shutdown_marker(self._environment.settings.syncs_first)
        state.load()
        if state.recovery_points.was_damaged:
            directory.forget_what_was_synced_first()
        keys = self._places.take_in(state)
        state.keep_only(keys)
        if not directory.had_clean_shutdown:
            if keys:
                logger.warning("Recovering %d partitions in %s after an unclean stop", len(keys), directory.path)
            state.recover(self._pending_recovery(state), keys)
        directory.begin(bool(keys), self._environment.settings.syncs_first)
        state.ready = True

    def _pending_recovery(self, state: LogDirState) -> PendingRecovery:
        from pybroker.storage.manager.pending_recovery import PendingRecovery  # after a crash only

        return PendingRecovery(self._environment, state)

    def _check_meta(self, path: Path, meta: dict[str, str]) -> None:
        if self._meta is None:
            self._meta = meta
        for name in ("cluster.id", "node.id"):
            if meta.get(name, meta.get("broker.id")) != self._meta.get(name, self._meta.get("broker.id")):
                raise StorageError(f"{path} belongs to another cluster or node: {name} is {meta.get(name)}")

    @property
    def stored_cluster_id(self) -> str | None:
        """The cluster that the directories belong to, ``None`` if they are new."""
        return None if self._meta is None else self._meta.get("cluster.id")

    @property
    def stored_node_id(self) -> int | None:
        """The node that the directories belong to, ``None`` if they are new."""
        text = None if self._meta is None else self._meta.get("node.id", self._meta.get("broker.id"))
        return None if text is None else int(text)

    def check_cluster(self, cluster_id: str, node_id: int) -> None:
        """StorageError if the directories belong to another node or cluster."""
        expected = (self.stored_cluster_id or cluster_id, self.stored_node_id if self._meta else node_id)
        if expected != (cluster_id, node_id):
            raise StorageError(
                f"The log directories belong to node {expected[1]} of cluster {expected[0]}, "
                f"not to node {node_id} of cluster {cluster_id}"
            )

    def set_cluster(self, cluster_id: str, node_id: int) -> None:
        """Write ``meta.properties`` where it is missing, once the id is this broker's; StorageError and OSError."""
        self.check_cluster(cluster_id, node_id)
        for state in online(self._states):
            directory = state.directory
            meta = checkpoints.read_meta_properties(directory.path)
            if meta is None or meta.get("version") == "0" or "directory.id" not in meta:
                checkpoints.write_meta_properties(
                    directory.path, MetaProperties(cluster_id, node_id, directory.directory_id)
                )
            directory.belongs_to_broker = True

    def settle(self, assigned: Assigned) -> dict[tuple[bytes, int], bytes]:
        """Sort out what lies on the disks by what the cluster knows.  Called once, before any log is opened.

        What belongs to no replica of this node is renamed, as Kafka renames strays, so that an operator can look at it.
        Returns the directory ids, by topic id and partition, of replicas that lie elsewhere than ``assigned`` says.
        """
        if all(state.directory.path != self.metadata_dir for state in self._states):
            self._metadata_identity = os_file.identity(self.metadata_dir)
        elsewhere = self._places.settle(assigned)
        self.moves.take_over(self._interrupted_moves, self._open_unused)
        self._interrupted_moves = InterruptedMoves()
        return elsewhere

    def metadata_seen(self) -> int:
        """The newest revision of the metadata that any log dir has seen, ``NOTHING_SEEN`` if none says."""
        seen = NOTHING_SEEN
        for state in online(self._states):
            try:
                seen = max(seen, read_mark(state.directory.path))
            except OSError as error:
                state.directory.fail(error, f"reading {MARK_FILE}")
        return seen

    def note_metadata(self, revision: int) -> None:
        """The metadata of a revision is known here: a store that is older at a start has lost something."""
        for state in online(self._states):
            directory = state.directory
            try:
                directory.check_place()
                write_mark(directory.path, revision)
            except OSError as error:
                if not os_file.is_passing(error):
                    directory.fail(error, f"writing {MARK_FILE}")

    @property
    def partition_count(self) -> int:
        """How many partitions have a place here."""
        return len(self._places)

    def directory_ids(self) -> list[bytes]:
        """The ids of the directories that work (KIP-858)."""
        return [state.directory.directory_id for state in online(self._states)]

    def full_directory_ids(self) -> frozenset[bytes]:
        """The ids of the directories that work and have no space."""
        return frozenset(s.directory.directory_id for s in online(self._states) if not s.directory.has_free_space)

    def check_free_space(self) -> None:
        """Find the directories that are full at the start; ``on_free_space_changed`` hears of them soon after."""
        for state in online(self._states):
            state.directory.check_free_space_at_start()

    def cordon(self, paths: Collection[str]) -> list[bytes]:
        """The directories at these absolute paths, and no others, take no new replicas; the ids of those that work."""
        return cordon(self._states, paths)

    def begin_anew(self, topic: str, topic_id: bytes, partition: int) -> bool:
        """Give a replica whose log dir is not here an empty place in another; False while any log dir is offline."""
        is_whole = not any(state.directory.offline for state in self._states)
        return is_whole and self._places.of((topic, partition), topic_id, None) is not None

    def clean_broker_epoch(self) -> int:
        """The broker epoch of the last clean stop, -1 if any directory was not stopped cleanly (KIP-966)."""
        return min(state.directory.clean_broker_epoch for state in self._states)

    # Logs -------------------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log if ``open`` has given it out."""
        return self._logs.get((topic, partition))

    def open(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        config: LogConfig,
        directory_id: bytes | None = None,
        *,
        adopt: bool = True,
    ) -> PartitionLog | None:
        """The partition's log; a new one gets a place (``PartitionPlaces.of``) but no files yet.

        ``None`` if its directory is not online, or if it is not known now whose the partition is that lies there.
        """
        key = (topic, partition)
        if (key, topic_id) in self._to_delete:
            # It was taken away and is back before its turn to go came, which would take the new one instead.
            del self._to_delete[key, topic_id]
            self._delete_marked(key, topic_id)
        log = self._logs.get(key)
        if log is not None and log.topic_id == topic_id:
            log.forget_failure()
            return None if log.directory.offline else log
        if log is not None:
            self._delete_log(key, log)
        was_here = key in self._places
        state = self._places.of(key, topic_id, directory_id, adopt)
        if state is None:
            return None
        if not was_here and directory_id not in (None, state.directory.directory_id):
            self._tell_moved((topic_id, partition), state.directory)
        restart_point = state.restart_point(key)
        log = PartitionLog(self._environment, state.directory, topic, partition, topic_id, config, restart_point)
        self._logs[key] = log
        self.moves.on_opened(log)
        return log

    def _open_unused(self, key: TopicPartition) -> PartitionLog | None:
        return None if self.open_unused is None else self.open_unused(*key)

    def take_hole(self, topic: str, partition: int) -> Hole | None:
        """Where a log that was opened after a crash lacks something in its middle; only the first call says it."""
        key = (topic, partition)
        return self._places[key].holes.pop(key, None) if key in self._places else None

    def delete(self, topic: str, topic_id: bytes, partition_count: int) -> None:
        """Delete all partitions of a topic: directories are renamed, and removed after ``file.delete.delay.ms``.

        As many now as take a slice of time; the others in later turns of the loop.
        """
        self._mark_deleted(((topic, index) for index in range(partition_count)), topic_id)

    def delete_partition(self, topic: str, topic_id: bytes, partition: int) -> None:
        """Delete one partition of a topic that is not here any more; otherwise as ``delete``."""
        self._mark_deleted(((topic, partition),), topic_id)

    def _mark_deleted(self, keys: Iterable[TopicPartition], topic_id: bytes) -> None:
        was_at_it = bool(self._to_delete)
        self._to_delete.update(((key, topic_id), None) for key in keys if key in self._places)
        if not was_at_it:
            self._delete_some()

    def _delete_some(self) -> None:
        slice_end_ms = self._env.clock.monotonic_ms() + DELETION_SLICE_MS
        while self._to_delete and self._env.clock.monotonic_ms() < slice_end_ms:
            self._delete_marked(*self._to_delete.popitem(last=False)[0])
        if self._to_delete:
            self._timers["deletion"] = self._env.timers.call_soon(self._delete_some)
        elif "deleted" not in self._timers:  # once for all the topics that go in this turn of the loop
            self._timers["deleted"] = self._env.timers.call_soon(self._checkpoint_deletions)

    def _delete_marked(self, key: TopicPartition, topic_id: bytes) -> None:
        """Unless a topic made anew under the name has put it aside already."""
        log = self._logs.get(key)
        try:
            if log is None and key in self._places:
                self.moves.drop(key)
                self._places.delete_of_topic(key, topic_id)
            elif log is not None and log.topic_id == topic_id:
                self._delete_log(key, log)
        except Exception:  # the others are to go, too
            logger.exception("Partition %s-%d could not be deleted", *key)

    def _checkpoint_deletions(self) -> None:
        del self._timers["deleted"]
        for state in online(self._states):
            state.write_without_gone()

    def _delete_log(self, key: TopicPartition, log: PartitionLog) -> None:
        del self._logs[key]
        log.retire()
        self.moves.drop(key)
        self._places.delete(key, log.config.file_delete_delay_ms)

    def logs(self) -> list[PartitionLog]:
        """The logs that are in use."""
        return list(self._logs.values())

    def describe(
        self,
        wanted: Iterable[TopicPartition] | None,
        assigned: Mapping[TopicPartition, bytes | None],
        done: Callable[[list[LogDirDescription]], None],
    ) -> LogDirsDescription:
        """Every directory with the ``wanted`` partitions in it (``None``: all); see ``LogDirsDescription.start``."""
        from pybroker.storage.manager.log_dir_description import LogDirsDescription

        description = LogDirsDescription(self._logs, self.moves, done)
        description.start(self._states, self._places, wanted, assigned)
        return description

    # Moves between directories ---------------------------------------------------------------------------------------

    def _moved(self, log: PartitionLog, source: LogDir) -> None:
        self._cleaner().moved(source, log.directory, (log.topic, log.partition))
        self.tell_place(log)

    def tell_place(self, log: PartitionLog) -> None:
        """The controller is to know of a log, which is open, that it lies where it does (KIP-858)."""
        if log.topic_id is not None:
            self._tell_moved((log.topic_id, log.partition), log.directory)

    def _tell_moved(self, partition: tuple[bytes, int], directory: LogDir) -> None:
        if self.on_replica_moved is not None:
            self.on_replica_moved(partition, directory.directory_id)

    def _stop_cleaning(self, log: PartitionLog) -> bool:
        if self._log_cleaner is None:
            return True
        self._log_cleaner.abort(log.path)
        return not self._log_cleaner.is_cleaning(log.path)

    # Cleaning and looking for what is gone ---------------------------------------------------------------------------

    def _start_cleaner_later(self) -> None:
        backoff_ms = self._config.get_int("log.cleaner.backoff.ms")
        self._timers["cleaner"] = self._env.timers.call_later(backoff_ms, self._start_cleaner)

    def _start_cleaner(self) -> None:
        try:
            cleaner = self._cleaner()
        except Exception:  # its modules are imported only now, for which there may be no descriptor
            logger.exception("The cleaner cannot be made now")
            self._start_cleaner_later()
        else:
            cleaner.start()

    def _cleaner(self) -> LogCleaner:
        """The cleaner, made at first need, which is not before the start is over."""
        if self._log_cleaner is None:
            from pybroker.storage.cleaner.log_cleaner import LogCleaner
            from pybroker.storage.cleaner.runners import ProcessRunner, ThreadRunner

            make_runner = ProcessRunner if self._cleaner_process else ThreadRunner
            self._log_cleaner = LogCleaner(self._env, self._config, self.logs, make_runner, self._places.cover)
            self._environment.cleaner = self._log_cleaner
        return self._log_cleaner

    def _look_for_metadata(self) -> None:
        """Without its directory the metadata store would go on with files that no restart finds."""
        if self._metadata_identity is None:
            return
        try:
            found = os_file.identity(self.metadata_dir)
        except OSError:
            found = None
        if found != self._metadata_identity:
            self._metadata_identity = None
            logger.error("The directory of the metadata, %s, is gone", self.metadata_dir)
            self._on_all_dirs_failed()

    # Failure and stop -------------------------------------------------------------------------------------------------

    def _directory_failed(self, directory: LogDir) -> None:
        for log in self._logs.values():
            if log.directory is directory:
                log.go_offline()
        self.moves.directory_failed(directory)
        if not online(self._states) or directory.path == self.metadata_dir:
            self._on_all_dirs_failed()
        elif self.on_directory_failed is not None:
            self.on_directory_failed(directory.directory_id)

    def _free_space_changed(self, _directory: LogDir) -> None:
        if self.on_free_space_changed is not None:
            self.on_free_space_changed(self.full_directory_ids())

    def close(self, broker_epoch: int = -1) -> None:
        """Stop cleanly: everything written and synced, checkpoints, the clean-shutdown marks, the locks let go.

        Blocks.  Appends that are in flight complete first; those that wait fail.
        """
        if self._closed:
            return
        self._closed = True
        self._housekeeping.stop()
        for timer in self._timers.values():
            timer.cancel()
        while self._to_delete:
            self._delete_marked(*self._to_delete.popitem(last=False)[0])
        self.moves.close()
        if self._log_cleaner is not None:
            self._log_cleaner.close()
        for log in self._logs.values():
            log.refuse_appends()
        for state in self._states:
            state.stop_recovering()
            state.directory.close_executors()
        for state in online(self._states):
            if not state.ready:
                continue
            try:
                close_directory(state, self._logs, broker_epoch)
            except (OSError, StorageError) as error:
                logger.error("Log directory %s could not be closed cleanly: %s", state.directory.path, error)
        for log in self._logs.values():
            log.close_files()
        for state in self._states:
            state.directory.take_back_start()
            state.directory.unlock()

    def abandon(self) -> None:
        """Let go of files and locks as the end of the process would: nothing is finished, synced or marked.

        The threads have ended.
        """
        self._closed = True
        for log in self._logs.values():
            log.close_files()
        for state in self._states:
            state.directory.unlock()

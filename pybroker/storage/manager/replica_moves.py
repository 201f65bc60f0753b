"""The moves of replicas between the log directories of a broker: which there are, how many at a time, and how fast.

Owns: beginning, replacing and cancelling moves, those that a start found unfinished, the threads that copy, and the
throttle. Also owns the log directories that are wanted for partitions which are not here yet. Does not own how a
replica is moved (``replica_move``).

Invariants:
- A partition has one move at most, and while it has one a directory with the suffix ``-future``, so that a start goes
  on with it.
- A move that is cancelled has none.
- As in Kafka none begins while a log directory is offline: its own future directory might lie there.

Settings, as in Kafka: ``num.replica.alter.log.dirs.threads`` (moves at a time; else as many as there are log
directories) and ``replica.alter.log.dirs.io.max.bytes.per.second``, which all moves share and which may change at any
time.

Kafka: ReplicaAlterLogDirsManager, and ``ReplicaManager.alterReplicaLogDirs``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker import limits, storage_limits
from pybroker.storage.files import checkpoints, os_file
from pybroker.storage.manager.log_dir_state import online
from pybroker.storage.manager.move_names import InterruptedMoves, future_dir_name, mark_deleted, moved_path
from pybroker.storage.results import (
    INVALID_REPLICA_ASSIGNMENT,
    KAFKA_STORAGE_ERROR,
    LOG_DIR_NOT_FOUND,
    NONE,
    REPLICA_NOT_AVAILABLE,
    StorageError,
)

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Cancellable, Env, Executor
    from pybroker.storage.dirs.log_dir import LogDir
    from pybroker.storage.log.partition_log import PartitionLog
    from pybroker.storage.manager.log_dir_state import LogDirState
    from pybroker.storage.manager.partition_places import PartitionPlaces
    from pybroker.storage.manager.replica_move import ReplicaMove
    from pybroker.storage.results import TopicPartition

# A segment is copied in steps of this size, and the kernel asked to begin to write each: more dirty pages, and it
# throttles all writers.  Under a throttle a step is what a tenth of a second allows.
MOVE_STEP_BYTES = 8 << 20
MOVE_STEPS_PER_SECOND_THROTTLED = 10

# What the two logs may differ by when the exchange begins: so much is copied, and synced, while appends wait.
MOVE_TAIL_BYTES_MAX = 1 << 20

THREADS = "num.replica.alter.log.dirs.threads"
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"

logger = logging.getLogger("pybroker.storage")


class ReplicaMoves:
    """One per broker, on the broker's loop."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        states: Sequence[LogDirState],
        places: PartitionPlaces,
        stop_cleaning: Callable[[PartitionLog], bool],
        moved: Callable[[PartitionLog, LogDir], None],
    ) -> None:
        """``stop_cleaning`` as of ``Mover``; ``moved(log, source)`` runs when a log lies in another directory."""
        self.stop_cleaning = stop_cleaning
        self._env = env
        self._config = config
        self._states = states
        self._places = places
        self._moved = moved
        self._found: dict[TopicPartition, tuple[LogDirState, Path]] = {}  # at the start; their logs are not open yet
        self._moves: dict[TopicPartition, ReplicaMove] = {}
        self._waiting: dict[TopicPartition, ReplicaMove] = {}  # those of them that have not begun
        self._idle: list[Executor] = []
        self._executors: dict[ReplicaMove, Executor] = {}
        self._free_at_ms = 0.0  # by the throttle
        self._timer: Cancellable | None = None
        self._closed = False

    # --- the start ---------------------------------------------------------------------------------------------------

    def take_over(self, interrupted: InterruptedMoves, open_log: Callable[[TopicPartition], object]) -> None:
        """Go on with the moves that a start found; ``open_log`` opens the log of a partition, where it can be had.

        Called after ``settle``: what is in no place by now is not moved.
        """
        for key, (state, path) in interrupted.futures.items():
            if state.directory.offline:
                continue
            if self._is_wanted(key, state, path):
                self._found[key] = (state, path)
            else:
                self._discard(state, path)
        self._look_for_logs(open_log)

    def _is_wanted(self, key: TopicPartition, state: LogDirState, path: Path) -> bool:
        """Whether it is a move of the partition that is here, and not of another topic of that name."""
        try:
            topic_id = checkpoints.read_partition_metadata(path)
            return key in self._places and topic_id == checkpoints.read_partition_metadata(
                self._places[key].path_of(key)
            )
        except (OSError, StorageError) as error:
            logger.warning("%s is of no use: %s", path, error)
            return False

    def _look_for_logs(self, open_log: Callable[[TopicPartition], object]) -> None:
        """Logs of partitions that are not in use are opened for their moves' sake; those led elsewhere open later."""

        def look() -> None:
            for key in list(self._found):
                open_log(key)
            self._look_for_logs(open_log)

        if self._found and not self._closed:
            self._timer = self._env.timers.call_later(storage_limits.MOVE_RETRY_MS, look)

    def on_opened(self, log: PartitionLog) -> None:
        """A log came into use: its move goes on, if it has one, after this turn of the loop."""
        if (log.topic, log.partition) in self._found:
            self._env.timers.call_soon(self._resume, log)

    def _resume(self, log: PartitionLog) -> None:
        key = (log.topic, log.partition)
        found = self._found.pop(key, None)
        if found is not None:
            target, path = found
            logger.info("The move of %s-%d to %s goes on", *key, target.directory.path)
            self._begin(log, self._places[key], target, path)

    # --- what is asked -----------------------------------------------------------------------------------------------

    def log_dir_error(self, path: str) -> int:
        """Why nothing can be moved to the log directory at ``path``, which is absolute; one of Kafka's codes."""
        state = self._state_at(path)
        if state is None:
            return LOG_DIR_NOT_FOUND
        if state.directory.offline:
            return KAFKA_STORAGE_ERROR
        return INVALID_REPLICA_ASSIGNMENT if state.is_cordoned else NONE

    def _state_at(self, path: str) -> LogDirState | None:
        return next((state for state in self._states if str(state.directory.path) == path), None)

    def prefer(self, key: TopicPartition, path: str) -> None:
        """The partition, which is not here, is to begin in the log directory at ``path`` once it is."""
        state = self._state_at(path)
        if state is not None and key not in self._places:
            self._places.prefer(key, state)

    def move(self, log: PartitionLog, path: str) -> int:
        """Move a log that is in use to the log directory at ``path``; an error code of Kafka's.

        Where it lies there already a move elsewhere is cancelled.
        """
        target = self._state_at(path)
        if target is None:
            return LOG_DIR_NOT_FOUND
        return KAFKA_STORAGE_ERROR if log.refuses or target.directory.offline else self._move(log, target)

    def _move(self, log: PartitionLog, target: LogDirState) -> int:
        key = (log.topic, log.partition)
        source, former, found = self._places[key], self._moves.get(key), self._found.get(key)
        if found is not None:
            if found[0] is target:
                return NONE  # it goes on in a moment
            self.drop(key)
        if former is not None:
            if former.target is target:
                return NONE
            if former.is_committed:
                return REPLICA_NOT_AVAILABLE  # its files change places just now
            self.drop(key)
        if source is target:
            return NONE
        if len(online(self._states)) < len(self._states):
            return KAFKA_STORAGE_ERROR
        path = target.directory.path / future_dir_name(key, self._env.new_uuid().hex())
        try:
            os_file.mkdir(path)
            if log.topic_id is not None:
                checkpoints.write_partition_metadata(path, log.topic_id)
        except OSError as error:
            self._discard(target, path)
            return self._refused(target.directory, error, path)
        self._begin(log, source, target, path)
        return NONE

    @staticmethod
    def _refused(directory: LogDir, error: OSError, path: Path) -> int:
        if os_file.is_passing(error):
            directory.refused_for_space(error)
        else:
            directory.fail(error, f"making {path}")
        return KAFKA_STORAGE_ERROR

    def drop(self, key: TopicPartition) -> None:
        """Give a partition's move up, if it has one; its directories go."""
        found = self._found.pop(key, None)
        if found is not None:
            self._discard(*found)
        move = self._moves.get(key)
        if move is not None:
            move.cancel()
            self._discard(move.target, move.path)
            if move.is_committed:  # the partition is deleted in that moment
                self._discard(move.source, moved_path(move.source, move.path))

    def _discard(self, state: LogDirState, path: Path) -> None:
        try:
            state.directory.remove_later([mark_deleted(path)], 0)
        except FileNotFoundError:
            pass
        except OSError as error:
            state.directory.fail(error, f"the renaming of {path}")

    def futures_in(self, state: LogDirState) -> list[ReplicaMove]:
        """The moves to a directory."""
        return [move for move in self._moves.values() if move.target is state]

    def directory_failed(self, directory: LogDir) -> None:
        """Moves from and to it end; of one that cannot be taken back the log is offline, too."""
        for move in list(self._moves.values()):
            if directory in (move.source.directory, move.target.directory):
                if move.is_committed:
                    move.log.go_offline()
                move.cancel()

    def close(self) -> None:
        """Begin nothing any more, and end the threads; blocks.  What has not come to its end the next start finds."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for move in {**dict.fromkeys(self._moves.values()), **self._executors}:
            move.close()
        for executor in [*self._executors.values(), *self._idle]:
            executor.close()

    # --- turns -------------------------------------------------------------------------------------------------------

    def _begin(self, log: PartitionLog, source: LogDirState, target: LogDirState, path: Path) -> None:
        from pybroker.storage.manager.replica_move import ReplicaMove  # few brokers move anything

        move = ReplicaMove(self._env, self, log, source, target, path)
        self._moves[move.key] = self._waiting[move.key] = move
        self._begin_some()

    def _begin_some(self) -> None:
        threads = self._config[THREADS]
        at_once = len(self._states) if threads is None else self._config.get_int(THREADS)
        while self._waiting and len(self._executors) < at_once and not self._closed:
            move = self._waiting.pop(next(iter(self._waiting)))
            executor = self._idle.pop() if self._idle else self._new_executor()
            self._executors[move] = executor
            move.begin(executor)

    def _new_executor(self) -> Executor:
        return self._env.executor(f"log-mover-{len(self._executors)}", limits.WORKER_NICENESS)

    # --- what a move asks and tells (``Mover``) ----------------------------------------------------------------------

    def step_bytes(self) -> int:
        """See ``Mover``."""
        throttled = self._config.get_int(THROTTLE) // MOVE_STEPS_PER_SECOND_THROTTLED
        return max(min(throttled, MOVE_STEP_BYTES), 1)

    def tail_bytes(self) -> int:
        """See ``Mover``."""
        return min(self._config.get_int(THROTTLE), MOVE_TAIL_BYTES_MAX)

    def pause_ms(self, copied_bytes: int) -> float:
        """See ``Mover``: all moves together are within the throttle."""
        now_ms = float(self._env.clock.monotonic_ms())
        rate = max(self._config.get_int(THROTTLE), 1)
        self._free_at_ms = max(self._free_at_ms, now_ms) + 1000 * copied_bytes / rate
        return self._free_at_ms - now_ms

    def took_place(self, move: ReplicaMove) -> None:
        """See ``Mover``."""
        logger.info("%s-%d has moved from %s to %s", *move.key, move.source.directory.path, move.target.directory.path)
        del self._moves[move.key]
        self._places.move(move.key, move.target)
        move.source.forget(move.key)
        self._moved(move.log, move.source.directory)

    def ended(self, move: ReplicaMove) -> None:
        """See ``Mover``."""
        if self._moves.get(move.key) is move:
            del self._moves[move.key]
            self._waiting.pop(move.key, None)
        executor = self._executors.pop(move, None)
        if executor is not None:
            self._idle.append(executor)
        self._begin_some()

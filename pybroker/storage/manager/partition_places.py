"""Which partition lies in which log directory.

Owns: listing what lies on the disks, and sorting it out by what the cluster knows. It chooses the directory of a new
partition, and renames the directories of deleted partitions and of strays. Owns no log and no offset.

Invariants: a partition that the metadata places in a directory that is not here must not begin anew in another
(KIP-858).  Nothing that an unknown topic left is ever removed: it is renamed.

Directories of deleted partitions are renamed in slices, so one may be there for a while after the answer; a clean stop
renames the rest, a crash leaves strays.

Counterpart in Kafka: the directory side of ``LogManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.storage.files import checkpoints, os_file
from pybroker.storage.manager.log_dir_state import online
from pybroker.storage.manager.move_names import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    MOVED_DIR_SUFFIX,
    NAME_BYTES_MAX,
)
from pybroker.storage.results import StorageError, TopicPartition

if TYPE_CHECKING:
    from pybroker.env import Env
    from pybroker.storage.dirs.log_dir import LogDir
    from pybroker.storage.log.log import Log
    from pybroker.storage.manager.log_dir_state import LogDirState

# Log dirs that are remembered for partitions which are not here yet; past that the oldest is forgotten.
PREFERRED_LOG_DIRS_MAX = 10_000

STRAY_DIR_SUFFIX = "-stray"
_NOT_PARTITIONS = (DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, MOVED_DIR_SUFFIX, STRAY_DIR_SUFFIX)
# Kafka's own metadata log is taken over by ``cluster``; it is no partition of ours.
_CLUSTER_METADATA = "__cluster_metadata"

# Says of a topic's name and a partition's index: the topic's id and the id of the directory of this node's replica
# (``None`` where none was chosen yet), or ``None`` when this node has no such replica.
Assigned = Callable[[str, int], tuple[bytes, bytes | None] | None]

logger = logging.getLogger("pybroker.storage")


class PartitionPlaces:
    """The places of all partitions of a broker, by topic and index; iterates over the partitions."""

    def __init__(
        self, env: Env, states: Sequence[LogDirState], forget_cleaned: Callable[[LogDir, TopicPartition], None]
    ) -> None:
        """``forget_cleaned(directory, partition)``: how far it was compacted is of no interest any more."""
        self._env = env
        self._states = states
        self._forget_cleaned = forget_cleaned
        self._places: dict[TopicPartition, LogDirState] = {}
        self._counts: dict[LogDirState, int] = dict.fromkeys(states, 0)  # of partitions in each directory
        self.away: Container[TopicPartition] = ()  # they lie in a log directory that is not here
        self._preferred: dict[TopicPartition, LogDirState] = {}  # wanted for partitions that are not here yet
        self._found_again: list[tuple[TopicPartition, LogDirState]] = []  # in one more directory, until ``settle``

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._places)

    def __getitem__(self, key: TopicPartition) -> LogDirState:
        return self._places[key]

    def get(self, key: TopicPartition) -> LogDirState | None:
        """The partition's place, ``None`` while it has none."""
        return self._places.get(key)

    def cover(self, log: Log, offset: int) -> Callable[[], object] | None:
        """See ``LogDirState.cover``."""
        key = log.topic, log.partition
        return self._places[key].cover(key, log, offset)

    # Start ------------------------------------------------------------------------------------------------------------

    def take_in(self, state: LogDirState) -> list[TopicPartition]:
        """List the partitions that lie in a directory; raises OSError."""
        keys = list(self._partitions_in(state.directory))
        for key in keys:
            if key not in self._places:
                self._put(key, state)
            elif self._places[key] is not state:
                self._found_again.append((key, state))
        return keys

    def _partitions_in(self, directory: LogDir) -> Iterator[TopicPartition]:
        to_delete = []
        for name in os_file.subdirectories(directory.path, lambda name: "-" in name):
            topic, _, partition = name.rpartition("-")
            if name.endswith(DELETE_DIR_SUFFIX):
                to_delete.append(directory.path / name)
            elif partition.isdigit() and topic != _CLUSTER_METADATA and not name.endswith(_NOT_PARTITIONS):
                yield topic, int(partition)
        if to_delete:
            directory.remove_later(to_delete, 0)

    def settle(self, assigned: Assigned) -> dict[tuple[bytes, int], bytes]:
        """See ``LogManager.settle``."""
        for key, state in self._found_again:
            self._choose_between(key, self._places[key], state, assigned(*key))
        self._found_again.clear()
        moved = {}
        for key, state in list(self._places.items()):
            expected = assigned(*key)
            if expected is None:
                self._put_aside(state, key)
                continue
            topic_id, directory_id = expected
            if directory_id == state.directory.directory_id:
                continue
            found_id = _topic_id_of(state, key)
            if found_id == topic_id or found_id is directory_id is None:
                moved[topic_id, key[1]] = state.directory.directory_id
            else:
                self._put_aside(state, key)
        return moved

    def _choose_between(
        self, key: TopicPartition, first: LogDirState, second: LogDirState, expected: tuple[bytes, bytes | None] | None
    ) -> None:
        """A partition lies in two directories. One is what a deleted topic of that name left, or what a directory has
        that was away while the replica went and came back elsewhere. Or it is not known which.
        """
        ours = [state for state in (first, second) if expected and _topic_id_of(state, key) == expected[0]]
        named = [state for state in ours if expected and state.directory.directory_id == expected[1]]
        ours = named or ours
        if len(ours) == 2:
            clash = StorageError(f"Partition {key[0]}-{key[1]} lies in {first.directory.path}, too")
            second.directory.fail(clash, "the start")
            return
        kept = ours[0] if ours else first
        self._put_aside(second if kept is first else first, key)
        if key not in self._places:
            self._put(key, kept)

    # New and old partitions -------------------------------------------------------------------------------------------

    def of(
        self, key: TopicPartition, topic_id: bytes, directory_id: bytes | None, adopt: bool = True
    ) -> LogDirState | None:
        """Where the partition lies, or will lie if it is new.

        ``None`` if its directory is not online, or if it is not known now whose the partition is that lies there.
        ``directory_id`` names the directory of a new one, which has to be online; with ``None`` it goes where the
        fewest are, and in either case where it is preferred.  What an earlier topic of the same name left is put aside,
        and without ``adopt`` what does not say whose it is.
        """
        state = self._places.get(key)
        if state is not None:
            is_of_topic = self._is_of_topic(key, topic_id, adopt)
            if is_of_topic is None:
                return None
            if not is_of_topic:
                self._put_aside(state, key)
                state = None
        if state is None:
            state = self.coming(key, directory_id)
            if state is None:
                return None
            self._preferred.pop(key, None)
            self._put(key, state)
        return None if state.directory.offline else state

    def coming(self, key: TopicPartition, directory_id: bytes | None) -> LogDirState | None:
        """Where a partition that has no place yet will get one (see ``of``), ``None`` if it cannot have one now."""
        state = self._least_loaded() if directory_id is None else self._online_by_id(directory_id)
        if state is None or key in self.away:
            return None
        preferred = self._preferred.get(key, state)
        return state if preferred.directory.offline else preferred

    def prefer(self, key: TopicPartition, state: LogDirState) -> None:
        """Once the partition is made here it begins in this directory, whatever the metadata says.

        That is no place that a log of it could have had, so that none is begun anew beside another.
        """
        self._preferred.pop(key, None)
        self._preferred[key] = state
        if len(self._preferred) > PREFERRED_LOG_DIRS_MAX:
            del self._preferred[next(iter(self._preferred))]

    def move(self, key: TopicPartition, state: LogDirState) -> None:
        """The partition lies in another directory now."""
        self._remove(key)
        self._put(key, state)

    def _is_of_topic(self, key: TopicPartition, topic_id: bytes, adopt: bool = True) -> bool | None:
        """Whether what lies there is that topic's; ``None`` if it cannot be read now.

        The power may have failed before it was synced whose it is: then it is that topic's if it is to be adopted.
        """
        state = self._places[key]
        try:
            found = _topic_id_of(state, key)
            if found is not None or not os_file.is_dir(state.path_of(key)):
                return found in (None, topic_id)
            if adopt:
                # Else it would pass for the next topic of that name, too.
                checkpoints.write_partition_metadata(state.path_of(key), topic_id)
            return adopt
        except OSError as error:
            if os_file.is_passing(error):
                state.directory.refused_for_space(error)
            else:
                state.directory.fail(error, f"reading {checkpoints.PARTITION_METADATA} in {state.path_of(key)}")
            return None

    def _online_by_id(self, directory_id: bytes) -> LogDirState | None:
        return next((state for state in online(self._states) if state.directory.directory_id == directory_id), None)

    def _least_loaded(self) -> LogDirState | None:
        """The log dir with the fewest partitions of those that take new replicas.

        Where all are cordoned it is one of them: the metadata has the replica on this broker already, as in Kafka.
        """
        states = online(self._states)
        takes_some = [state for state in states if not state.is_cordoned]
        return min(takes_some or states, key=self._counts.__getitem__, default=None)

    def _put(self, key: TopicPartition, state: LogDirState) -> None:
        self._places[key] = state
        self._counts[state] += 1

    def _remove(self, key: TopicPartition) -> LogDirState:
        state = self._places.pop(key)
        self._counts[state] -= 1
        return state

    # Renaming ---------------------------------------------------------------------------------------------------------

    def delete_of_topic(self, key: TopicPartition, topic_id: bytes) -> None:
        """The topic is deleted: so is the partition, if it is that topic's.

        Where that is not known now it stays, and the next start finds it to be of no topic.
        """
        if self._is_of_topic(key, topic_id):
            self.delete(key)

    def delete(self, key: TopicPartition, delay_ms: int = 0) -> None:
        """Rename the partition's directory now, and remove it after ``delay_ms``."""
        state = self._remove(key)
        state.forget(key)
        target = self._rename(state, key, DELETE_DIR_SUFFIX)
        if target is not None:
            state.directory.remove_later([target], delay_ms)

    def _put_aside(self, state: LogDirState, key: TopicPartition) -> None:
        """Take a stray out of the way."""
        if self._places.get(key) is state:
            self._remove(key)
        state.forget(key)
        target = self._rename(state, key, STRAY_DIR_SUFFIX)
        if target is not None:
            logger.warning("%s-%d in %s is of no topic here: it is now %s", *key, state.directory.path, target.name)

    def _rename(self, state: LogDirState, key: TopicPartition, suffix: str) -> Path | None:
        self._forget_cleaned(state.directory, key)
        path = state.path_of(key)
        unique = self._env.new_uuid().hex()
        # Kafka's form, with the topic cut so that the name fits into 255 bytes.
        target = path.with_name(f"{key[0][: NAME_BYTES_MAX - 60]}-{key[1]}.{unique}{suffix}")
        try:
            os_file.rename(path, target)
        except FileNotFoundError:
            return None
        except OSError as error:
            state.directory.fail(error, f"the renaming of {path}")
            return None
        return target


def _topic_id_of(state: LogDirState, key: TopicPartition) -> bytes | None:
    """Whose the partition's directory is; ``None`` if it does not say."""
    try:
        return checkpoints.read_partition_metadata(state.path_of(key))
    except StorageError as error:
        logger.warning("%s", error)
        return None

"""The partitions that this broker leads, and the fetches that wait on them.

Owns: which partitions are led here, and what the cluster image means for them. They are made at first use, so that
10,000 idle ones cost nothing. Owns the look, at the end of a turn, at fetches whose partitions were appended to, too.
Partitions with several replicas are made when the image names them, and those that others lead are followed:
``replica_roles``, which a broker without such partitions does not import. Does not own the logs
(``storage.manager.log_manager``), the image (``cluster``) or any request's shape.

Invariants:
- A partition object is made only for a partition that this broker leads by the image. Its log is open, and stays so as
  long as the object is in use.
- When the image says otherwise the object is marked gone, its waiting fetches are answered, and the next request looks
  it up anew.
- Opening a log moves its high watermark only where it is the only replica, and leads.

Kafka counterpart: kafka.server.ReplicaManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pybroker.cluster.image.cluster_image import NO_LEADER, RECOVERING, UNCHOSEN_DIRECTORIES
from pybroker.config.broker_settings import RACK_AWARE_SELECTOR
from pybroker.config.log_config import LogConfig
from pybroker.config.resources import TOPIC
from pybroker.rate_limited_log import RateLimitedLog
from pybroker.replication.fetch_session import FetchSessionCache
from pybroker.replication.partition import Partition, advance_high_watermark
from pybroker.replication.purgatory import Purgatory
from pybroker.storage.manager.move_names import is_movable
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, PartitionImage, TopicImage
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.cluster.membership.peers import Peers
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Env
    from pybroker.replication.fetch_session import FetchPartition
    from pybroker.replication.followed_partition import FollowedPartition
    from pybroker.replication.follower_watch import FollowerWatch, FollowerWatches
    from pybroker.replication.followers import Followers
    from pybroker.replication.replica_roles import ReplicaRoles
    from pybroker.replication.replication_ports import IsrChanger
    from pybroker.replication.replication_quota import ReplicationQuota
    from pybroker.storage.log.log import Log
    from pybroker.storage.log.partition_log import PartitionLog
    from pybroker.storage.manager.log_manager import LogManager

# A topic's name or its id.
TopicKey = str | bytes

logger = logging.getLogger(__name__)

_ANY_EPOCH = -1


class ReplicaManager:
    """One per broker, on the broker's loop."""

    def __init__(
        self, env: Env, broker_id: int, metadata: MetadataCache, logs: LogManager, config: BrokerConfig
    ) -> None:
        self.purgatory = Purgatory(env)
        self.env = env
        self.broker_id = broker_id
        self._metadata = metadata
        self._logs = logs
        self._config = config
        # Given before the first image to a broker that has others beside it.
        self.peers: Peers | None = None
        self.isr_changer: IsrChanger | None = None
        self.own_epoch: Callable[[], int] = lambda: -1  # the broker epoch of this process
        self.rate_limited_log = RateLimitedLog(logger, env.timers)
        self.lag_time_max_ms = config.get_int("replica.lag.time.max.ms")
        self.session_ms = config.get_int("broker.session.timeout.ms")
        self.is_cut_off: Callable[[int], bool] = lambda broker_id: False
        self._roles: ReplicaRoles | None = None  # there are none before the first replicated partition
        # Each topic's partitions twice: by its name and by its id.
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        self._marked: list[Partition | FollowedPartition | FollowerWatch] = []
        self.selects_by_rack = config["replica.selector.class"] == RACK_AWARE_SELECTOR
        self.sessions = FetchSessionCache(
            config["max.incremental.fetch.session.cache.slots"], env.clock.monotonic_ms, env.random
        )
        metadata.subscribe(self.on_image)
        # Retention counts for partitions, too, that nobody asks for.
        logs.open_unused = lambda topic, index: self._open_log(self._topic_image(topic), index)

    def close(self) -> None:
        """Forget every wait; nothing is answered."""
        self.purgatory.close()
        self.rate_limited_log.close()
        self._marked.clear()
        if self._roles is not None:
            self._roles.close()

    @property
    def image(self) -> ClusterImage:
        """The cluster as it is now."""
        return self._metadata.image

    @property
    def config(self) -> BrokerConfig:
        """The broker's own settings."""
        return self._config

    # --- looking up ------------------------------------------------------------------------------------------------

    def partition(self, topic: TopicKey, index: int) -> Partition | None:
        """The partition, or None when it is not led here (``error_of`` says why)."""
        partitions = self._topics.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        return partition or self._make(self._topic_image(topic), index)

    def error_of(self, topic: TopicKey, index: int, leader_epoch: int = _ANY_EPOCH) -> int:
        """Why ``partition(topic, index)`` gave None; a follower first says that the client's epoch is not the leader's.

        Counterpart in Kafka: ``Partition.getLocalLog``.
        """
        image = self._topic_image(topic)
        if image is None and isinstance(topic, bytes):
            return ErrorCode.UNKNOWN_TOPIC_ID
        followed = None if leader_epoch == _ANY_EPOCH else self.followed(topic, index)
        if followed is not None and (error := followed.epoch_error(leader_epoch)):
            return error
        return self._error(image, index)

    def followed(self, topic: TopicKey, index: int) -> FollowedPartition | None:
        """The partition as this broker has it of another one, which leads it; None where it follows no other."""
        image = self._topic_image(topic)
        return None if image is None or self._roles is None else self._roles.followed(image.topic_id, index)

    def note_refusal(self, topic: TopicKey, index: int, records: memoryview, error_code: int) -> None:
        """A client's batch was refused because another broker leads the partition: this one may lead it a moment later,
        before what the client has sent behind the batch is here."""
        followed = self.followed(topic, index)
        if followed is not None:
            followed.log.note_refusal(records, error_code)

    def _topic_image(self, topic: TopicKey) -> TopicImage | None:
        image = self._metadata.image
        return image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)

    def resolve(self, fetched: FetchPartition) -> Partition | FollowedPartition | None:
        """Bind a partition of a fetch to its partition here, or answer it with the error."""
        if fetched.topic is None:
            topic = self._metadata.image.topics_by_id.get(fetched.topic_id)
            if topic is None:
                fetched.answer(ErrorCode.UNKNOWN_TOPIC_ID)
                return None
            fetched.topic = topic.name
        partition: Partition | FollowedPartition | None = self.partition(fetched.topic, fetched.index)
        if partition is None and fetched.reads_followers:
            partition = self.followed(fetched.topic, fetched.index)
        if partition is None:
            fetched.answer(self.error_of(fetched.topic, fetched.index, fetched.current_leader_epoch))
        elif fetched.topic_id not in (partition.topic_id, ZERO_UUID):
            # The topic was deleted and made anew under its name: the session's id is that of the dead one.
            known = fetched.topic_id in self._metadata.image.topics_by_id
            fetched.answer(ErrorCode.INCONSISTENT_TOPIC_ID if known else ErrorCode.UNKNOWN_TOPIC_ID)
            partition = None
        fetched.partition = partition
        return partition

    def _error(self, topic: TopicImage | None, index: int) -> ErrorCode:
        if topic is None or not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = topic.partitions[index]
        # Without a leader, the only replica, which is here, lies in a log dir that is not.
        if state.leader == self.broker_id or (state.leader == NO_LEADER and state.replicas == (self.broker_id,)):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _make(self, topic: TopicImage | None, index: int) -> Partition | None:
        """Make the partition, at first use, if the image says that it is led here and its log can be had."""
        log = self._open_log(topic, index)
        if topic is None or log is None:
            return None
        if self._roles is not None:
            self._roles.let_go((topic.topic_id, index))  # the image is newer than what was heard of it
        partition = Partition(self, topic.name, topic.topic_id, index, topic.partitions[index], log)
        partitions = self._topics.setdefault(topic.topic_id, {})
        partitions[index] = partition
        self._topics[topic.name] = partitions  # in place of those of a deleted topic of that name
        mirror = self._metadata.image.mirrors.get(topic.name)
        if mirror is not None:
            from pybroker.replication.source_transactions import begin_own_history

            begin_own_history(self, topic, mirror, partition)
        if partition.followers is not None:
            partition.on_appended()  # no other replica may be in sync
        if topic.partitions[index].leader_recovery_state == RECOVERING:
            # There is nothing to recover: the next ISR that the leader asks for says so (KIP-704).
            logger.info("%s-%d is led by a replica that was not in sync: records may be lost", topic.name, index)
        return partition

    def _open_log(self, topic: TopicImage | None, index: int) -> PartitionLog | None:
        """The log, open, of a partition that the image says is led here; None where it is not, or cannot be had."""
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        state = topic.partitions[index]
        return self._open_replica(topic, index, state) if state.leader == self.broker_id else None

    def _open_replica(self, topic: TopicImage, index: int, state: PartitionImage) -> PartitionLog | None:
        directory = state.directory(self.broker_id)
        chosen = None if directory in UNCHOSEN_DIRECTORIES else directory
        config = self._log_config(topic.name)
        # What lost with the power whose it is may be a dead topic's: only where nobody has more is it taken over.
        adopt = state.leader in {self.broker_id, NO_LEADER} or self._may_have_all(state)
        partition_log = self._logs.open(topic.name, topic.topic_id, index, config, chosen, adopt=adopt)
        if partition_log is None:
            return None
        log = partition_log.open()
        if log.refuses:
            return None  # opening it showed that it cannot be read: it must not look empty
        leads_alone = self._leads_alone(state)
        if leads_alone or len(state.replicas) > 1:
            self._cut_at_hole(log, leads_alone, self._may_have_all(state))
        if leads_alone:
            advance_high_watermark(log)
        if log.committed_end < log.log_end_offset:
            # What a process that died had only written is shown once it is synced.
            log.flushes.flush(lambda: self._on_synced(log))
        return partition_log

    def _cut_at_hole(self, log: Log, leads_alone: bool, may_have_all: bool) -> None:
        """A log that lacks something in its middle must not pass for a whole one: the leader has what is cut.

        Where no other replica may have it the cut takes only what was never acknowledged, because the run that wrote it
        synced first. Else a producer that repeats what was lost would be refused, and write what it had in flight
        behind that twice. A leader that is alone has to be certain of that.
        """
        hole = self._logs.take_hole(log.topic, log.partition)
        if hole is None:
            return
        was_not_acknowledged = hole.is_certain or not (log.config.compact or leads_alone)
        if not (leads_alone or may_have_all) or (log.acks_wait_for_syncs and was_not_acknowledged):
            logger.warning("%s-%d is cut at offset %d, where it lacks records", log.topic, log.partition, hole.offset)
            log.truncate_to(hole.offset)

    def _may_have_all(self, state: PartitionImage) -> bool:
        """Whether the replica here may hold what was committed and no other has."""
        return self.broker_id in state.isr or self.broker_id in state.elr

    def _on_synced(self, log: Log) -> None:
        state = self._metadata.partition(log.topic, log.partition)
        if not self._on_end_moved(log) and state is not None and self._leads_alone(state):
            advance_high_watermark(log)

    def _leads_alone(self, state: PartitionImage) -> bool:
        """Whether what is written here is committed: the only replica commits nothing while it is not the leader."""
        return state.leader == self.broker_id and state.replicas == (self.broker_id,)

    def _on_end_moved(self, log: Log) -> bool:
        """The end of a log, or of what is synced of it, may have moved; whether it is that of a led partition."""
        partition = self._topics.get(log.topic, {}).get(log.partition)
        if partition is None or partition.log is not log:
            return False
        partition.on_appended()
        return True

    def on_former_append(self, log: Log) -> None:
        """An append of a partition that had another role, or leader epoch, when it began has ended."""
        self._on_end_moved(log)

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_overrides(self._metadata.image.overrides(TOPIC, topic), self._config)

    # --- moves between log dirs ------------------------------------------------------------------------------------

    def move_replica(self, name: str, index: int, path: str) -> ErrorCode:
        """Move this broker's replica of a partition to the log dir at ``path``; that it begins is no error.

        The dir of a partition that is not here is remembered (``ReplicaMoves.prefer``).
        """
        moves = self._logs.moves
        if not is_movable((name, index)):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        refused = moves.log_dir_error(path)
        if refused:
            return ErrorCode(refused)
        topic = self._topic_image(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            moves.prefer((name, index), path)
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = topic.partitions[index]
        if self.broker_id not in state.replicas:
            moves.prefer((name, index), path)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        log = self._open_replica(topic, index, state)
        return ErrorCode.KAFKA_STORAGE_ERROR if log is None else ErrorCode(moves.move(log, path))

    def assigned(
        self, wanted: Iterable[tuple[str, int]] | None
    ) -> Iterator[tuple[tuple[str, int], bytes | None] | None]:
        """This broker's replicas by the image, of those ``wanted`` (``None``: all), each with the id of its log dir.

        That is ``None`` where none was chosen; and ``None`` stands for each partition that has no replica here.
        """
        image = self._metadata.image
        place = image.replica_places(self.broker_id)
        if wanted is None:
            topics = image.topics_by_name.values()
            wanted = ((topic.name, index) for topic in topics for index in range(len(topic.partitions)))
        for name, index in wanted:
            found = place(name, index)
            yield None if found is None else ((name, index), found[1])

    # --- appending and waiting -------------------------------------------------------------------------------------

    def mark(self, waited_for: Partition | FollowedPartition | FollowerWatch) -> None:
        """There is more to read of a partition, or for a follower: look at what waits for that once, after this turn
        of the loop."""
        waited_for.marked = True
        if not self._marked:
            self.env.timers.call_soon(self._wake)
        self._marked.append(waited_for)

    def _wake(self) -> None:
        marked, self._marked = self._marked, []
        self._tell_waiting(marked)

    def _tell_waiting(self, waited_for: Iterable[Partition | FollowedPartition | FollowerWatch]) -> None:
        """Let whatever waits look at what it waits for; one that fails keeps no other waiting."""
        for one in waited_for:
            one.marked = False
            operations: list[Any] = list(one.waiting)
            for operation in operations:
                try:
                    operation.try_complete(one)
                except Exception:
                    logger.exception("what waits for %s failed", one)

    # --- the image -------------------------------------------------------------------------------------------------

    def on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Follow the cluster: drop deleted topics, take over leader epochs and settings."""
        for topic in delta.topics_deleted:
            self._drop_topic(topic)
        # Before partitions hear of their replicas: fewer in sync may commit by an old minimum what a new one forbids.
        for resource_type, name in delta.configs_changed:
            if resource_type == TOPIC:
                self._reconfigure(name)
        for before, after in delta.topics_changed:
            self._update_topic(before, after)
        for topic in delta.topics_created:
            self._take_roles(topic, ())
        if self._roles is not None:
            if delta.brokers_changed:  # a replica that somebody waits for may be fenced
                self._look_at_waited_for()
            for broker_id in delta.brokers_changed:
                if broker_id not in image.brokers:
                    self._roles.watches.drop(broker_id)

    def on_broker_config(self) -> None:
        """The broker's own settings changed: every log's defaults may have."""
        for topic in {log.topic for log in self._logs.logs()}:
            self._reconfigure(topic)

    def _reconfigure(self, name: str) -> None:
        topic, config = self._topic_image(name), self._log_config(name)
        if self._roles is not None:
            self._roles.quotas.learn(name, config)
        if topic is not None:
            for index in range(len(topic.partitions)):
                log = self._logs.get(name, index)  # used by nobody, or by a partition
                if log is not None:
                    log.update_config(config)

    def _look_at_waited_for(self) -> None:
        for partitions in self._topics.values():
            for partition in partitions.values():
                partition.look_at_waited_for()

    def _drop_topic(self, topic: TopicImage) -> None:
        dropped = self._topics.pop(topic.topic_id, {})
        if self._topics.get(topic.name) is dropped:  # a topic made anew under the name may stand there already
            del self._topics[topic.name]
        for partition in dropped.values():
            self._retire(partition)
        if self._roles is not None:
            for index in range(len(topic.partitions)):
                self._roles.let_go((topic.topic_id, index))
        self._logs.delete(topic.name, topic.topic_id, len(topic.partitions))

    def _update_topic(self, before: TopicImage, after: TopicImage) -> None:
        partitions = self._topics.get(after.topic_id, {})
        for index, partition in list(partitions.items()):
            state = after.partitions[index]
            if state.leader != self.broker_id or state.leader_epoch != partition.leader_epoch:
                del partitions[index]
                self._retire(partition)
            else:
                partition.on_state(state)
        self._take_roles(after, before.partitions)

    def _retire(self, partition: Partition) -> None:
        partition.retire()
        self._tell_waiting((partition,))

    # --- several replicas ------------------------------------------------------------------------------------------

    def _is_followed(self, topic: TopicImage, index: int) -> bool:
        """Whether it is followed here by what the image said before."""
        return self._roles is not None and self._roles.followed(topic.topic_id, index) is not None

    def _take_roles(self, topic: TopicImage, before: Sequence[PartitionImage]) -> None:
        """See to the replicas here whose partitions have others, or that are new here, or not here any more."""
        broker_id, known = self.broker_id, len(before)
        indexes = []
        for index, state in enumerate(topic.partitions):
            former = before[index] if index < known else None
            if state is former or (former is None and len(state.replicas) == 1):
                continue
            was_here = former is not None and broker_id in former.replicas
            is_here = broker_id in state.replicas
            if was_here != is_here or (is_here and (len(state.replicas) > 1 or self._is_followed(topic, index))):
                indexes.append(index)
        if indexes:
            self._replica_roles.take(topic, indexes)

    @property
    def _replica_roles(self) -> ReplicaRoles:
        if self._roles is None:
            from pybroker.replication.replica_roles import ReplicaRoles

            self._roles = ReplicaRoles(self)
        return self._roles

    @property
    def leader_quota(self) -> ReplicationQuota:
        """What followers are sent of throttled partitions."""
        return self._replica_roles.quotas.leader

    @property
    def follower_watches(self) -> FollowerWatches:
        """What is to be looked at for each follower."""
        return self._replica_roles.watches

    def followers_of(self, partition: Partition, state: PartitionImage) -> Followers:
        """What the leader of a replicated partition is to know of its followers."""
        from pybroker.replication.followers import Followers

        followers = Followers(self, partition, state)
        self._replica_roles.watch(followers)
        return followers

    def lead(self, topic: TopicImage, index: int) -> bool:
        """Make a partition that is led here; False if its log cannot be had now."""
        return self.partition(topic.topic_id, index) is not None

    def is_lost(self, topic: TopicImage, index: int) -> bool:
        """Whether the log dir that the image names for the replica here does not work, which lasts until a restart."""
        directory = topic.partitions[index].directory(self.broker_id)
        return directory not in UNCHOSEN_DIRECTORIES and directory not in self._logs.directory_ids()

    def begin_anew(self, topic: TopicImage, index: int) -> bool:
        """Have a replica that another broker leads begin in another log dir, where its own is lost; whether it may."""
        return self.is_lost(topic, index) and self._logs.begin_anew(topic.name, topic.topic_id, index)

    def tell_place(self, log: PartitionLog) -> None:
        """The controller is to know where a replica lies that has begun anew."""
        self._logs.tell_place(log)

    def open_replica(self, topic: TopicImage, index: int) -> PartitionLog | None:
        """The log of a replica that another broker leads; None if it cannot be had now."""
        return self._open_replica(topic, index, topic.partitions[index])

    def delete_replica(self, topic: TopicImage, index: int) -> None:
        """The replica is not here any more: its files go."""
        self._logs.delete_partition(topic.name, topic.topic_id, index)

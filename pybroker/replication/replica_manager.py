"""The partitions that this broker leads, and the fetches that wait on them.

Owns: which partitions are here (made at first use, so that 10,000 idle ones cost nothing), what the cluster image
means for them, and the turn-end look at fetches whose partitions were appended to.
Does not own the logs (``storage.manager.log_manager``), the image (``cluster``) or any request's shape.

Invariants: a partition object is made only for a partition that the image says this broker leads, and that has an open
log, which stays open as long as the object is in use; when the image says otherwise the object is marked gone, its
waiting fetches are answered, and the next request looks it up anew.

Kafka counterpart: kafka.server.ReplicaManager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pybroker.cluster.image import NO_LEADER, UNCHOSEN_DIRECTORIES
from pybroker.config.log_config import LogConfig
from pybroker.config.resources import TOPIC
from pybroker.replication.fetch_session import FetchSessionCache
from pybroker.replication.partition import Partition, advance_high_watermark
from pybroker.replication.purgatory import Purgatory
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.cluster.image import ClusterImage, ImageDelta, TopicImage
    from pybroker.cluster.metadata_cache import MetadataCache
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Env
    from pybroker.replication.fetch_session import FetchPartition
    from pybroker.storage.log.log import Log
    from pybroker.storage.log.partition_log import PartitionLog
    from pybroker.storage.manager.log_manager import LogManager

# A topic's name or its id.
TopicKey = str | bytes

logger = logging.getLogger(__name__)


class ReplicaManager:
    """See the module's docstring.  One per broker, on the broker's loop."""

    def __init__(
        self, env: Env, broker_id: int, metadata: MetadataCache, logs: LogManager, config: BrokerConfig
    ) -> None:
        self.purgatory = Purgatory(env)
        self.env = env
        self._broker_id = broker_id
        self._metadata = metadata
        self._logs = logs
        self._config = config
        # Each topic's partitions twice: by its name and by its id.
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        self._marked: list[Partition] = []
        self.sessions = FetchSessionCache(
            config["max.incremental.fetch.session.cache.slots"], env.clock.monotonic_ms, env.random
        )
        metadata.subscribe(self.on_image)
        # Retention counts for partitions, too, that nobody asks for.
        logs.open_unused = lambda topic, index: self._open_log(self._topic_image(topic), index)

    def close(self) -> None:
        """Forget every wait; nothing is answered."""
        self.purgatory.close()
        self._marked.clear()

    # --- looking up ------------------------------------------------------------------------------------------------

    def partition(self, topic: TopicKey, index: int) -> Partition | None:
        """The partition, or None when it is not led here (``error_of`` says why)."""
        partitions = self._topics.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        return partition or self._make(self._topic_image(topic), index)

    def error_of(self, topic: TopicKey, index: int) -> ErrorCode:
        """Why ``partition(topic, index)`` gave None."""
        image = self._topic_image(topic)
        if image is None and isinstance(topic, bytes):
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._error(image, index)

    def _topic_image(self, topic: TopicKey) -> TopicImage | None:
        image = self._metadata.image
        return image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)

    def resolve(self, fetched: FetchPartition) -> Partition | None:
        """Bind a partition of a fetch to its partition here, or answer it with the error."""
        if fetched.topic is None:
            topic = self._metadata.image.topics_by_id.get(fetched.topic_id)
            if topic is None:
                fetched.answer(ErrorCode.UNKNOWN_TOPIC_ID)
                return None
            fetched.topic = topic.name
        partition = self.partition(fetched.topic, fetched.index)
        if partition is None:
            fetched.answer(self.error_of(fetched.topic, fetched.index))
        elif any(fetched.topic_id) and fetched.topic_id != partition.topic_id:
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
        # Without a leader, a replica that is here lies in a log dir that is not.
        if state.leader == self._broker_id or (state.leader == NO_LEADER and self._broker_id in state.replicas):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _make(self, topic: TopicImage | None, index: int) -> Partition | None:
        """Make the partition, at first use, if the image says that it is led here and its log can be had."""
        log = self._open_log(topic, index)
        if topic is None or log is None:
            return None
        partition = Partition(self, topic.name, topic.topic_id, index, topic.partitions[index], log)
        partitions = self._topics.setdefault(topic.topic_id, {})
        partitions[index] = partition
        self._topics[topic.name] = partitions  # in place of those of a deleted topic of that name
        return partition

    def _open_log(self, topic: TopicImage | None, index: int) -> PartitionLog | None:
        """The log, open, of a partition that the image says is led here; None where it is not, or cannot be had."""
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        state = topic.partitions[index]
        if state.leader != self._broker_id:
            return None
        directory = state.directory(self._broker_id)
        chosen = None if directory in UNCHOSEN_DIRECTORIES else directory
        partition_log = self._logs.open(topic.name, topic.topic_id, index, self._log_config(topic.name), chosen)
        if partition_log is None:
            return None
        log = partition_log.open()
        advance_high_watermark(log)
        if log.refuses:
            return None  # opening it showed that it cannot be read: it must not look empty
        if log.committed_end < log.log_end_offset:
            # What a process that died had only written is shown once it is synced.
            log.flushes.flush(lambda: self._on_synced(log))
        return partition_log

    def _on_synced(self, log: Log) -> None:
        partition = self._topics.get(log.topic, {}).get(log.partition)
        if partition is not None and partition.log is log:
            partition.on_appended()
        else:
            advance_high_watermark(log)

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_overrides(self._metadata.image.overrides(TOPIC, topic), self._config)

    # --- appending and waiting -------------------------------------------------------------------------------------

    def mark(self, partition: Partition) -> None:
        """A partition has more to read: look at what waits for it once, after this turn of the loop."""
        partition.marked = True
        if not self._marked:
            self.env.timers.call_soon(self._wake)
        self._marked.append(partition)

    def _wake(self) -> None:
        marked, self._marked = self._marked, []
        self._tell_waiting(marked)

    def _tell_waiting(self, partitions: Iterable[Partition]) -> None:
        """Let whatever waits for the partitions look at them; one that fails keeps no other waiting."""
        for partition in partitions:
            partition.marked = False
            for operation in list(partition.waiting):
                try:
                    operation.try_complete(partition)
                except Exception:
                    logger.exception("what waits for %s-%d failed", partition.topic, partition.index)

    # --- the image -------------------------------------------------------------------------------------------------

    def on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Follow the cluster: drop deleted topics, take over leader epochs and settings."""
        for topic in delta.topics_deleted:
            self._drop_topic(topic)
        for _, after in delta.topics_changed:
            self._update_topic(after)
        for resource_type, name in delta.configs_changed:
            if resource_type == TOPIC:
                self._reconfigure(name)

    def on_broker_config(self) -> None:
        """The broker's own settings changed: every log's defaults may have."""
        for topic in {log.topic for log in self._logs.logs()}:
            self._reconfigure(topic)

    def _reconfigure(self, name: str) -> None:
        topic = self._topic_image(name)
        if topic is not None:
            config = self._log_config(name)
            for index in range(len(topic.partitions)):
                log = self._logs.get(name, index)  # used by nobody, or by a partition
                if log is not None:
                    log.update_config(config)

    def _drop_topic(self, topic: TopicImage) -> None:
        dropped = self._topics.pop(topic.topic_id, {})
        if self._topics.get(topic.name) is dropped:  # a topic made anew under the name may stand there already
            del self._topics[topic.name]
        for partition in dropped.values():
            self._retire(partition)
        self._logs.delete(topic.name, topic.topic_id, len(topic.partitions))

    def _update_topic(self, after: TopicImage) -> None:
        partitions = self._topics.get(after.topic_id, {})
        for index, partition in list(partitions.items()):
            state = after.partitions[index]
            if state.leader != self._broker_id or state.leader_epoch != partition.leader_epoch:
                del partitions[index]
                self._retire(partition)
            else:
                partition.on_state(state)

    def _retire(self, partition: Partition) -> None:
        partition.gone = True
        self._tell_waiting((partition,))

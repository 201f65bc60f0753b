"""A coordinator's internal topic, as the coordinator sees it.

Owns: the coordinators' ports onto the partitions of this broker (``PartitionWriter`` and ``PartitionReader`` of
``coordinator_ports``), and telling a coordinator which partitions of its topic this broker leads.
Owns no state of a coordinator.

Kafka counterpart: CoordinatorPartitionWriter, CoordinatorLoaderImpl, and BrokerMetadataPublisher's elections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pybroker.storage.log.cold_read import ColdRead
from pybroker.storage.results import EMPTY, ReadResult
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.records import NO_SEQUENCE

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.replication.partition import Partition
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker.replication.transaction_verification import TransactionVerification
    from pybroker.storage.results import AppendResult, TransactionMarker


class Coordinator(Protocol):
    """What a coordinator hears of its topic's partitions."""

    def on_leadership(self, gained: set[int], lost: set[int]) -> None: ...

    def on_high_watermark(self, partition: int, high_watermark: int) -> None: ...


class CoordinatorPartitions:
    """Both ports of a coordinator: append to its topic, and read it from start to end."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        broker_id: int,
        topic: str,
        verification: Callable[[], TransactionVerification],
    ) -> None:
        """``verification()`` is asked of producers' transactions that write to the topic."""
        self._replicas = replicas
        self._metadata = metadata
        self._broker_id = broker_id
        self._topic = topic
        self._verification = verification
        self._led: dict[int, tuple[bytes, int]] = {}  # topic ids and leader epochs of what is led here
        self._coordinator: Callable[[], Coordinator] | None = None

    def follow(self, coordinator: Callable[[], Coordinator]) -> None:
        """Tell ``coordinator()`` which partitions are led here, now and at every change.

        It is not called before there are any: a broker without the topic has no use for its coordinator.
        """
        self._coordinator = coordinator
        self._metadata.subscribe(self._on_image)
        self._update(self._metadata.image)

    def append(self, topic: str, partition: int, batch: bytes, done: Callable[[int, int], None]) -> None:
        """See ``PartitionWriter.append``."""
        here = self._partition(topic, partition)
        if here is None:
            done(self._replicas.error_of(topic, partition), -1)
            return

        def written(result: AppendResult) -> None:
            done(result.error_code, result.last_offset)

        result = here.append_internal(batch, written)
        if result is not None:
            written(result)

    def verify_transaction(
        self,
        topic: str,
        partition: int,
        producer: tuple[str, int, int],
        api_version: int,
        done: Callable[[int], None],
    ) -> None:
        """See ``PartitionWriter.verify_transaction``."""
        from pybroker.replication.transaction_verification import ProducerOfTransaction, offset_commit_operation

        here = self._replicas.partition(topic, partition)
        if here is None:
            done(self._replicas.error_of(topic, partition))
            return
        self._verification().verify(
            ProducerOfTransaction._make(producer),
            [(here, NO_SEQUENCE)],
            offset_commit_operation(api_version),
            lambda errors: done(errors.get((topic, partition), 0)),
        )

    def append_end_transaction(
        self, topic: str, partition: int, batch: bytes, marker: TransactionMarker, done: Callable[[int, int], None]
    ) -> None:
        """See ``PartitionWriter.append_end_transaction``."""
        here = self._partition(topic, partition)
        if here is None:
            done(self._replicas.error_of(topic, partition), -1)
            return

        def written(result: AppendResult) -> None:
            done(result.error_code, result.last_offset)

        result = here.append_end_transaction(batch, marker, written)
        if result is not None:
            written(result)

    def high_watermark(self, topic: str, partition: int) -> int:
        """See ``PartitionWriter.high_watermark``."""
        here = self._replicas.partition(topic, partition)
        return -1 if here is None else here.log.high_watermark

    def log_range(self, topic: str, partition: int) -> tuple[int, int] | None:
        """See ``PartitionReader.log_range``."""
        here = self._partition(topic, partition)
        # What is still on its way into the log, out of an earlier epoch that was led here, is a part of the state.
        if here is None or here.log.queue.busy:
            return None
        return here.log.log_start_offset, here.log.log_end_offset

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int, done: Callable[[int, memoryview], None]
    ) -> None:
        """See ``PartitionReader.read``."""
        here = self._replicas.partition(topic, partition)
        if here is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER, EMPTY)
            return

        def finished(result: ReadResult) -> None:
            done(result.error_code, result.records)

        result = here.log.read(offset, max_bytes, here.log.log_end_offset, True)
        if isinstance(result, ColdRead):
            result.start(finished)
        else:
            finished(result)

    def _partition(self, topic: str, index: int) -> Partition | None:
        """The partition, about to be loaded or written to: its coordinator hears of its high watermark from now on.

        Not done once and for all, because a new leader epoch puts another object in the place of a partition.
        """
        here = self._replicas.partition(topic, index)
        if here is not None and here.high_watermark_listener is None and self._coordinator is not None:
            here.high_watermark_listener = self._coordinator().on_high_watermark
        return here

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        changed = (topic.name for topic in (*delta.topics_created, *delta.topics_deleted))
        if self._topic in changed or any(after.name == self._topic for _, after in delta.topics_changed):
            self._update(image)

    def _update(self, image: ClusterImage) -> None:
        led: dict[int, tuple[bytes, int]] = {}
        if (topic := image.topics_by_name.get(self._topic)) is not None:
            led = {
                index: (topic.topic_id, state.leader_epoch)
                for index, state in enumerate(topic.partitions)
                if state.leader == self._broker_id
            }
        # Between two epochs that were led here others may have led, and written; a topic that was made anew is empty.
        gained = {index for index, term in led.items() if self._led.get(index) != term}
        lost = {index for index, term in self._led.items() if led.get(index) != term}
        self._led = led
        if self._coordinator is not None and (gained or lost):
            self._coordinator().on_leadership(gained, lost)

"""aiokafka behind the scenarios' vocabulary: its coroutines run on a loop in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import BrokerResponseError, KafkaError
from harness.waiting import PATIENCE_S

from conformance.adapter import (
    CLIENT_ERROR,
    CONSUMER_DEFAULTS,
    POLL_MS,
    PRODUCER_DEFAULTS,
    Admin,
    Client,
    Closeable,
    Cluster,
    Committed,
    Consumer,
    ConsumerOptions,
    Delivery,
    Group,
    Headers,
    Partition,
    Producer,
    ProducerOptions,
    Record,
)
from conformance.security import access_to

T = TypeVar("T")
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def code_of(error: KafkaError) -> int:
    return int(error.errno) if isinstance(error, BrokerResponseError) else CLIENT_ERROR


class LoopThread(Closeable):
    """An event loop that runs in a thread until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(2 * PATIENCE_S)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        async def called() -> T:
            return function(*arguments)

        return self.run(called())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AiokafkaProducer(Producer):
    """AIOKafkaProducer."""

    def __init__(self, loop: LoopThread, bootstrap: str, options: ProducerOptions) -> None:
        settings: dict[str, Any] = {
            "acks": options.acks,
            "linger_ms": options.linger_ms,
            "compression_type": options.codec,
            "max_request_size": options.request_bytes_max,
        }
        if options.idempotent is not None:
            settings["enable_idempotence"] = options.idempotent
        if options.patience_ms is not None:
            settings["request_timeout_ms"] = options.patience_ms
        if options.transactional_id is not None:
            settings["transactional_id"] = options.transactional_id
        self._loop = loop
        self._sent: list[Any] = []
        self._producer = loop.run(self._started(bootstrap, settings))

    @staticmethod
    async def _started(bootstrap: str, settings: dict[str, Any]) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**settings, **access_to(bootstrap).settings("aiokafka"))
        await producer.start()
        return producer

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        try:
            future = self._loop.run(
                self._producer.send(topic, value, key, partition, timestamp_ms, list(headers)),
            )
        except KafkaError as error:
            future = error
        self._sent.append(future)

    def flush(self) -> list[Delivery]:
        sent, self._sent = self._sent, []
        return self._loop.run(self._deliveries(sent))

    async def _deliveries(self, sent: list[Any]) -> list[Delivery]:
        await self._producer.flush()
        return [await self._delivery(future) for future in sent]

    @staticmethod
    async def _delivery(future: Any) -> Delivery:
        try:
            if isinstance(future, KafkaError):
                raise future
            metadata = await future
        except KafkaError as error:
            return Delivery(code_of(error))
        return Delivery(0) if metadata is None else Delivery(0, metadata.partition, metadata.offset)

    def begin(self) -> int:
        return self._step(self._producer.begin_transaction())

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Consumer) -> int:
        assert isinstance(consumer, AiokafkaConsumer)
        sent = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        return self._step(self._producer.send_offsets_to_transaction(sent, consumer.group))

    def commit(self) -> int:
        return self._step(self._producer.commit_transaction())

    def abort(self) -> int:
        return self._step(self._producer.abort_transaction())

    def _step(self, step: Coroutine[Any, Any, None]) -> int:
        try:
            self._loop.run(step)
        except KafkaError as error:
            return code_of(error)
        return 0

    def close(self) -> None:
        self._loop.run(self._producer.stop())


class AiokafkaConsumer(Consumer, ConsumerRebalanceListener):
    """AIOKafkaConsumer."""

    def __init__(self, loop: LoopThread, bootstrap: str, options: ConsumerOptions) -> None:
        settings: dict[str, Any] = {
            "auto_offset_reset": options.offset_reset,
            "enable_auto_commit": False,
            "isolation_level": options.isolation,
        }
        if options.group is not None:
            settings |= {"group_id": options.group, "heartbeat_interval_ms": 100}
        if options.instance_id is not None:
            settings["group_instance_id"] = options.instance_id
        if options.assignor is not None:
            settings["partition_assignment_strategy"] = (ASSIGNORS[options.assignor],)
        if options.fetch_wait_ms is not None:
            settings["fetch_max_wait_ms"] = options.fetch_wait_ms
        if options.partition_fetch_bytes is not None:
            settings["max_partition_fetch_bytes"] = options.partition_fetch_bytes
        self._loop = loop
        self._closed = False
        self.group = options.group
        self.revocations = 0
        self._consumer = loop.run(self._started(bootstrap, settings))

    @staticmethod
    async def _started(bootstrap: str, settings: dict[str, Any]) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**settings, **access_to(bootstrap).settings("aiokafka"))
        await consumer.start()
        return consumer

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revocations += 1

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Not counted."""

    def subscribe(self, topic: str) -> None:
        self._loop.call(self._consumer.subscribe, [topic], None, self)

    def assign(self, partitions: Iterable[Partition]) -> None:
        self._loop.call(self._consumer.assign, [TopicPartition(*partition) for partition in partitions])

    def assignment(self) -> set[Partition]:
        return {(found.topic, found.partition) for found in self._loop.call(self._consumer.assignment)}

    def poll(self, timeout_ms: int = POLL_MS) -> list[Record]:
        polled = self._loop.run(self._consumer.getmany(timeout_ms=timeout_ms))
        return [
            Record(
                record.topic,
                record.partition,
                record.offset,
                record.key,
                record.value,
                tuple(record.headers),
                record.timestamp,
                record.timestamp_type,
            )
            for records in polled.values()
            for record in records
        ]

    def seek(self, partition: Partition, offset: int) -> None:
        self._loop.call(self._consumer.seek, TopicPartition(*partition), offset)

    def seek_to_beginning(self, partition: Partition) -> None:
        self._loop.run(self._consumer.seek_to_beginning(TopicPartition(*partition)))

    def seek_to_end(self, partition: Partition) -> None:
        self._loop.run(self._consumer.seek_to_end(TopicPartition(*partition)))

    def position(self, partition: Partition) -> int:
        return int(self._loop.run(self._consumer.position(TopicPartition(*partition))))

    def beginning_and_end(self, partition: Partition) -> tuple[int, int]:
        of = TopicPartition(*partition)
        beginning = self._loop.run(self._consumer.beginning_offsets([of]))
        return beginning[of], self._loop.run(self._consumer.end_offsets([of]))[of]

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        of = TopicPartition(*partition)
        found = self._loop.run(self._consumer.offsets_for_times({of: timestamp_ms}))[of]
        return None if found is None else int(found.offset)

    def pause(self, partition: Partition) -> None:
        self._loop.call(self._consumer.pause, TopicPartition(*partition))

    def resume(self, partition: Partition) -> None:
        self._loop.call(self._consumer.resume, TopicPartition(*partition))

    def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        self._loop.run(self._consumer.commit(None if offsets is None else self._offsets(offsets)))

    def commit_async(self, offsets: Mapping[Partition, Committed]) -> None:
        """aiokafka has one commit; not waiting for it is left to the caller's task."""
        self.commit(offsets)

    def committed(self, partition: Partition) -> Committed | None:
        found = self._loop.run(self._consumer.committed(TopicPartition(*partition)))
        if found is None:
            return None
        # Its consumer gives the offset alone, so the metadata comes from the coordinator's reply underneath.
        fetched = self._loop.run(self._consumer._coordinator.fetch_committed_offsets([TopicPartition(*partition)]))
        return Committed(found, fetched[TopicPartition(*partition)].metadata)

    def close(self) -> None:
        if not self._closed:
            self._loop.run(self._consumer.stop())
            self._closed = True

    @staticmethod
    def _offsets(offsets: Mapping[Partition, Committed]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {TopicPartition(*of): OffsetAndMetadata(*committed) for of, committed in offsets.items()}


class AiokafkaAdmin(Admin):
    """AIOKafkaAdminClient."""

    def __init__(self, loop: LoopThread, bootstrap: str) -> None:
        self._loop = loop
        self._admin = loop.run(self._started(bootstrap))

    @staticmethod
    async def _started(bootstrap: str) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(**access_to(bootstrap).settings("aiokafka"))
        await admin.start()
        return admin

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> int:
        topic = NewTopic(name, partitions, 1, topic_configs=dict(configs or {}))
        created = self._loop.run(self._admin.create_topics([topic], validate_only=validate_only))
        return int(created.topic_errors[0][1])

    def delete_topic(self, name: str) -> int:
        return int(self._loop.run(self._admin.delete_topics([name])).topic_error_codes[0][1])

    def topics(self) -> dict[str, int]:
        described = self._loop.run(self._admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in described}

    def create_partitions(self, topic: str, total: int) -> int:
        try:
            self._loop.run(self._admin.create_partitions({topic: NewPartitions(total)}))
        except KafkaError as error:
            return code_of(error)
        return 0

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (described,) = self._loop.run(self._admin.describe_configs([resource]))
        (result,) = described.resources
        return {entry[0]: entry[1] for entry in result[4]}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> int:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        (altered,) = self._loop.run(self._admin.alter_configs([resource]))
        return int(altered.resources[0][0])

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        of = TopicPartition(*partition)
        return int(self._loop.run(self._admin.delete_records({of: RecordsToDelete(before_offset)}))[of])

    def groups(self) -> set[str]:
        return {group[0] for group in self._loop.run(self._admin.list_consumer_groups())}

    def describe_group(self, group: str) -> Group:
        (described,) = self._loop.run(self._admin.describe_consumer_groups([group]))
        _, _, state, _, _, members, *_ = described.groups[0]
        return Group(state, len(members))

    def group_offsets(self, group: str) -> dict[Partition, int]:
        offsets = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {(of.topic, of.partition): committed.offset for of, committed in offsets.items()}

    def describe_cluster(self) -> Cluster:
        described = self._loop.run(self._admin.describe_cluster())
        brokers = tuple((broker["node_id"], broker["host"], broker["port"]) for broker in described["brokers"])
        return Cluster(described["cluster_id"], described["controller_id"], brokers)

    def close(self) -> None:
        self._loop.run(self._admin.close())


class AiokafkaClient(Client):
    """aiokafka."""

    codecs = ("gzip", "snappy", "lz4", "zstd")
    partitioners = ("default",)
    assignors = tuple(ASSIGNORS)
    murmur2_partitioner = "default"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = self.keep(LoopThread())

    def producer(self, options: ProducerOptions = PRODUCER_DEFAULTS) -> AiokafkaProducer:
        return self.keep(AiokafkaProducer(self._loop, self.bootstrap, options))

    def consumer(self, options: ConsumerOptions = CONSUMER_DEFAULTS) -> AiokafkaConsumer:
        return self.keep(AiokafkaConsumer(self._loop, self.bootstrap, options))

    def admin(self) -> AiokafkaAdmin:
        return self.keep(AiokafkaAdmin(self._loop, self.bootstrap))

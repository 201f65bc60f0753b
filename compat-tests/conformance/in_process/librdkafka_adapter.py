"""librdkafka, by confluent-kafka, behind the scenarios' vocabulary."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from harness.waiting import PATIENCE_S

from conformance.adapter import (
    CLIENT_ERROR,
    CONSUMER_DEFAULTS,
    POLL_MS,
    PRODUCER_DEFAULTS,
    Admin,
    Client,
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

_ENDED: Any = None  # in place of a client, which ends with the last reference to it

OFFSET_SPECS = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest, "max_timestamp": OffsetSpec.max_timestamp}


def code_of(error: confluent_kafka.KafkaError) -> int:
    """librdkafka's own errors have negative codes."""
    return int(error.code()) if error.code() > 0 else CLIENT_ERROR


def connection(bootstrap: str) -> dict[str, Any]:
    """Where the broker is, and who the client is there."""
    return access_to(bootstrap).settings("confluent-kafka")


class LibrdkafkaProducer(Producer):
    """confluent_kafka.Producer."""

    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        settings: dict[str, Any] = {
            **connection(bootstrap),
            "acks": options.acks,
            "linger.ms": options.linger_ms,
            "message.max.bytes": options.request_bytes_max,
            "reconnect.backoff.max.ms": 200,
        }
        if options.codec is not None:
            settings["compression.type"] = options.codec
        if options.idempotent is not None:
            settings["enable.idempotence"] = options.idempotent
        if options.partitioner is not None:
            settings["partitioner"] = options.partitioner
        if options.patience_ms is not None:
            settings |= {"message.timeout.ms": options.patience_ms, "topic.metadata.propagation.max.ms": 1}
        if options.transactional_id is not None:
            settings["transactional.id"] = options.transactional_id
        self._producer = confluent_kafka.Producer(settings)
        self._deliveries: dict[int, Delivery] = {}
        self._sent = 0
        if options.transactional_id is not None:
            self._producer.init_transactions(PATIENCE_S)

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
        number, self._sent = self._sent, self._sent + 1

        def delivered(error: Any, message: Any) -> None:
            failed = error is not None
            self._deliveries[number] = (
                Delivery(code_of(error)) if failed else Delivery(0, message.partition(), message.offset())
            )

        options: dict[str, Any] = {"headers": list(headers), "on_delivery": delivered}
        if timestamp_ms is not None:
            options["timestamp"] = timestamp_ms
        if partition is not None:
            options["partition"] = partition
        try:
            self._producer.produce(topic, value, key, **options)
        except KafkaException as error:
            self._deliveries[number] = Delivery(code_of(error.args[0]))

    def flush(self) -> list[Delivery]:
        assert self._producer.flush(PATIENCE_S) == 0
        deliveries = [self._deliveries[number] for number in sorted(self._deliveries)]
        self._deliveries.clear()
        return deliveries

    def begin(self) -> int:
        return self._step(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Consumer) -> int:
        assert isinstance(consumer, LibrdkafkaConsumer)
        sent = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        metadata = consumer.group_metadata()
        return self._step(self._producer.send_offsets_to_transaction, sent, metadata, PATIENCE_S)

    def commit(self) -> int:
        return self._step(self._producer.commit_transaction, PATIENCE_S)

    def abort(self) -> int:
        return self._step(self._producer.abort_transaction, PATIENCE_S)

    @staticmethod
    def _step(step: Callable[..., None], *arguments: Any) -> int:
        try:
            step(*arguments)
        except KafkaException as error:
            return code_of(error.args[0])
        return 0

    def close(self) -> None:
        # A fenced producer fails for good, and says so whatever it is asked.
        with suppress(KafkaException, SystemError):
            self._producer.flush(PATIENCE_S)
        self._producer = _ENDED


class LibrdkafkaConsumer(Consumer):
    """confluent_kafka.Consumer."""

    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None:
        settings: dict[str, Any] = {
            **connection(bootstrap),
            "group.id": options.group or "none",
            "auto.offset.reset": options.offset_reset,
            "enable.auto.commit": False,
            "isolation.level": options.isolation,
            "heartbeat.interval.ms": 100,
            "reconnect.backoff.max.ms": 200,
        }
        if options.instance_id is not None:
            settings["group.instance.id"] = options.instance_id
        if options.assignor is not None:
            settings["partition.assignment.strategy"] = options.assignor
        if options.fetch_wait_ms is not None:
            settings["fetch.wait.max.ms"] = options.fetch_wait_ms
        if options.partition_fetch_bytes is not None:
            settings["max.partition.fetch.bytes"] = options.partition_fetch_bytes
        self._consumer = confluent_kafka.Consumer(settings)
        self._closed = False
        self.revocations = 0

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def _on_revoke(self, *_: object) -> None:
        self.revocations += 1

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic], on_revoke=self._on_revoke)

    def assign(self, partitions: Iterable[Partition]) -> None:
        self._consumer.assign([TopicPartition(*partition) for partition in partitions])

    def assignment(self) -> set[Partition]:
        return {(found.topic, found.partition) for found in self._consumer.assignment()}

    def poll(self, timeout_ms: int = POLL_MS) -> list[Record]:
        messages = self._consumer.consume(500, timeout_ms / 1000)
        return [self._record(message) for message in messages if message.error() is None]

    @staticmethod
    def _record(message: Any) -> Record:
        kind, timestamp_ms = message.timestamp()
        return Record(
            message.topic(),
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
            timestamp_ms,
            kind - confluent_kafka.TIMESTAMP_CREATE_TIME,
        )

    def seek(self, partition: Partition, offset: int) -> None:
        # Until the first fetch there is nothing to seek in; a new assignment starts where one wants.
        self._consumer.assign([TopicPartition(*partition, offset)])

    def seek_to_beginning(self, partition: Partition) -> None:
        self.seek(partition, confluent_kafka.OFFSET_BEGINNING)

    def seek_to_end(self, partition: Partition) -> None:
        self.seek(partition, self.beginning_and_end(partition)[1])

    def position(self, partition: Partition) -> int:
        return int(self._consumer.position([TopicPartition(*partition)])[0].offset)

    def beginning_and_end(self, partition: Partition) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=PATIENCE_S)
        return low, high

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        (found,) = self._consumer.offsets_for_times([TopicPartition(*partition, timestamp_ms)], timeout=PATIENCE_S)
        return None if found.offset < 0 else int(found.offset)

    def pause(self, partition: Partition) -> None:
        self._consumer.pause([TopicPartition(*partition)])

    def resume(self, partition: Partition) -> None:
        self._consumer.resume([TopicPartition(*partition)])

    def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        if offsets is None:
            self._consumer.commit(asynchronous=False)
        else:
            self._consumer.commit(offsets=self._offsets(offsets), asynchronous=False)

    def commit_async(self, offsets: Mapping[Partition, Committed]) -> None:
        self._consumer.commit(offsets=self._offsets(offsets), asynchronous=True)

    def committed(self, partition: Partition) -> Committed | None:
        (found,) = self._consumer.committed([TopicPartition(*partition)], timeout=PATIENCE_S)
        return None if found.offset < 0 else Committed(found.offset, found.metadata or "")

    def close(self) -> None:
        if not self._closed:
            self._consumer.close()
            self._closed = True

    @staticmethod
    def _offsets(offsets: Mapping[Partition, Committed]) -> list[TopicPartition]:
        return [TopicPartition(*of, committed.offset, committed.metadata) for of, committed in offsets.items()]


class LibrdkafkaAdmin(Admin):
    """confluent_kafka.admin.AdminClient."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient(connection(bootstrap))

    @staticmethod
    def _code(future: Any) -> int:
        error = future.exception(PATIENCE_S)
        return 0 if error is None else code_of(error.args[0])

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> int:
        topic = NewTopic(name, partitions, 1, config=dict(configs or {}))
        return self._code(self._admin.create_topics([topic], validate_only=validate_only)[name])

    def delete_topic(self, name: str) -> int:
        return self._code(self._admin.delete_topics([name])[name])

    def topics(self) -> dict[str, int]:
        listed = self._admin.list_topics(timeout=PATIENCE_S).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def create_partitions(self, topic: str, total: int) -> int:
        return self._code(self._admin.create_partitions([NewPartitions(topic, total)])[topic])

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        (future,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in future.result(PATIENCE_S).items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> int:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(configs))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            (future,) = self._admin.alter_configs([resource]).values()
        return self._code(future)

    def incremental_alter_configs(self, topic: str, changes: Sequence[tuple[str, str, str | None]]) -> int:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType[operation])
            for operation, name, value in changes
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        (future,) = self._admin.incremental_alter_configs([resource]).values()
        return self._code(future)

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        (future,) = self._admin.delete_records([TopicPartition(*partition, before_offset)]).values()
        return int(future.result(PATIENCE_S).low_watermark)

    def groups(self) -> set[str]:
        return {group.group_id for group in self._admin.list_consumer_groups().result(PATIENCE_S).valid}

    def describe_group(self, group: str) -> Group:
        described = self._admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        return Group(described.state.name.capitalize(), len(described.members))

    def group_offsets(self, group: str) -> dict[Partition, int]:
        request = [ConsumerGroupTopicPartitions(group)]
        result = self._admin.list_consumer_group_offsets(request)[group].result(PATIENCE_S)
        return {(found.topic, found.partition): found.offset for found in result.topic_partitions}

    def alter_group_offset(self, group: str, partition: Partition, offset: int) -> int:
        request = [ConsumerGroupTopicPartitions(group, [TopicPartition(*partition, offset)])]
        (altered,) = self._admin.alter_consumer_group_offsets(request)[group].result(PATIENCE_S).topic_partitions
        return 0 if altered.error is None else code_of(altered.error)

    def delete_group(self, group: str) -> int:
        return self._code(self._admin.delete_consumer_groups([group])[group])

    def list_offset(self, partition: Partition, spec: str | int) -> int:
        wanted = OFFSET_SPECS[spec]() if isinstance(spec, str) else OffsetSpec.for_timestamp(spec)
        (future,) = self._admin.list_offsets({TopicPartition(*partition): wanted}).values()
        return int(future.result(PATIENCE_S).offset)

    def describe_cluster(self) -> Cluster:
        described = self._admin.describe_cluster().result(PATIENCE_S)
        brokers = tuple((node.id, node.host, node.port) for node in described.nodes)
        return Cluster(described.cluster_id, described.controller.id, brokers)

    def close(self) -> None:
        """librdkafka's admin client ends with its last reference."""
        self._admin = _ENDED


class LibrdkafkaClient(Client):
    """librdkafka."""

    codecs = ("gzip", "snappy", "lz4", "zstd")
    partitioners = ("random", "consistent_random", "murmur2_random", "fnv1a_random")
    assignors = ("range", "roundrobin", "cooperative-sticky")
    murmur2_partitioner = "murmur2_random"

    def producer(self, options: ProducerOptions = PRODUCER_DEFAULTS) -> LibrdkafkaProducer:
        return self.keep(LibrdkafkaProducer(self.bootstrap, options))

    def consumer(self, options: ConsumerOptions = CONSUMER_DEFAULTS) -> LibrdkafkaConsumer:
        return self.keep(LibrdkafkaConsumer(self.bootstrap, options))

    def admin(self) -> LibrdkafkaAdmin:
        return self.keep(LibrdkafkaAdmin(self.bootstrap))

"""kafka-python behind the scenarios' vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.waiting import PATIENCE_S
from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import AlterConfigOp, ConfigResource, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import BrokerResponseError, KafkaError, for_code
from kafka.partitioner import DefaultPartitioner, StickyPartitioner

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

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
PARTITIONERS = {"default": DefaultPartitioner, "sticky": StickyPartitioner}
OFFSET_SPECS = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
}


def code_of(error: KafkaError) -> int:
    return int(error.errno) if isinstance(error, BrokerResponseError) else CLIENT_ERROR


def subscribe_knowing(consumer: KafkaConsumer, topic: str, listener: ConsumerRebalanceListener | None = None) -> None:
    """Subscribe, and ask for the metadata before the first poll.

    kafka-python 3.0.12 loses an assignment that arrives between two polls if a change of metadata had asked for it.
    Asked before, it sees no such change.
    """
    consumer.subscribe([topic], listener=listener)
    consumer.topics()


class KafkaPythonProducer(Producer):
    """KafkaProducer."""

    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        settings: dict[str, Any] = {
            "acks": options.acks,
            "linger_ms": options.linger_ms,
            "compression_type": options.codec,
            "max_request_size": options.request_bytes_max,
        }
        if options.idempotent is not None:
            settings["enable_idempotence"] = options.idempotent
        if options.partitioner is not None:
            settings["partitioner"] = PARTITIONERS[options.partitioner]()
        if options.patience_ms is not None:
            settings["max_block_ms"] = options.patience_ms
        if options.transactional_id is not None:
            settings["transactional_id"] = options.transactional_id
        self._producer = KafkaProducer(**settings, **access_to(bootstrap).settings("kafka-python"))
        self._sent: list[Any] = []
        if options.transactional_id is not None:
            self._producer.init_transactions()

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
            future = self._producer.send(topic, value, key, list(headers), partition, timestamp_ms)
        except KafkaError as error:
            future = error
        self._sent.append(future)

    def flush(self) -> list[Delivery]:
        self._producer.flush(PATIENCE_S)
        sent, self._sent = self._sent, []
        return [self._delivery(future) for future in sent]

    def begin(self) -> int:
        return self._step(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Consumer) -> int:
        assert isinstance(consumer, KafkaPythonConsumer)
        sent = {TopicPartition(*partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
        return self._step(self._producer.send_offsets_to_transaction, sent, consumer.group_metadata())

    def commit(self) -> int:
        return self._step(self._producer.commit_transaction)

    def abort(self) -> int:
        return self._step(self._producer.abort_transaction)

    @staticmethod
    def _step(step: Callable[..., None], *arguments: Any) -> int:
        try:
            step(*arguments)
        except KafkaError as error:
            return code_of(error)
        return 0

    def close(self) -> None:
        self._producer.close(timeout=PATIENCE_S)

    @staticmethod
    def _delivery(future: Any) -> Delivery:
        try:
            if isinstance(future, KafkaError):
                raise future
            metadata = future.get(timeout=PATIENCE_S)
        except KafkaError as error:
            return Delivery(code_of(error))
        return Delivery(0, metadata.partition, metadata.offset)


class KafkaPythonConsumer(Consumer, ConsumerRebalanceListener):
    """KafkaConsumer."""

    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None:
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
        self._consumer = KafkaConsumer(**settings, **access_to(bootstrap).settings("kafka-python"))
        self._closed = False
        self.revocations = 0

    def group_metadata(self) -> Any:
        return self._consumer.group_metadata()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revocations += 1

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Not counted."""

    def subscribe(self, topic: str) -> None:
        subscribe_knowing(self._consumer, topic, listener=self)

    def assign(self, partitions: Iterable[Partition]) -> None:
        self._consumer.assign([TopicPartition(*partition) for partition in partitions])

    def assignment(self) -> set[Partition]:
        return {(found.topic, found.partition) for found in self._consumer.assignment()}

    def poll(self, timeout_ms: int = POLL_MS) -> list[Record]:
        polled = self._consumer.poll(timeout_ms=timeout_ms)
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
        self._consumer.seek(TopicPartition(*partition), offset)

    def seek_to_beginning(self, partition: Partition) -> None:
        self._consumer.seek_to_beginning(TopicPartition(*partition))

    def seek_to_end(self, partition: Partition) -> None:
        self._consumer.seek_to_end(TopicPartition(*partition))
        self.position(partition)

    def position(self, partition: Partition) -> int:
        return int(self._consumer.position(TopicPartition(*partition)))

    def beginning_and_end(self, partition: Partition) -> tuple[int, int]:
        of = TopicPartition(*partition)
        return self._consumer.beginning_offsets([of])[of], self._consumer.end_offsets([of])[of]

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        of = TopicPartition(*partition)
        found = self._consumer.offsets_for_times({of: timestamp_ms})[of]
        return None if found is None else int(found.offset)

    def pause(self, partition: Partition) -> None:
        self._consumer.pause(TopicPartition(*partition))

    def resume(self, partition: Partition) -> None:
        self._consumer.resume(TopicPartition(*partition))

    def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        self._consumer.commit(None if offsets is None else self._offsets(offsets))

    def commit_async(self, offsets: Mapping[Partition, Committed]) -> None:
        self._consumer.commit_async(self._offsets(offsets))

    def committed(self, partition: Partition) -> Committed | None:
        found = self._consumer.committed(TopicPartition(*partition), metadata=True)
        return None if found is None else Committed(found.offset, found.metadata)

    def close(self) -> None:
        if not self._closed:
            self._consumer.close(autocommit=False)
            self._closed = True

    @staticmethod
    def _offsets(offsets: Mapping[Partition, Committed]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {TopicPartition(*of): OffsetAndMetadata(*committed, -1) for of, committed in offsets.items()}


class KafkaPythonAdmin(Admin):
    """KafkaAdminClient."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = KafkaAdminClient(**access_to(bootstrap).settings("kafka-python"))

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> int:
        topic = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        created = self._admin.create_topics({name: topic}, validate_only=validate_only, raise_errors=False)
        return int(created["topics"][0]["error_code"])

    def delete_topic(self, name: str) -> int:
        return int(self._admin.delete_topics([name], raise_errors=False)["topics"][0]["error_code"])

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def create_partitions(self, topic: str, total: int) -> int:
        (result,) = self._admin.create_partitions({topic: total}, raise_errors=False).results
        return int(result.error_code)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        described = self._admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        return {name: config["value"] for name, config in described["topic"][topic].items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> int:
        return self._alter(topic, dict(configs), incremental=False)

    def incremental_alter_configs(self, topic: str, changes: Sequence[tuple[str, str, str | None]]) -> int:
        operations = {name: (AlterConfigOp[operation], value) for operation, name, value in changes}
        return self._alter(topic, operations, incremental=True)

    def _alter(self, topic: str, configs: dict[str, Any], *, incremental: bool) -> int:
        resource = ConfigResource("TOPIC", topic, configs)
        altered = self._admin.alter_configs([resource], raise_on_unknown=False, incremental=incremental)
        result = altered["topic"][topic]
        return 0 if result == "OK" else int(result[1 : result.index("]")].removeprefix("Error "))

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        of = TopicPartition(*partition)
        return int(self._admin.delete_records({of: before_offset})[of]["low_watermark"])

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def describe_group(self, group: str) -> Group:
        described = self._admin.describe_groups([group])[group]
        return Group(described["group_state"], len(described["members"]))

    def group_offsets(self, group: str) -> dict[Partition, int]:
        offsets = self._admin.list_group_offsets(group)[group]
        return {(of.topic, of.partition): committed.offset for of, committed in offsets.items()}

    def alter_group_offset(self, group: str, partition: Partition, offset: int) -> int:
        of = TopicPartition(*partition)
        return int(self._admin.alter_group_offsets(group, {of: OffsetAndMetadata(offset, "", -1)})[of].errno)

    def delete_group(self, group: str) -> int:
        result = self._admin.delete_groups([group])[group]
        return 0 if result == "OK" else next(code for code in range(1, 120) if for_code(code).__name__ == result)

    def delete_group_offset(self, group: str, partition: Partition) -> int:
        of = TopicPartition(*partition)
        return int(self._admin.delete_group_offsets(group, [of])[of].errno)

    def list_offset(self, partition: Partition, spec: str | int) -> int:
        of = TopicPartition(*partition)
        wanted = OFFSET_SPECS[spec] if isinstance(spec, str) else spec
        return int(self._admin.list_partition_offsets({of: wanted})[of].offset)

    def log_dir_sizes(self) -> dict[Partition, int]:
        return {
            (topic["name"], partition["partition_index"]): partition["partition_size"]
            for broker in self._admin.describe_log_dirs()
            for log_dir in broker["log_dirs"]
            for topic in log_dir["topics"]
            for partition in topic["partitions"]
        }

    def describe_cluster(self) -> Cluster:
        described = self._admin.describe_cluster()
        brokers = tuple(self._broker(broker) for broker in described["brokers"])
        return Cluster(described["cluster_id"], described["controller_id"], brokers)

    @staticmethod
    def _broker(broker: Mapping[str, Any]) -> tuple[int, str, int]:
        return broker.get("node_id", broker.get("broker_id")), broker["host"], broker["port"]

    def close(self) -> None:
        self._admin.close()


class KafkaPythonClient(Client):
    """kafka-python."""

    codecs = ("gzip", "snappy", "lz4", "zstd")
    partitioners = tuple(PARTITIONERS)
    assignors = tuple(ASSIGNORS)
    murmur2_partitioner = "default"

    def producer(self, options: ProducerOptions = PRODUCER_DEFAULTS) -> KafkaPythonProducer:
        return self.keep(KafkaPythonProducer(self.bootstrap, options))

    def consumer(self, options: ConsumerOptions = CONSUMER_DEFAULTS) -> KafkaPythonConsumer:
        return self.keep(KafkaPythonConsumer(self.bootstrap, options))

    def admin(self) -> KafkaPythonAdmin:
        return self.keep(KafkaPythonAdmin(self.bootstrap))

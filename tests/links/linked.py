"""What tests of cluster links share: declaring a link, its topics' states, and the stored batches of both sides.

The batches are read out of the files by a parser of its own, so that a mistake of the broker's cannot hide here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE_S, wait_until

from pybroker.cluster.image.link_states import MirroredTopic
from pybroker.config.resources import BROKER, DELETE, SET
from pybroker.testing import Broker, Cluster
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.wire_client import WireClient

COORDINATOR_COMES_UP = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_HEAD = struct.Struct(">qi")
_OVERHEAD = 12


class HasBootstrap(Protocol):
    """Any cluster that a client may reach."""

    @property
    def bootstrap(self) -> str: ...


def link(here: HasBootstrap, source: HasBootstrap, **settings: str) -> None:
    """Mirror the topic ``orders`` of ``source``, or others, by a link that looks often."""
    given = {"topics": "orders", "refresh_interval_ms": "100", **settings}
    set_link(here.bootstrap, bootstrap_servers=source.bootstrap, **given)


def set_link(bootstrap: str, link: str = "west", **settings: str | None) -> None:
    """Set settings of a link, by the names behind the link's with ``_`` for ``.``; None takes one away."""
    answer = alter_link(bootstrap, link, {name.replace("_", "."): text for name, text in settings.items()})
    assert answer.error_code == 0, answer


def alter_link(bootstrap: str, link: str, settings: Mapping[str, str | None]) -> Any:
    """The answer to a change of a link's settings, as any tool asks for it that alters those of all brokers."""
    configs = [
        AlterableConfig(
            name=f"pybroker.links.{link}.{name}", value=text, config_operation=DELETE if text is None else SET
        )
        for name, text in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=configs)
    host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
    with WireClient((host, int(port))) as client:
        (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
    return answer


def brokers_of(side: Broker | Cluster) -> list[Any]:
    """The brokers that run."""
    brokers = [side] if isinstance(side, Broker) else list(side.brokers.values())
    return [broker for broker in brokers if broker.is_running]


def image_of(side: Broker | Cluster) -> Any:
    """The newest image that a broker has."""
    images = (broker._running().services.metadata.image for broker in brokers_of(side))
    return max(images, key=lambda image: image.epoch)


def mirror_of(side: Broker | Cluster, topic: str) -> MirroredTopic | None:
    """How a topic stands, by its name here."""
    found: MirroredTopic | None = image_of(side).mirrors.get(topic)
    return found


def wait_for_state(side: Broker | Cluster, topic: str, state: str) -> MirroredTopic:
    """Until every broker has it so."""

    def stands_so() -> bool:
        images = [broker._running().services.metadata.image for broker in brokers_of(side)]
        return all(topic in image.mirrors and image.mirrors[topic].state == state for image in images)

    wait_until(stands_so, f"{topic} to be {state}")
    mirror = mirror_of(side, topic)
    assert mirror is not None
    return mirror


def leader_of(side: Broker | Cluster, topic: str, index: int) -> Any:
    """The broker that leads a partition; None while none does."""
    leader = image_of(side).topics_by_name[topic].partitions[index].leader
    if isinstance(side, Broker):
        return side
    return side.brokers.get(leader)


def end_of(side: Broker | Cluster, index: int) -> int:
    """Where what its leader has of ``orders`` ends."""
    replicas = leader_of(side, "orders", index)._running().services.replicas
    end: int = replicas.partition("orders", index).log.log_end_offset
    return end


def stored(side: Broker | Cluster, topic: str, index: int) -> dict[int, bytes]:
    """The batches in the files of the partition's leader, by their base offsets."""
    leader = leader_of(side, topic, index)
    if leader is None or not leader.is_running:
        return {}
    directories = [Path(path) for path in leader._running().config.log_dirs]
    return stored_in(*(directory / f"{topic}-{index}" for directory in directories))


def all_stored(side: Broker | Cluster, topic: str, partitions: int) -> list[dict[int, bytes]]:
    """The batches of each partition of a topic."""
    return [stored(side, topic, index) for index in range(partitions)]


def reason_of(side: Broker | Cluster, topic: str) -> str:
    """Why a mirrored topic is in its state, as its link says; "" for none."""
    mirror = mirror_of(side, topic)
    return "" if mirror is None else mirror.reason


def stored_in(*directories: Path) -> dict[int, bytes]:
    """The batches of a partition, which lies in one of these directories, by their base offsets."""
    while True:
        batches: dict[int, bytes] = {}
        try:
            for directory in directories:
                for path in sorted(directory.glob("*.log")):
                    batches.update(batches_in(path.read_bytes()))
        except FileNotFoundError:
            continue  # its cleaner has put another in its place
        return batches


def batches_in(data: bytes) -> dict[int, bytes]:
    """Whole batches by their base offsets; a torn last one is none."""
    batches, position = {}, 0
    while position + _OVERHEAD <= len(data):
        base_offset, length = _HEAD.unpack_from(data, position)
        end = position + _OVERHEAD + length
        if length <= 0 or end > len(data):
            break
        batches[base_offset] = data[position:end]
        position = end
    return batches


def wait_until_mirrored(source: Broker | Cluster, here: Broker | Cluster, topic: str, partitions: int) -> None:
    """Until everything that the source has stored is here; then at the same offsets, byte for byte."""

    def is_here() -> bool:
        return all(set(stored(source, topic, index)) <= set(stored(here, topic, index)) for index in range(partitions))

    wait_until(is_here, f"{topic} to be mirrored")
    assert_same(source, here, topic, partitions)


def assert_same(source: Broker | Cluster, here: Broker | Cluster, topic: str, partitions: int) -> None:
    """Whatever is here is at the source, at the same offset, byte for byte."""
    for index in range(partitions):
        mirrored, original = stored(here, topic, index), stored(source, topic, index)
        assert mirrored == {offset: original.get(offset) for offset in mirrored}, f"{topic}-{index} differs"


def committed(side: HasBootstrap, group: str, topic: str = "orders") -> dict[int, int]:
    """The offsets of a group, by partitions."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = future.result(PATIENCE_S).topic_partitions
    return {each.partition: each.offset for each in found if each.topic == topic and each.offset >= 0}


def commit(side: HasBootstrap, group: str, offsets: dict[int, int]) -> None:
    """Commit in ``orders`` as a tool does, while the group has no members, once a coordinator takes it."""
    partitions = [TopicPartition("orders", index, offset) for index, offset in offsets.items()]
    admin = AdminClient({"bootstrap.servers": side.bootstrap})

    def is_committed() -> bool:
        (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)]).values()
        errors = {each.error.code() for each in future.result(PATIENCE_S).topic_partitions if each.error}
        assert errors <= COORDINATOR_COMES_UP, errors
        return not errors

    wait_until(is_committed, f"{group} to be committed")


_numbers = count()


def produce(side: HasBootstrap, topic: str, how_many: int, **settings: Any) -> None:
    """Produce records to all partitions, acknowledged by all replicas."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 5, **given})
    failures: list[Any] = []
    for _ in range(how_many):
        number = next(_numbers)
        producer.produce(
            topic, b"value-%d" % number, b"key-%d" % number, on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(PATIENCE_S) == 0
    assert len(failures) == how_many
    assert not any(failures)


def produce_transactions(
    side: HasBootstrap, topic: str, *outcomes: bool | None, name: str = "transactional"
) -> Producer:
    """One transaction after another: committed, aborted, or (None, the last) left open."""
    producer = Producer({"bootstrap.servers": side.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    for outcome in outcomes:
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(topic, b"transaction-%d" % next(_numbers))
        assert producer.flush(PATIENCE_S) == 0
        if outcome is not None:
            (producer.commit_transaction if outcome else producer.abort_transaction)(PATIENCE_S)
    return producer


def read_all(side: Broker | Cluster, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All values that a consumer reads of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": side.bootstrap,
            "group.id": "g",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = len(image_of(side).topics_by_name[topic].partitions)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "nothing comes any more"
        error = message.error()
        if error is None:
            values.append(message.value() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(int(message.partition() or 0))
    consumer.close()
    return sorted(values)


def code_of_a_write(here: Broker, settings: Mapping[str, Any]) -> int | None:
    """What a new producer of librdkafka is answered: an old one keeps a refusal until it asks for metadata anew."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": here.bootstrap, **settings})
    producer.produce("orders", b"a write", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    (error,) = errors
    return None if error is None else int(error.code())

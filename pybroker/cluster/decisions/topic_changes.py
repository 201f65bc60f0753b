"""Creating, deleting and growing topics.

Owns: the rules of CreateTopics, DeleteTopics and CreatePartitions, one topic at a time. What is refused leaves no
trace, and does not keep the others of the request from being done. What may take long is decided in steps
(``write_queue``).

Counterpart in Kafka: ``org.apache.kafka.controller.ReplicationControlManager``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pybroker.cluster.decisions.operations import (
    Allows,
    MorePartitions,
    NamedResult,
    NewTopic,
    TopicCreation,
    TopicDeletion,
    anything,
)
from pybroker.cluster.decisions.placement import Refused, Shuffler, check_assignment, new_partition, place
from pybroker.cluster.image.cluster_image import (
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker.cluster.image.coordinator_table import INTERNAL_TOPICS
from pybroker.cluster.image.topic_names import colliding_name, invalid_reason
from pybroker.config.broker import BrokerConfig
from pybroker.config.resources import TOPIC
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.uuids import ZERO_UUID

# Partitions that one request may create (Kafka's ReplicationControlManager.MAX_PARTITIONS_PER_BATCH): one request is
# one transaction, and stays that small.
PARTITIONS_PER_REQUEST_MAX = 10_000

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"


class TopicRules(NamedTuple):
    """What creation needs to know besides the image.

    ``config_error(overrides, config)`` says what is wrong with a topic's overrides, or None.
    """

    config: BrokerConfig
    config_error: Callable[[Mapping[str, str | None], BrokerConfig], str | None]
    new_uuid: Callable[[], bytes]
    random: Shuffler


def create_topics(
    builder: ImageBuilder, topics: Sequence[NewTopic], rules: TopicRules, allows: Allows = anything
) -> Generator[None, None, list[TopicCreation]]:
    """Create the valid ones; a name that comes twice is answered once, refused."""
    counts = Counter(topic.name for topic in topics)
    wanted = sum(partition_count(topic, rules.config) for topic in topics)
    results = {}
    for topic in topics:
        try:
            if counts[topic.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if wanted > PARTITIONS_PER_REQUEST_MAX:
                raise Refused(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
            results[topic.name] = yield from _create_topic(builder, topic, rules, allows)
        except Refused as refused:
            results[topic.name] = TopicCreation(topic.name, refused.error_code, refused.message)
        yield
    return list(results.values())


def partition_count(topic: NewTopic, config: BrokerConfig) -> int:
    """How many partitions a topic would have; 0 if it asks for a number that there cannot be."""
    if topic.assignments:
        return len(topic.assignments)
    return config.get_int("num.partitions") if topic.num_partitions == -1 else max(topic.num_partitions, 0)


def _create_topic(
    builder: ImageBuilder, topic: NewTopic, rules: TopicRules, allows: Allows
) -> Generator[None, None, TopicCreation]:
    image = builder.view()
    _check_name(topic.name, image)
    overrides = _checked_overrides(topic, rules)
    partitions = yield from (
        _assigned_partitions(builder, topic, image)
        if topic.assignments
        else _placed_partitions(builder, topic, image, rules)
    )
    _charge(len(partitions), allows)
    topic_id = rules.new_uuid()
    builder.put_topic(TopicImage(topic.name, topic_id, partitions, topic.name in INTERNAL_TOPICS))
    builder.put_overrides((TOPIC, topic.name), overrides)
    replication_factor = len(partitions[0].replicas)
    return TopicCreation(topic.name, 0, None, topic_id, len(partitions), replication_factor, overrides)


def _charge(partitions: int, allows: Allows) -> None:
    """Count them for the client's quota, or refuse them."""
    if not allows(partitions):
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _check_name(name: str, image: ClusterImage) -> None:
    if name == CLUSTER_METADATA_TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics_by_name:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    reason = invalid_reason(name)
    if reason is None and (other := colliding_name(name, image.topics_by_name)) is not None:
        reason = f"Topic '{name}' collides with existing topic: {other}"
    if reason is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def _checked_overrides(topic: NewTopic, rules: TopicRules) -> dict[str, str]:
    if topic.configs and (message := rules.config_error(dict(topic.configs), rules.config)) is not None:
        raise Refused(ErrorCode.INVALID_CONFIG, message)
    return {name: value for name, value in topic.configs if value is not None}


def _assigned_partitions(
    builder: ImageBuilder, topic: NewTopic, image: ClusterImage
) -> Generator[None, None, tuple[PartitionImage, ...]]:
    prefix = "A manual partition assignment was specified, but"
    if topic.replication_factor != -1:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{prefix} replication factor was not set to -1.")
    if topic.num_partitions != -1:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{prefix} numPartitions was not set to -1.")
    partitions: dict[int, PartitionImage] = {}
    replication_factor = None
    for index, replicas in topic.assignments:
        if index in partitions:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        check_assignment(replicas, image.brokers, replication_factor)
        replication_factor = len(replicas)
        partitions[index] = new_partition(builder, index, replicas, image.brokers, manual=True)
        yield
    if sorted(partitions) != list(range(len(partitions))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return tuple(partitions[index] for index in range(len(partitions)))


def _placed_partitions(
    builder: ImageBuilder, topic: NewTopic, image: ClusterImage, rules: TopicRules
) -> Generator[None, None, tuple[PartitionImage, ...]]:
    replication_factor, count = topic.replication_factor, topic.num_partitions
    if replication_factor < -1 or replication_factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if count < -1 or count == 0:
        raise Refused(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if count == -1:
        count = rules.config.get_int("num.partitions")
    if replication_factor == -1:
        replication_factor = rules.config.get_int("default.replication.factor")
    placed = place(image.brokers, count, replication_factor, rules.random)
    return (yield from _new_partitions(builder, placed, image, manual=False))


def _new_partitions(
    builder: ImageBuilder, assignments: Iterable[tuple[int, ...]], image: ClusterImage, *, manual: bool, first: int = 0
) -> Generator[None, None, tuple[PartitionImage, ...]]:
    """One for each list of replicas, with the indexes from ``first`` on."""
    partitions = []
    for index, replicas in enumerate(assignments, start=first):
        partitions.append(new_partition(builder, index, replicas, image.brokers, manual=manual))
        yield
    return tuple(partitions)


def delete_topics(
    builder: ImageBuilder, topics: Sequence[str | bytes], allows: Allows = anything
) -> list[TopicDeletion]:
    """Delete by name (str) or id (bytes).

    What comes twice, as a name or an id, is answered once and refused; so is a name whose id is there too.
    """
    image = builder.view()
    counts = Counter(topics)
    ids = {topic for topic in topics if isinstance(topic, bytes)}
    results: dict[str | bytes, TopicDeletion] = {}
    refused_ids = set()
    for topic in counts:
        found = image.topics_by_name.get(topic) if isinstance(topic, str) else None
        if found is not None and counts[topic] == 1 and found.topic_id in ids:
            refused_ids.add(found.topic_id)
    for topic, count in counts.items():
        if topic not in refused_ids:
            results[topic] = _delete_topic(builder, topic, count, refused_ids, allows)
    return list(results.values())


def _delete_topic(
    builder: ImageBuilder, topic: str | bytes, count: int, refused_ids: set[bytes], allows: Allows
) -> TopicDeletion:
    by_name = isinstance(topic, str)
    name, topic_id = (topic, ZERO_UUID) if isinstance(topic, str) else (None, topic)
    if count > 1:
        message = f"Duplicate topic {'name' if by_name else 'id'}."
        return TopicDeletion(name, topic_id, ErrorCode.INVALID_REQUEST, message)
    image = builder.view()
    found = image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    if found is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID
        return TopicDeletion(name, topic_id, code, code.message)
    if found.topic_id in refused_ids:
        message = "The provided topic name maps to an ID that was already supplied."
        return TopicDeletion(found.name, found.topic_id, ErrorCode.INVALID_REQUEST, message)
    if not allows(len(found.partitions)):
        # Without a text, as Kafka.
        return TopicDeletion(found.name, found.topic_id, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    builder.remove_topic(found.topic_id)
    builder.put_overrides((TOPIC, found.name), {})
    if found.name in image.mirrors:
        builder.remove_mirror(found.name)
    return TopicDeletion(found.name, found.topic_id)


def create_partitions(
    builder: ImageBuilder, topics: Sequence[MorePartitions], random: Shuffler, allows: Allows = anything
) -> Generator[None, None, list[NamedResult]]:
    """Grow the topics for which that is possible; a name that comes twice is answered once, refused."""
    counts = Counter(topic.name for topic in topics)
    results = {}
    for topic in topics:
        try:
            if counts[topic.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            yield from grow_topic(builder, topic, random, allows)
            results[topic.name] = NamedResult(topic.name)
        except Refused as refused:
            results[topic.name] = NamedResult(topic.name, refused.error_code, refused.message)
        yield
    return list(results.values())


def grow_topic(
    builder: ImageBuilder, more: MorePartitions, random: Shuffler, allows: Allows = anything
) -> Generator[None, None, None]:
    """Give a topic more partitions; ``Refused`` where that is not possible."""
    image = builder.view()
    topic = image.topics_by_name.get(more.name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    count = len(topic.partitions)
    additional = more.total_count - count
    _check_growth(more, count, additional)
    replication_factor = len(topic.partitions[0].replicas)
    if more.assignments is None:
        assignments: Iterable[tuple[int, ...]] = place(image.brokers, additional, replication_factor, random)
    else:
        assignments = more.assignments
        for replicas in assignments:
            check_assignment(replicas, image.brokers, replication_factor)
            yield
    _charge(additional, allows)
    manual = more.assignments is not None
    added = yield from _new_partitions(builder, assignments, image, manual=manual, first=count)
    builder.put_topic(topic._replace(partitions=topic.partitions + added))


def _check_growth(more: MorePartitions, count: int, additional: int) -> None:
    if additional == 0:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if additional < 0:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {more.name} currently has {count} partition(s); {more.total_count} would not be an increase.",
        )
    if more.assignments is not None and len(more.assignments) != additional:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(more.assignments)} "
            "assignment(s) were specified.",
        )
    if additional > PARTITIONS_PER_REQUEST_MAX:
        # Kafka refuses with this when the records of the operation pass its limit of as many.
        raise Refused(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
